"""The error family: what a person can be told.

MeshwrightError
├── QuestionError   the question is wrong (bad input, unknown name): exit status 2
└── LayoutError     the answer is no (cannot start, does not fit): exit status 1
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MeshwrightError(Exception):
    """Base of every error that Meshwright raises on purpose; its text is written for people."""

    exit_status = 2


class QuestionError(MeshwrightError):
    """The question cannot be answered as it was asked."""

    exit_status = 2


class LayoutError(MeshwrightError):
    """The question is fine and the answer is no."""

    exit_status = 1


def did_you_mean(word: str, known: Iterable[str], *, count: int = 4) -> str:
    """A clause that names the closest known words, or an empty string.

    >>> did_you_mean("H10", ["H100", "A100", "B200"])
    '; did you mean H100 or A100?'
    """
    by_key = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_key, n=count, cutoff=0.5)
    names = [by_key[key] for key in close]
    return f"; did you mean {' or '.join(names)}?" if names else ""
