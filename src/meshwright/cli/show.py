"""Printing to a terminal: colour only where a terminal shows it, a progress bar only for long work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 1.0
"""Seconds of silence before a progress bar appears."""


def console() -> Console:
    """A console as wide as the terminal; NO_COLOR and pipes are respected by rich."""
    from rich.console import Console

    return Console(highlight=False)


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
