"""The order of layouts: by predicted step time, ties by what people would rather run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.layout.layout import Layout
from meshwright.layout.table import Floats, Ints, LayoutTable
from meshwright.planner.values import table as space_table


def rank(
    table: LayoutTable, step: Floats, peak: Floats, usable: float, practice: Sequence[Layout] = ()
) -> tuple[Ints, int]:
    """Order of the rows, and how many of the first are ties.

    Layouts expected over the card come after all that are expected inside it. A tied layout is marked
    down by its distance in time (1 at the edge of the tie), by moving parts, by distance from published
    practice and by a nearly full card; the weights are in data/space.json.
    """
    form = space_table()["tie"]
    over = peak > usable
    best = step[~over].min() if not over.all() else step.min()
    tied = (step <= best * (1 + form["value"])) & (over == over.all())
    mark = np.zeros(len(step))
    rows = np.flatnonzero(tied)
    mark[rows] = (
        (step[rows] / best - 1) / form["value"]
        + form["part"] * _moving_parts(table.rows(rows))
        + form["practice"] * from_practice(table.rows(rows), practice)
        + (peak[rows] > form["tight"] * usable)
    )
    order = np.lexsort((step, mark, ~tied, over))
    return order, int(tied.sum())


def _moving_parts(table: LayoutTable) -> Floats:
    """Axes in use, and recompute, sharding, offload and uneven stages. [N]"""
    parts = sum((axis > 1).astype(float) for axis in (table.tp, table.pp, table.vpp, table.cp, table.etp))
    flags = [
        float(e.recompute.granularity != "none") + float(e.fsdp) + float(e.optimizer_offload > 0)
        for e in table.executions
    ]
    chunks = np.array([len(set(_inner_chunks(text))) > 1 for text in table.splits.layouts], dtype=float)
    return np.asarray(parts + table.flag(flags).astype(float) + chunks[table.split])


def _inner_chunks(layout: str) -> list[int]:
    """Decoder layers of each chunk, from its string."""
    from meshwright.layout.notation import parse_text

    return [chunk.count("t") for chunk in parse_text(layout)]


def from_practice(table: LayoutTable, practice: Sequence[Layout]) -> Floats:
    """Doublings between each layout and the nearest that ships, at most 4; 0 where there is none. [N]"""
    nearest = np.full(len(table), 4.0 if practice else 0.0)
    for known in practice:
        apart = sum(
            np.abs(np.log2(getattr(table, name) / getattr(known, name)))
            for name in ("tp", "pp", "vpp", "cp", "ep")
        )
        nearest = np.minimum(nearest, apart)
    return nearest
