"""The catalog: models by name, as data with their source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from meshwright.errors import QuestionError, did_you_mean
from meshwright.facts import load_json
from meshwright.model.rows import model_from_row
from meshwright.model.spec import Model

STATED = "parameters"
"""Key of a row under which the counts stand that others publish or measured."""

UNDESCRIBED = "undescribed"
"""Key of a row that has figures and no layers: why."""

NOISE = frozenset(
    {"base", "bf16", "chat", "fp4", "fp8", "hf", "instruct", "it", "meta", "mxfp4"}
    | {"nvfp4", "nvidia", "pretrain", "preview", "pt", "text", "thinking"}
)
"""Words of a name that say how a checkpoint was finished, not how the model is built."""

DATE = re.compile(r"2[3-6](0[1-9]|1[0-2])|(0[1-9]|1[0-2])[0-3]\d")
"""Release stamps such as 2507 or 0324."""

ACTIVE = re.compile(r"a\d+(\.\d+)?[bm]")
SIZE = re.compile(r"(\d+x)?\d+(\.\d+)?[bmt]|\d+e|a\d+(\.\d+)?[bm]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the catalog.

    parameters, active   text part without MTP; None where nobody states them [count]
    stated               all published and measured counts, as in the data file
    described            False: figures only, no layers to plan with
    """

    name: str
    family: str
    hugging_face_id: str | None
    parameters: int | None
    active: int | None
    source: str
    stated: Mapping[str, Any]
    described: bool = True


def names() -> tuple[str, ...]:
    """Every name of the catalog, in its own spelling."""
    return tuple(_rows())


def entries() -> tuple[Entry, ...]:
    """One entry a model."""
    return tuple(_entry(row) for row in _rows().values())


def find(name: str) -> Model:
    """The model of this name; spelling is forgiving, a near miss raises QuestionError with suggestions.

    Case, owner, separators and words such as `instruct` do not matter; the size may be left out where
    the rest of the name is unique.

    >>> find("meta-llama/Meta-Llama-3.1-70B").name
    'llama-3.1-70b'
    """
    row = _every_row()[resolve(name)]
    if UNDESCRIBED in row:
        raise QuestionError(
            f"the catalog has figures but no layer description for {row['name']} ({row[UNDESCRIBED]})"
        )
    known = {key: value for key, value in row.items() if key != STATED}
    return model_from_row({**_rotary(row["name"]), **_settings(row["name"]), **known})


def _rotary(name: str) -> dict[str, float]:
    """Base of the rotary embedding and epsilon of the norms, where a source states them."""
    base, epsilon, _ = load_json("meshwright.model", "rotary.json")["models"].get(name, (None, None, ""))
    found = {"rope_base": base, "norm_epsilon": epsilon}
    return {key: float(value) for key, value in found.items() if value is not None}


def _settings(name: str) -> dict[str, Any]:
    """What changes no size and is needed to load weights that exist, where a source states it."""
    found = load_json("meshwright.model", "settings.json")["models"].get(name, {})
    return {key: value for key, value in found.items() if key != "source"}


def resolve(name: str) -> str:
    """The catalog's own spelling of a name, or QuestionError."""
    found = _candidates(name)
    if len(found) == 1:
        return found[0]
    if found:
        raise QuestionError(f"{name!r} could be {' or '.join(found)}; say which")
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    near = did_you_mean("-".join(words_of(name))[:60], names()) or "."
    raise QuestionError(
        f"no model {shown!r} in the catalog{near} `meshwright models` lists all {len(names())}"
    )


def known(name: str) -> bool:
    """Whether the name leads to the catalog (possibly to more than one model)."""
    return bool(_candidates(name))


def _candidates(name: str) -> tuple[str, ...]:
    """Models of this name; a key that came about by running different numbers together is none.

    GPT2-2B and GPT-22B share a key, and only one of them is of 22 billion.
    """
    found = _index().get(key_of(name), ())
    return tuple(known for known in found if _same_numbers(name, _every_row()[known]))


