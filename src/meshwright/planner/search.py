"""The search: enumerate, keep the legal, price, keep what fits, rank, mark ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import distinct_stages
from meshwright.cost.steptime import step_time
from meshwright.facts import load_json
from meshwright.job.spec import Recompute
from meshwright.layout.rules import legal_mask
from meshwright.layout.table import Floats, Ints, LayoutTable
from meshwright.planner.space import Axes, executions, geometries, with_executions

Progress = Callable[[int, int], None]
"""Called with (done, all) as pieces of the table are priced."""

CHUNK = 4096
"""Rows priced at a time: the working arrays stay in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found: the scored layouts, best first.

    table      layouts that may fit, best first; where none does, the one that needs least memory
    step       [N] seconds; peak [N] bytes
    ties       how many of the first are told apart only by what breaks ties
    searched   scored + excluded by a proven bound; valid: legal for the engine
    reasons    why layouts were refused: {rule: how many}
    """

    table: LayoutTable
    step: Floats
    peak: Floats
    ties: int
    searched: int
    scored: int
    valid: int
    fitting: int
    reasons: Mapping[str, int] = field(default_factory=dict)


def search(question: Question, axes: Axes, progress: Progress | None = None) -> Found:
    """Every layout of the space, priced and ranked."""
    everything = geometries(question, axes)
    mask, reasons = legal_mask(question.model, question.cluster, question.job, everything, question.stack)
    legal = everything.rows(np.flatnonzero(mask))
    wanted = executions(question, axes)
    lightest = (replace(axes.execution, recompute=Recompute(granularity="full")),) if len(wanted) > 1 else wanted
    bound = _memory(question, with_executions(question, axes, legal, lightest))
    possible = legal.rows(np.flatnonzero(bound.may_fit))
    if not len(possible):
        return _nothing_fits(question, axes, legal, bound.peak, len(everything), dict(reasons))
    table = with_executions(question, axes, possible, wanted)
    peak, step, fits = _price(question, table, progress)
    keep = np.flatnonzero(fits)
    if not len(keep):
        return _nothing_fits(question, axes, legal, bound.peak, len(everything) * len(wanted), dict(reasons))
    order, ties = rank(table.rows(keep), step[keep], peak[keep], question.cluster.gpu.usable_memory)
    best = keep[order]
    return Found(
        table=table.rows(best),
        step=step[best],
        peak=peak[best],
        ties=ties,
        searched=len(everything) * len(wanted),
        scored=len(table),
        valid=len(legal) * len(wanted),
        fitting=len(keep),
        reasons=dict(reasons),
    )


def _memory(question: Question, table: LayoutTable):  # type: ignore[no-untyped-def]
    return memory(question, table, distinct_stages(table.splits))


def _price(question: Question, table: LayoutTable, progress: Progress | None) -> tuple[Floats, Floats, Floats]:
    """Peak memory, step time and whether it may fit, of every row. Each [N]"""
    view = distinct_stages(table.splits)
    peaks, steps, fits = [], [], []
    for number, piece in enumerate(table.chunks(CHUNK)):
        used = memory(question, piece, view)
        peaks.append(used.peak)
        fits.append(used.may_fit)
        seconds = np.full(len(piece), np.inf)
        inside = np.flatnonzero(used.may_fit)
        if len(inside):
            seconds[inside] = step_time(question, piece.rows(inside), view).step
        steps.append(seconds)
        if progress is not None:
            progress(min((number + 1) * CHUNK, len(table)), len(table))
    return np.concatenate(peaks), np.concatenate(steps), np.concatenate(fits)


def rank(table: LayoutTable, step: Floats, peak: Floats, usable: float) -> tuple[Ints, int]:
    """Order by step time; layouts tied with the fastest by what is easier to run.

    Layouts expected over the card come after all that are expected inside it. Among ties those with
    headroom come first, then fewer moving parts, then time.
    """
    tie = load_json("meshwright.planner", "space.json")["tie"]["value"]
    over = peak > usable
    best = step[~over].min() if not over.all() else step.min()
    tied = (step <= best * (1 + tie)) & (over == over.all())
    parts = sum((axis > 1).astype(int) for axis in (table.tp, table.pp, table.vpp, table.cp, table.etp))
    recomputes = table.flag([e.recompute.granularity != "none" for e in table.executions]).astype(int)
    tight = (peak > 0.95 * usable).astype(int)
    order = np.lexsort((step, np.where(tied, parts + recomputes, 0), np.where(tied, tight, 0), ~tied, over))
    return order, int(tied.sum())


def _nothing_fits(
    question: Question, axes: Axes, legal: LayoutTable, peak: Floats, searched: int, reasons: dict[str, int]
) -> Found:
    """The legal layout that needs least memory (none at all where nothing is legal)."""
    smallest = np.argsort(peak)[:1]
    wanted = executions(question, axes)[-1:]
    table = with_executions(question, axes, legal.rows(smallest), wanted) if len(legal) else legal
    step = np.full(len(table), np.inf)
    if len(table):
        step = step_time(question, table, distinct_stages(table.splits)).step
    return Found(
        table=table, step=step, peak=peak[smallest], ties=0, searched=searched, scored=0,
        valid=len(legal), fitting=0, reasons=reasons,
    )  # fmt: skip
