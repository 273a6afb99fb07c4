"""Measured runs beside their predictions, and what was learned, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.report.text import gib
from meshwright.verify.profile.learned import Learned
from meshwright.verify.profile.ranking import Profile, Row


def profile_screen(answer: Profile) -> RenderableType:
    """One row a run: place, measured and predicted step and memory; under it why the others failed.

    `1=` is a tie with the fastest within the range of its steps, `!` a step outside the predicted band.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", no_wrap=True, min_width=2)
    table.add_column("layout")
    for name in ("step s", "predicted", "off", "pred. #", "GiB", "predicted"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for row in answer.rows:
        table.add_row(*_cells(row))
    lines = [
        Text(f"  {row.name}: {row.outcome.why}") for row in answer.rows if row.outcome and row.outcome.why
    ]
    parts: list[RenderableType] = [table]
    if lines:
        parts += [Text(""), *lines]
    if answer.open:
        parts.append(Text(f"\n{answer.open} not yet measured: meshwright profile --resume {answer.folder}"))
    return Group(*parts)


def _cells(row: Row) -> tuple[Text | str, ...]:
    outcome = row.outcome
    measured = row.measured is not None
    off = "" if row.off is None else f"{row.off:+.0%}" + ("" if row.in_band else " !")
    kind = outcome.kind if outcome else "open"
    return (
        "" if row.place is None else f"{row.place}" + ("=" if row.tied else ""),
        row.name,
        "" if row.measured is None else f"{row.measured:.3f}",
        "" if row.predicted is None else f"{row.predicted:.3f}",
        off,
        "" if row.predicted_place is None else str(row.predicted_place),
        "" if outcome is None or outcome.allocated is None else gib(outcome.allocated),
        "" if row.predicted_bytes is None else gib(row.predicted_bytes),
        Text(kind, style="green" if measured else "yellow" if outcome is None else "bold red"),
    )


def learned_screen(found: Sequence[Learned], path: str) -> RenderableType:
    """One line for each kind of GPU: runs, error before and after, the factors that moved."""
    lines = []
    for one in found:
        word = "run" if one.runs == 1 else "runs"
        moved = sorted(one.factors.items(), key=lambda item: -abs(item[1] - 1))
        shown = ", ".join(f"{name} x{value:.2f}" for name, value in moved if abs(value - 1) >= 0.01)
        lines.append(
            f"{one.gpu}: calibrated with {one.runs} {word}; "
            f"typical error {expm1(one.before):.0%} -> {expm1(one.after):.0%}"
            + (f"; {shown}" if shown else "")
        )
    return Text("\n".join([*(lines or ["nothing learned yet"]), path]))