def _same_numbers(name: str, row: Mapping[str, Any]) -> bool:
    """Whether the sizes in a name, if any, are the row's, or its numbers are cut where the row's are."""
    sizes = _sizes(name)
    spellings = [row["name"], row.get("hugging_face_id"), *row.get("aliases", ())]
    spelled = [spelling for spelling in spellings if spelling]
    return (
        not sizes
        or any(sizes <= _sizes(spelling) for spelling in spelled)
        or _cut(name) in map(_cut, spelled)
    )


def _sizes(name: str) -> set[str]:
    return {word.replace(".", "") for word in words_of(name) if SIZE.fullmatch(word)}


def _cut(name: str) -> str:
    """The key with a mark wherever two numbers meet: gpt2-2b and gpt-2-2b are the same, gpt-22b is not."""
    joined = "-".join(words_of(name)).replace(".", "-")
    return re.sub(r"(?<!\d)-|-(?!\d)", "", joined)


def key_of(name: str) -> str:
    """What is left of a name when spelling is taken away.

    >>> key_of("Qwen/Qwen3_30B-A3B-Instruct-2507")
    'qwen330ba3b'
    """
    return "".join(words_of(name)).replace(".", "")


def words_of(name: str) -> list[str]:
    """The telling words of a name, in lower case.

    >>> words_of("meta-llama/Meta-Llama-3.1-70B-Instruct")
    ['llama', '3.1', '70b']
    """
    last = name.strip().lower().rstrip("/").rsplit("/", 1)[-1]
    last = re.sub(r"(?<=\d)p(?=\d)", ".", last)  # 1p5b, as recipes spell it
    last = re.sub(r"(?<!\d)(\d)00m\b", r"0.\1b", last.replace("_", "-"))  # 500m
    words = [word for word in re.split(r"[^a-z0-9.]+", last) if word]
    telling = [word for word in words if word not in NOISE and not DATE.fullmatch(word)]
    return telling or words


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    rows = load_json("meshwright.model", "models.json")["models"]
    return MappingProxyType({row["name"]: row for row in rows})


@cache
def _every_row() -> Mapping[str, Mapping[str, Any]]:
    """The catalog and the models beside it: those of published runs, found by name but not listed."""
    beside = load_json("meshwright.model", "beside.json")["models"]
    return MappingProxyType({**{row["name"]: row for row in beside}, **_rows()})


@cache
def _index() -> Mapping[str, tuple[str, ...]]:
    """Key -> names. Full names and aliases win; shortened names count where nobody owns the key."""
    owned: dict[str, list[str]] = {}
    short: dict[str, list[str]] = {}
    for row in _every_row().values():
        for spelling in (row["name"], row.get("hugging_face_id"), *row.get("aliases", ())):
            if spelling:
                _add(owned, key_of(spelling), row["name"])
        for words in _shortened(words_of(row["name"])):
            _add(short, "".join(words).replace(".", ""), row["name"])
    return {key: tuple(found) for key, found in (short | owned).items()}


def _shortened(words: list[str]) -> list[list[str]]:
    """The name without its active size, and without any size."""
    without_active = [word for word in words if not ACTIVE.fullmatch(word)]
    without_size = [word for word in words if not SIZE.fullmatch(word)]
    return [short for short in (without_active, without_size) if short and short != words]


def _add(index: dict[str, list[str]], key: str, name: str) -> None:
    found = index.setdefault(key, [])
    if name not in found:
        found.append(name)


def _entry(row: Mapping[str, Any]) -> Entry:
    stated = row.get(STATED, {})
    return Entry(
        name=row["name"],
        family=row["family"],
        hugging_face_id=row.get("hugging_face_id"),
        parameters=stated.get("total"),
        active=stated.get("active", stated.get("official_active")),
        source=row["source"],
        stated=MappingProxyType(stated),
        described=UNDESCRIBED not in row,
    )
