"""Names and values: from a framework's words to Megatron's, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from meshwright.facts import load_json
from meshwright.frameworks.reading import Plain

WHOLE = re.compile(r"[-+]?\d{1,18}(?:_\d{3})*")
DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
PYTHON_LIST = re.compile(
    r"\(?\s*\[[\d,\s]*\](?:\s*\*\s*\d{1,5})?(?:\s*\+\s*\[[\d,\s]*\](?:\s*\*\s*\d{1,5})?)*\s*\)?"
)
TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})
NONE = frozenset({"null", "none", "~", ""})
MAX_LIST = 10_000


@cache
def table() -> dict[str, Any]:
    """The table of spellings (`options.json`)."""
    data: dict[str, Any] = load_json("meshwright.frameworks", "options.json")
    return data


@cache
def arguments() -> dict[str, list[str]]:
    """Megatron-LM's arguments: flag with `-` -> [destination, kind, type]."""
    rows: dict[str, list[str]] = load_json("meshwright.frameworks", "megatron_lm_args.json")["arguments"]
    return rows


def short_names() -> Mapping[str, str]:
    """`tp` -> `tensor_model_parallel_size`, and the other short names."""
    names: dict[str, str] = table()["short"]
    return names


def canonical(name: str, value: Plain) -> tuple[str, Plain]:
    """An option's name in the rules' vocabulary, its value turned where the name is the opposite."""
    name = name.replace("-", "_")
    if (opposite := table()["negated"].get(name)) is not None and isinstance(value, bool):
        return opposite, not value
    same: str = table()["same"].get(name, name)
    if same in NUMBERS_IN_TEXT and isinstance(value, str):
        value = _numbers(value)
    return same, value


NUMBERS_IN_TEXT = ("window_size", "window_attn_skip_freq")
"""Options that Megatron-LM takes as text and its configuration as numbers: `127,0`, `6`."""


def _numbers(text: str) -> Plain:
    words = [word.strip() for word in text.strip().strip("()[]").split(",")]
    if len(text) > MAX_LIST or not all(WHOLE.fullmatch(word) for word in words):
        return text
    numbers = tuple(int(word) for word in words)
    return numbers[0] if len(numbers) == 1 else numbers


def plain_value(word: str) -> Plain:
    """A word as YAML, Hydra and argparse would read it: whole number, decimal, flag, none, text."""
    text = word.strip()
    if WHOLE.fullmatch(text):
        return int(text.replace("_", ""))
    if len(text) < 40 and DECIMAL.fullmatch(text):
        return finite(text)
    lowered = text.lower()
    if lowered in TRUE or lowered in FALSE:
        return lowered in TRUE
    if lowered in NONE:
        return None
    if text[:1] in "[(" and (items := layer_list(text)) is not None:
        return items
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return tuple(plain_value(item.strip(" '\"")) for item in text[1:-1].split(",") if item.strip())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def finite(text: str) -> Plain:
    """A decimal number; the text itself where it is beyond any float."""
    value = float(text)
    return value if math.isfinite(value) else text


def typed(word: str, kind: str) -> Plain:
    """A command-line word as the type that its argument declares; text where it does not fit."""
    if kind == "int" and WHOLE.fullmatch(word.strip()):
        return int(word.replace("_", ""))
    if kind == "float" and len(word) < 40 and DECIMAL.fullmatch(word.strip()):
        return finite(word)
    if kind == "bool":
        return word.strip().lower() in TRUE | {"1"}
    if kind == "str" and word.strip()[:2] in ("[0", "[1", "([") and (items := layer_list(word)) is not None:
        return items
    return word


def layer_list(text: str) -> tuple[int, ...] | None:
    """`[0]*3+[1]*58` and `([0]*3+[1]*58)` written out, without evaluating Python."""
    if not PYTHON_LIST.fullmatch(text.strip()):
        return None
    items: list[int] = []
    for found in re.finditer(r"\[([\d,\s]*)\](?:\s*\*\s*(\d+))?", text):
        numbers = [int(word) for word in found.group(1).replace(",", " ").split()]
        items += numbers * min(int(found.group(2) or 1), MAX_LIST)
        if len(items) > MAX_LIST:
            return None
    return tuple(items)


def layer_list_text(items: tuple[object, ...]) -> str:
    """A list of 0 and 1 as `([0]*3+[1]*58)`."""
    runs: list[tuple[object, int]] = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return "(" + "+".join(f"[{item}]*{count}" for item, count in runs) + ")"


def spelled(value: Plain) -> str:
    """A value as a command-line word."""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(spelled(item) for item in value) + "]"  # type: ignore[arg-type]
    return "null" if value is None else str(value)
