"""What kept an evaluation from being complete."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that kept the evaluation from being complete."""

    text: str
    line: int | None = None
    file: str = ""
