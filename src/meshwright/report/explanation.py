"""Screens of an explanation (`--explain`) and of a token budget; nothing is computed here."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.planner.budget import Budget
from meshwright.planner.explaining import MFU_FORMULA, Explained
from meshwright.report.fitted import NARROW, Fitted
from meshwright.report.text import count, gib, seconds

BAR = 24
GROUP_WORDS = {
    "compute": "compute",
    "recompute": "recompute",
    "communication": "exposed communication",
    "pipeline": "pipeline (bubble, imbalance)",
    "host": "host",
    "rest": "optimizer and fixed",
}
VERDICT_WORDS = {"fits": "", "tight": "tight: ", "does-not-fit": "does not fit: "}


def explanation_body(told: Explained) -> RenderableType:
    """Where the step goes, from the peak to the MFU, what limits it, what would help."""
    step = told.explanation.step_seconds
    parts: list[RenderableType] = [
        Text("\nWhere the step goes", style="bold"),
        _rows([(GROUP_WORDS[one.name], one.seconds, one.share) for one in told.explanation.groups]),
        Text("\nFrom the peak to what is reached", style="bold"),
        _rows([(one.words, one.seconds, one.share) for one in told.efficiency if one.share >= 0.002]),
        Text(
            f"  matrix products run at {told.gemm_rate:.0%} of the peak, attention at "
            f"{told.attention_rate:.0%}; {MFU_FORMULA}.",
            style="dim",
        ),
        Text(f"\nWhat limits it: {told.limit}."),
    ]
    if len(told.stage_seconds) > 1:
        slow, mean = max(told.stage_seconds), sum(told.stage_seconds) / len(told.stage_seconds)
        parts.append(
            Text(
                f"Slowest stage {told.slowest}: {seconds(slow)} a micro-batch, {slow / mean - 1:.1%} above "
                "the mean."
            )
        )
    parts += [Text("\nSingle changes that would shorten it", style="bold"), _changes(told, step)]
    if told.limits:
        parts.append(Text("\nIf a cost vanished (a bound, out of reach)", style="bold"))
        parts.append(_rows([(one.change, one.seconds, one.share) for one in told.limits], bar=False))
    return Group(*parts)


def _rows(rows: list[tuple[str, float, float]], *, bar: bool = True) -> RenderableType:
    return Fitted(lambda width: _bars(rows, bar and width >= NARROW))


def _bars(rows: list[tuple[str, float, float]], bar: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(max_width=44, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for words, value, share in rows:
        filled = "█" * round(max(share, 0.0) * BAR) if bar else ""
        table.add_row("", words, seconds(value), f"{share:.1%}", filled)
    return table


def _changes(told: Explained, step: float) -> RenderableType:
    if not told.changes:
        return Text("  none among the flags and the neighbouring degrees")
    table = Table.grid(padding=(0, 2))
    for number in range(4):
        table.add_column(overflow="fold", no_wrap=number > 1)
    for one in told.changes:
        words = one.change + (f" ({one.options})" if one.options and one.kind == "flag" else "")
        memory = f"{VERDICT_WORDS[one.verdict]}{gib(one.peak)} GiB"
        style = "dim" if one.verdict == "does-not-fit" else ""
        table.add_row("", Text(words, style=style), f"-{one.share:.1%}", Text(memory, style=style))
    return table


def budget_line(told: Budget) -> str:
    """What a token budget takes, in a sentence or two."""
    words = (
        f"{tokens(told.tokens)} tokens: {told.steps:,} steps, {told.days:,.1f} days "
        f"({told.low_days:,.1f} to {told.high_days:,.1f}), {told.gpu_hours:,.0f} GPU-hours without "
        "interruptions"
    )
    if told.days_with_failures is not None and told.goodput is not None:
        words += (
            f"; with the usual failures and checkpoints (goodput {told.goodput:.0%}) "
            f"{told.days_with_failures:,.1f} days, {told.gpu_hours_with_failures:,.0f} GPU-hours"
        )
    elif told.goodput is None:
        words += "; with the usual failures it would make no progress"
    return words


def tokens(number: float) -> str:
    """A number of tokens, briefly.

    >>> tokens(15e12), tokens(3e11)
    ('15 T', '300 B')
    """
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return count(number)
