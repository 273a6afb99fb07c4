"""`--draw`: one layout as pictures of letters, as wide as the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from meshwright.planner.answer import Memory
from meshwright.report.bars import memory_bars, timeline_lines
from meshwright.report.fitted import Fitted
from meshwright.report.passes import Timeline

WIDEST = 120
"""Columns beyond which a picture of letters gains nothing."""


def drawn_screen(memory: Memory, timeline: Timeline) -> RenderableType:
    """Memory of each stage as stacked bars, and the timeline of one step."""
    return Group(
        Text("\nMemory of each stage [GiB]", style="bold"),
        Fitted(lambda width: memory_bars(memory, min(width, WIDEST))),
        Text("\nOne step", style="bold"),
        Fitted(lambda width: timeline_lines(timeline, min(width, WIDEST))),
    )
