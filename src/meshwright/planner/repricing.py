"""The candidates that are shown, priced by simulating their pipelines and ranked again.

The search prices hundreds of thousands of layouts by a closed form; with stages of unequal content a
simulated schedule takes up to a tenth longer, and not the same for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.cost.question import Question
from meshwright.cost.simulation import simulated_step
from meshwright.layout.table import Ints
from meshwright.planner.ranking import Known, rank
from meshwright.planner.search import Found, usual_cp

CANDIDATES = 3
"""How many times more candidates are simulated than are shown."""


def shown_rows(
    question: Question, found: Found, top: int, practice: Sequence[Known] = (), *, variants: bool = False
) -> tuple[Ints, int]:
    """Rows of a search to show, best first by simulated time, and how many of them are ties.

    Of each way to divide (tp, pp, cp, ep, etp, fsdp) the first is taken; with `variants` every row counts.
    """
    most = CANDIDATES * top
    rows = np.arange(min(most, len(found.table))) if variants else _first_of_each(found, most)
    if not found.fitting or not len(rows):
        return rows[:top], 0
    inside = found.peak[rows] <= question.cluster.gpu.usable_memory
    if inside.any():
        rows = rows[inside]
    table = found.table.rows(rows)
    step = simulated_step(question, table).step
    order, ties = rank(
        table, step, found.peak[rows], question.cluster.gpu.usable_memory, practice,
        usual_cp=usual_cp(question.job.seq_length),
    )  # fmt: skip
    return rows[order][:top], min(ties, top)


def _first_of_each(found: Found, most: int) -> Ints:
    table, seen, rows = found.table, set(), []
    fsdp = [e.fsdp for e in table.executions]
    names = ("tp", "pp", "cp", "ep", "etp")
    for row in range(len(table)):
        way = (*(int(getattr(table, name)[row]) for name in names), fsdp[int(table.execution[row])])
        if way not in seen:
            seen.add(way)
            rows.append(row)
        if len(rows) == most:
            break
    return np.array(rows, dtype=np.int64)
