"""The search: enumerate, keep the legal, price, keep what fits, rank, mark ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import distinct_stages
from meshwright.cost.steptime import step_time
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.rules import legal_mask
from meshwright.layout.table import Floats, Ints, LayoutTable
from meshwright.planner.space import Axes, executions, geometries, with_executions

Progress = Callable[[int, int], None]
"""Called with (done, all) as pieces of the table are priced."""

WEIGHT = {"none": 0, "selective": 1, "full": 100}
"""Order of recompute granularities, lightest first; modules of selective recompute add up."""

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


def search(
    question: Question, axes: Axes, progress: Progress | None = None, practice: Sequence[Layout] = ()
) -> Found:
    """Every layout of the space, priced and ranked; `practice` are layouts that people ship for this model."""
    everything = geometries(question, axes)
    mask, reasons = legal_mask(question.model, question.cluster, question.job, everything, question.stack)
    legal = everything.rows(np.flatnonzero(mask))
    wanted = executions(question, axes)
    space = (
        len(with_executions(question, axes, everything, wanted))
        if axes.flags
        else len(everything) * len(wanted)
    )
    floor, lightest = _memory_floor(question, axes, legal, wanted)
    possible = legal.rows(np.flatnonzero(floor <= question.cluster.gpu.usable_memory))
    if not len(possible):
        return _nothing_fits(question, axes, legal, floor, lightest, space, dict(reasons))
    table = with_executions(question, axes, possible, wanted)
    legal_flags, flag_reasons = legal_mask(
        question.model, question.cluster, question.job, table, question.stack
    )
    table = table.rows(np.flatnonzero(legal_flags))
    reasons = {**reasons, **flag_reasons}
    peak, step, fits = _price(question, table, progress)
    keep = np.flatnonzero(fits)
    if not len(keep):
        return _nothing_fits(question, axes, legal, floor, lightest, space, dict(reasons))
    order, ties = rank(table.rows(keep), step[keep], peak[keep], question.cluster.gpu.usable_memory, practice)
    best = keep[order]
    return Found(
        table=table.rows(best),
        step=step[best],
        peak=peak[best],
        ties=ties,
        searched=space,
        scored=len(table),
        valid=len(table) + (len(legal) - len(possible)) * len(wanted),
        fitting=len(keep),
        reasons=dict(reasons),
    )


def _memory_floor(
    question: Question, axes: Axes, legal: LayoutTable, wanted: tuple[Execution, ...]
) -> tuple[Floats, tuple[Execution, ...]]:
    """Low end of the band of the least memory that any execution leaves a layout with [N, bytes].

    The executions that can need least: the heaviest recompute of those wanted, with each set of the
    other flags. No lighter recompute needs less, so what is over the card here is over it everywhere.
    """
    heaviest = max((e.recompute for e in wanted), key=lambda r: WEIGHT[r.granularity] + len(r.modules))
    lightest = tuple(dict.fromkeys(replace(e, recompute=heaviest) for e in wanted))
    floor = np.full(len(legal), np.inf)
    for one in lightest:
        table = with_executions(question, replace(axes, flags={}), legal, (one,))
        view = distinct_stages(table.splits)
        pieces = [memory(question, piece, view) for piece in table.chunks(CHUNK)]
        low = np.concatenate([p.peak * (1 - p.band) for p in pieces]) if pieces else np.zeros(0)
        floor = np.minimum(floor, low)
    return floor, lightest


def _price(
    question: Question, table: LayoutTable, progress: Progress | None
) -> tuple[Floats, Floats, Floats]:
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


def rank(
    table: LayoutTable, step: Floats, peak: Floats, usable: float, practice: Sequence[Layout] = ()
) -> tuple[Ints, int]:
    """Order by step time; layouts tied with the fastest by what people would rather run.

    Layouts expected over the card come after all that are expected inside it. A tied layout is marked
    down by its distance in time (1 at the edge of the tie), by moving parts, by distance from published
    practice and by a nearly full card; the weights are in data/space.json.
    """
    form = load_json("meshwright.planner", "space.json")["tie"]
    over = peak > usable
    best = step[~over].min() if not over.all() else step.min()
    tied = (step <= best * (1 + form["value"])) & (over == over.all())
    slower = (step / best - 1) / form["value"]
    parts = sum((axis > 1).astype(float) for axis in (table.tp, table.pp, table.vpp, table.cp, table.etp))
    parts = parts + table.flag([e.recompute.granularity != "none" for e in table.executions]).astype(float)
    parts = parts + table.flag([e.fsdp for e in table.executions]).astype(float)
    tight = (peak > form["tight"] * usable).astype(float)
    mark = slower + form["part"] * parts + form["practice"] * from_practice(table, practice) + tight
    order = np.lexsort((step, np.where(tied, mark, 0.0), ~tied, over))
    return order, int(tied.sum())


def from_practice(table: LayoutTable, practice: Sequence[Layout]) -> Floats:
    """Doublings between each layout and the nearest one that people ship, at most 4; 0 where there is none. [N]"""
    nearest = np.full(len(table), 4.0 if practice else 0.0)
    for known in practice:
        apart = sum(
            np.abs(np.log2(getattr(table, name) / getattr(known, name)))
            for name in ("tp", "pp", "vpp", "cp", "ep")
        )
        nearest = np.minimum(nearest, apart)
    return nearest


def _nothing_fits(
    question: Question, axes: Axes, legal: LayoutTable, floor: Floats, lightest: tuple[Execution, ...],
    searched: int, reasons: dict[str, int],
) -> Found:  # fmt: skip
    """The legal layout that needs least memory (none at all where nothing is legal)."""
    table, step, peak = legal, np.zeros(0), np.zeros(0)
    if len(legal):
        smallest = np.argsort(floor, kind="stable")[:1]
        table = with_executions(question, replace(axes, flags={}), legal.rows(smallest), lightest)
        view = distinct_stages(table.splits)
        peaks = memory(question, table, view).peak
        least = np.argsort(peaks, kind="stable")[:1]
        table, peak = table.rows(least), peaks[least]
        step = step_time(question, table, view).step
    return Found(
        table=table, step=step, peak=peak, ties=0, searched=searched, scored=0,
        valid=len(legal), fitting=0, reasons=reasons,
    )  # fmt: skip


def nothing(table: LayoutTable) -> Found:
    """A search that found nothing; `table` has no rows."""
    return Found(
        table=table, step=np.zeros(0), peak=np.zeros(0), ties=0, searched=0, scored=0, valid=0, fitting=0
    )
