"""The front of step time against memory of one plan, as lines."""

from __future__ import annotations

from meshwright.planner.answer import Plans
from meshwright.report.text import gib, seconds

MOST_LINES = 4


def front_lines(answer: Plans) -> list[str]:
    """What less memory costs in time: the first few layouts of the front after the fastest."""
    if len(answer.front) < 2:
        return []
    first = answer.front[0]["step_seconds"]
    lines = []
    for row in answer.front[1 : MOST_LINES + 1]:
        words = str(row["layout"]) + (" FSDP" if row["fsdp"] else "")
        if row["recompute"] != "none":
            words += f", recompute {row['recompute']}"
        slower = row["step_seconds"] / first - 1
        lines.append(f"{gib(row['peak_bytes'])} GiB: {words}: {seconds(row['step_seconds'])}, {slower:+.0%}")
    return lines
