"""Checking many files: named ones must say something, those found in directories may be anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from meshwright.errors import QuestionError
from meshwright.frameworks.check import Report, check_reading
from meshwright.frameworks.read import SUFFIXES, Given, expand, iter_readings
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import Beside

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""


def check_files(
    paths: Iterable[str | Path],
    given: Given | None = None,
    beside: Beside | None = None,
    progress: Progress | None = None,
    *,
    more: Iterable[Reading] = (),
    others: Literal["say", "pass"] = "say",
) -> Report:
    """Every run of the files, directories and patterns.

    A file that was named and cannot be read, or says nothing, is reported as unread; one that was only
    found in a directory or by a pattern is passed over.

    more    readings that came another way (a command, a text), judged first
    others  pass: named files that say nothing of a training are passed over as well, and a report may
            be empty (for hooks that are handed every changed file)
    Raises QuestionError when nothing at all says anything.
    """
    given = given or Given()
    named = [Path(path) for path in paths]
    files, asked = expand(named), frozenset(named)
    results = [check_reading(reading, beside) for reading in more]
    unread: dict[str, str] = {}
    for number, (path, readings) in enumerate(iter_readings(files, given), 1):
        if isinstance(readings, QuestionError):
            if path in asked and (others == "say" or not path.exists()):
                unread[str(path)] = str(readings)
        else:
            results += [check_reading(reading, beside) for reading in readings]
        if progress is not None:
            progress(number, len(files))
    if not results and not (others == "pass" and named and not unread):
        reasons = "; ".join(list(unread.values())[:3])
        raise QuestionError(reasons or _nothing(named, len(files)))
    return Report(results=tuple(results), unread=unread)


def _nothing(named: list[Path], files: int) -> str:
    if not named:
        return "there is nothing to check: name files, a directory, or a command after --"
    asked = ", ".join(str(path) for path in named[:3])
    if not files:
        return f"{asked}: there is no file of a known kind ({', '.join(SUFFIXES)})"
    return f"{asked}: none of {files} files says anything of a training that is known here"
