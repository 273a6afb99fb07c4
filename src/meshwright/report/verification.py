"""Levels of evidence and judged logs on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.verify.log_judge import Judgement
from meshwright.verify.verification import Verification

STYLES = {"pass": "green", "fail": "bold red", "skipped": "yellow"}


def verification_screen(answer: Verification) -> RenderableType:
    """One row a level: verdict, seconds, what was shown."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("level", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("shown")
    for level in answer.levels:
        table.add_row(
            f"{level.number} {level.name}",
            Text(level.verdict, style=STYLES[level.verdict]),
            f"{level.seconds:.1f}",
            level.why,
        )
    end = Text.assemble("\n", (answer.verdict, STYLES[answer.verdict]), f" in {answer.seconds:.1f} s")
    return Group(table, end)


def judgement_screen(answer: Judgement) -> RenderableType:
    """The verdict on a log, why, and what is worth knowing otherwise."""
    word = "pass" if answer.passed else "fail"
    lines = [Text.assemble((word, STYLES[word]))]
    lines += [Text(f"  - {reason}") for reason in answer.reasons]
    lines += [Text(f"  note: {remark}") for remark in answer.remarks]
    return Group(*lines)
