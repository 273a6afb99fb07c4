"""Options of `plan` that take a list: each value of the job is a question of its own, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.errors import QuestionError
from meshwright.job.spec import positive

JOB_LISTS = {"precision": "--precision", "optimizer": "--optimizer", "global_batch": "--global-batch-size"}
MOST_VALUES = 16


def split_lists(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """What was said with the first value of each list, and {field of the job: all its values}."""
    first, lists = dict(said), {}
    for name, option in JOB_LISTS.items():
        values = _words(str(said.get(name, "")))
        if len(values) > MOST_VALUES:
            raise QuestionError(f"{option} names {len(values)} values; at most {MOST_VALUES} are compared")
        if len(values) < 2:
            continue
        first[name] = values[0]
        lists[name] = tuple(batch(one) for one in values) if name == "global_batch" else values
    return first, lists


def batch(text: str) -> int:
    """A global batch size; QuestionError where it is no whole number of at least 1."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        raise QuestionError(
            f"--global-batch-size {text[:40]}: a whole number of at least 1 (plan alone compares a list: "
            "512,1024)"
        )
    return positive("global batch size", int(digits))


def several(option: str, text: str) -> str | tuple[str, ...]:
    """One word, or the words of a list that the search chooses from."""
    words = _words(text)
    if not words:
        raise QuestionError(f"{option}: name a value")
    return words[0] if len(words) == 1 else words


def factors(text: str) -> float | tuple[float, ...]:
    """Capacity factors: one number, or a list that the search chooses from."""
    try:
        values = tuple(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        values = ()
    if not values or not all(0 < value < 1e6 for value in values):
        raise QuestionError(
            f"--capacity-factor {text[:40]}: a number above 0 (or a list: 1.0,1.25); usual are 1 to 2"
        )
    return values[0] if len(values) == 1 else values


def _words(text: str) -> tuple[str, ...]:
    """The distinct words between commas."""
    return tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
