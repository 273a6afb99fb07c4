"""The order of layouts: by predicted step time, ties by what people would rather run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from meshwright.layout.notation import parse_text
from meshwright.layout.table import Floats, Ints, LayoutTable
from meshwright.planner.values import table as space_table

CHUNKS = 0.25
"""Parts that each doubling of the interleaving degree counts: more messages, less room for a mistake."""


class Known(Protocol):
    """A layout that people ship: a recipe, or its degrees (then without FSDP)."""

    @property
    def tp(self) -> int: ...

    @property
    def pp(self) -> int: ...

    @property
    def vpp(self) -> int: ...

    @property
    def cp(self) -> int: ...

    @property
    def ep(self) -> int: ...


def rank(
    table: LayoutTable, step: Floats, peak: Floats, usable: float, practice: Sequence[Known] = (),
    *, usual_cp: int | None = None,
) -> tuple[Ints, int]:  # fmt: skip
    """Order of the rows, and how many of the first are ties.

    Layouts expected over the card come after all that are expected inside it. A tied layout is marked
    down by its distance in time (1 at the edge of the tie), by moving parts, by distance from published
    practice and by a nearly full card; the weights are in data/space.json. The tie reaches as far as the
    fastest layout with room on the card, where that is little slower (`room`) than one that may overflow it.

    usual_cp  the most context parallelism that is usual for this sequence length; more is a part of its own
    """
    form = space_table()["tie"]
    over = peak > usable
    best = step[~over].min() if not over.all() else step.min()
    roomy = step[peak <= usable * form["tight"]].min(initial=np.inf)  # the fastest that surely fits
    edge = roomy if roomy <= best * (1 + form["room"]) else 0.0
    tied = (step <= max(best * (1 + form["value"]), edge)) & (over == over.all())
    rows = np.flatnonzero(tied)
    near = table.rows(rows)
    parts = _moving_parts(near)
    if usual_cp is not None:
        parts = parts + (near.cp > usual_cp)
    mark = np.zeros(len(step))
    mark[rows] = (
        (step[rows] / best - 1) / form["value"]
        + form["part"] * parts
        + form["practice"] * from_practice(near, practice)
        + form["full"] * _fullness(peak[rows] / usable, form["tight"])
    )
    order = np.lexsort((step, mark, ~tied, over))
    return order, int(tied.sum())


def _fullness(share: Floats, tight: float) -> Floats:
    """0 where the card has room, from a half (at `tight` of it) to 1 (nothing left). [N]"""
    return np.where(share > tight, np.clip(0.5 + 0.5 * (share - tight) / (1 - tight), 0.5, 1.0), 0.0)


def _moving_parts(table: LayoutTable) -> Floats:
    """Axes in use, recompute, sharding, offload, uneven stages, micro-batches nobody uses. [N]"""
    parts = sum((axis > 1).astype(float) for axis in (table.tp, table.pp, table.vpp, table.cp, table.etp))
    parts = parts + (table.mbs & (table.mbs - 1) != 0)
    flags = [
        float(e.recompute.granularity != "none") + float(e.fsdp) + float(e.optimizer_offload > 0)
        for e in table.executions
    ]
    rough = {code: roughness(table.splits.layouts[code]) for code in np.unique(table.split).tolist()}
    finer = CHUNKS * np.log2(table.vpp)
    uneven = np.array([rough[code] for code in table.split.tolist()])
    return np.asarray(parts + finer + uneven + table.flag(flags).astype(float))


def roughness(layout: str) -> float:
    """How far chunks are from equal: 0 where they are, else 1 and a tenth for each change, at most 2.

    >>> roughness("Et*4|(t*4|)*14t*4L"), roughness("Et*4|(t*4|)*13t*5|mL")
    (0.0, 1.2)
    """
    sizes = [chunk.count("t") for chunk in parse_text(layout)]
    changes = sum(a != b for a, b in pairwise(sizes))
    return min(1 + changes / 10, 2.0) if changes else 0.0


def from_practice(table: LayoutTable, practice: Sequence[Known]) -> Floats:
    """Doublings between each layout and the nearest that ships, at most 4; 0 where there is none. [N]

    Sharding by FSDP where the shipped one has none (or the other way round) counts as one doubling.
    """
    nearest = np.full(len(table), 4.0 if practice else 0.0)
    sharded = table.flag([e.fsdp for e in table.executions]).astype(bool)
    for known in practice:
        apart = sum(
            np.abs(np.log2(getattr(table, name) / getattr(known, name)))
            for name in ("tp", "pp", "vpp", "cp", "ep")
        )
        apart = apart + (sharded != getattr(known, "fsdp", False))
        nearest = np.minimum(nearest, apart)
    return nearest
