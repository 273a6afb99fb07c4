"""Levels of evidence and judged logs on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.report.fitted import Foldable
from meshwright.report.text import seconds
from meshwright.verify.log_judge import Judgement
from meshwright.verify.slowdown import Speed
from meshwright.verify.verification import Verification

STYLES = {"pass": "green", "fail": "bold red", "skipped": "yellow"}


def verification_screen(answer: Verification) -> RenderableType:
    """One row a level: verdict, seconds, what was shown."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("level", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("shown", overflow="fold")
    for level in answer.levels:
        table.add_row(
            f"{level.number} {level.name}",
            Text(level.verdict, style=STYLES[level.verdict]),
            f"{level.seconds:.1f}",
            level.why,
        )
    end = Text.assemble("\n", (answer.verdict, STYLES[answer.verdict]), f" in {answer.seconds:.1f} s")
    return Group(Foldable(table), end)


def judgement_screen(answer: Judgement) -> RenderableType:
    """The verdict on a log, why, and what is worth knowing otherwise."""
    word = "pass" if answer.passed else "fail"
    lines = [Text.assemble((word, STYLES[word]))]
    lines += [Text(f"  - {reason}") for reason in answer.reasons]
    lines += [Text(f"  note: {remark}") for remark in answer.remarks]
    return Group(*lines)


def speed_screen(answer: Speed) -> RenderableType:
    """How fast a run was against its plan, and what its time was lost to."""
    words = f"\n{seconds(answer.measured_seconds)} a step"
    if abs(answer.measured_seconds / answer.median_seconds - 1) > 0.01:
        words += f" ({seconds(answer.median_seconds)} undisturbed)"
    if answer.predicted_seconds is not None and answer.slower is not None:
        low, high = answer.predicted_seconds
        side = "slower" if answer.slower > 0 else "faster"
        words += f", predicted {seconds(low)} (to {seconds(high)}): {abs(answer.slower):.0%} {side}"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("lost to", no_wrap=True)
    table.add_column("s a step", justify="right", no_wrap=True)
    table.add_column("what the log shows", overflow="fold")
    for cause in answer.causes:
        table.add_row(cause.name, "" if cause.seconds is None else f"{cause.seconds:.2f}", cause.text)
    return Group(Text(words), *([Foldable(table)] if answer.causes else []))
