"""Control flow of an evaluated script that leaves the statement it stands in."""

from __future__ import annotations


class Signal(Exception):  # noqa: N818 - control flow, no error
    """Base of them all."""


class Exit(Signal):
    """`exit`: the script ends."""


class Return(Signal):
    """`return`: the function or sourced file ends, with a status."""

    def __init__(self, status: int | None = 0) -> None:
        super().__init__()
        self.status = status


class Break(Signal):
    """`break`: the loop ends."""


class Continue(Signal):
    """`continue`: the next round begins."""
