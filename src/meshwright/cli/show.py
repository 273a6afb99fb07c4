"""Printing to a terminal: colour only where a terminal shows it, a progress bar only for long work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 20
"""Columns that are taken where a terminal claims to have none."""

PATIENCE = 1.0
"""Seconds of silence before a progress bar appears."""


def console() -> Console:
    """A console as wide as the terminal; NO_COLOR and pipes are respected by rich."""
    from rich.console import Console

    class Patient(Console):
        """A pipe that its reader closed is the end of the output, not a failure (rich would exit with 1)."""

        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0)

    found = Patient(highlight=False)
    return found if found.width > 0 else Patient(highlight=False, width=NARROWEST)


def for_people(text: str, indent: int = 6) -> str:
    """Long lines wrapped under themselves on a terminal; elsewhere as they are, one record a line."""
    if not sys.stdout.isatty():
        return text
    import shutil

    from meshwright.lang.wrap import fill, width_of

    width = min(max(shutil.get_terminal_size().columns, 20), 100)
    lines = (
        line if width_of(line) <= width else fill(line, width, rest=" " * indent)
        for line in text.splitlines()
    )
    return "\n".join(lines)


@contextmanager
def progress_bar(what: str = "pricing layouts") -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, all) that draws a bar on standard error once work exceeds a second."""
    if not sys.stderr.isatty():
        yield None
        return
    started, drawn = time.monotonic(), False

    def update(done: int, whole: int) -> None:
        nonlocal drawn
        if time.monotonic() - started > PATIENCE:
            drawn = True
            full = 30 * done // max(whole, 1)
            sys.stderr.write(f"\r  {what} [{'#' * full}{'.' * (30 - full)}] {done:,}/{whole:,}")
            sys.stderr.flush()

    yield update
    if drawn:
        sys.stderr.write("\r" + " " * 72 + "\r")
