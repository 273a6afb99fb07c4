"""Checking many files: named ones must say something, those found in directories may be anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from meshwright.errors import QuestionError
from meshwright.frameworks.check import CheckResult, Report, check_reading
from meshwright.frameworks.read import Given, expand, iter_readings
from meshwright.frameworks.view import Beside

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""


def check_files(
    paths: Iterable[str | Path],
    given: Given | None = None,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> Report:
    """Every run of the files, directories and patterns.

    A file that was named and cannot be read, or says nothing, is reported as unread; one that was only
    found in a directory is passed over. QuestionError when nothing at all says anything.
    """
    named = [Path(path) for path in paths]
    files = expand(named)
    results: list[CheckResult] = []
    unread: dict[str, str] = {}
    for number, (path, readings) in enumerate(iter_readings(files, given or Given()), 1):
        if isinstance(readings, QuestionError):
            if path in named:
                unread[str(path)] = str(readings)
        else:
            results += [check_reading(reading, beside) for reading in readings]
        if progress is not None:
            progress(number, len(files))
    if not results:
        reasons = "; ".join(list(unread.values())[:3])
        raise QuestionError(
            reasons or f"none of {len(files)} files says anything of a training that is known here"
        )
    return Report(results=tuple(results), unread=unread)
