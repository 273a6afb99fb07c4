"""The search: enumerate, keep the legal, bound, price, keep what fits, rank, mark ties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import MemoryTable
from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.rules import legal_mask
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable
from meshwright.planner.flags import FULL, Candidate, combinations_of, differs, is_lighter, recompute_sets
from meshwright.planner.guide.rows import sequence_rows
from meshwright.planner.pricing import Piece, Pricer
from meshwright.planner.ranking import Known, rank
from meshwright.planner.space import Axes, Geometries, geometries
from meshwright.planner.values import table as space_table

Progress = Callable[[int, int], None]
"""Called with (done, all) as pieces of the space are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found: the scored layouts, best first.

    table      layouts that may fit, best first; where none does, the one that needs least memory
    step       [N] seconds; peak [N] bytes
    ties       how many of the first are told apart only by what breaks ties
    searched   scored + excluded by a proven bound: every legal layout of the space
    scored     layouts whose memory was priced, and their time where they may fit
    valid      legal for the engine
    fitting    scored layouts that may fit
    reasons    why layouts were refused: {rule: how many}
    excluded   {bound: how many}: memory (state and least activations are over the card), time (slower
               than `keep` times the fastest even without recompute), recompute (slower than the same
               layout with less recompute, which fits with room)
    partial    the search was interrupted: what it had found until then
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
    excluded: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False


@dataclass(slots=True)
class _Tally:
    """What a running search has found so far."""

    keep: float
    usable: float
    best: float = np.inf
    done: int = 0
    scored: int = 0
    legal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    executions: list[Execution] = field(default_factory=list)
    pieces: list[tuple[Ints, int, Floats, Floats]] = field(default_factory=list)
    least: list[tuple[float, int, Execution]] = field(default_factory=list)
    """(bytes, row, execution): the rows that need least memory, for when nothing fits."""

    def add(self, rows: Ints, execution: Execution, step: Floats, peak: Floats) -> None:
        """Take rows that may fit."""
        if not self.executions or self.executions[-1] != execution:
            self.executions.append(execution)
        self.pieces.append((rows, len(self.executions) - 1, step, peak))
        inside = step[peak <= self.usable]
        self.best = min(self.best, inside.min(initial=np.inf))

    def remember_least(self, rows: Ints, execution: Execution, size: Floats) -> None:
        """Keep the row that needs least memory of a piece."""
        if len(rows):
            first = int(size.argmin())
            self.least.append((float(size[first]), int(rows[first]), execution))


def search(
    question: Question, axes: Axes, progress: Progress | None = None, practice: Sequence[Known] = (),
    *, keep: float | None = None,
) -> Found:  # fmt: skip
    """Every layout of the space, priced and ranked.

    practice  layouts that people ship for this model, for ties
    keep      layouts proven slower than this many times the fastest are not scored; `inf` scores all
    """
    space = geometries(question, axes)
    pricer = Pricer(question, space)
    sets = recompute_sets(question.model, axes)
    flags = combinations_of(axes)
    tally = _Tally(
        keep=space_table()["keep"]["value"] if keep is None else keep,
        usable=question.cluster.gpu.usable_memory,
    )
    whole = len(space) * len(flags) * len(sets)

    def step(rows: int) -> None:
        tally.done += rows
        if progress is not None:
            progress(min(tally.done, whole), whole)

    partial = False
    try:
        for one in flags:
            _search_flags(question, axes, pricer, one, sets, tally, step)
    except KeyboardInterrupt:
        if not tally.pieces:
            raise
        partial = True
    return _ranked(question, pricer, tally, practice, partial=partial)


def _search_flags(
    question: Question, axes: Axes, pricer: Pricer, flags: Candidate, sets: Sequence[Recompute],
    tally: _Tally, step: Callable[[int], None],
) -> None:  # fmt: skip
    """Every geometry under one combination of flags and each recompute set."""
    space = pricer.space
    candidates = [replace(flags.execution, recompute=recompute) for recompute in sets]
    worth = differs(flags, axes, space.table)
    legal = [_legal(question, space, one, worth, tally) for one in candidates]
    reach = np.any(legal, axis=0)
    tally.legal += int(np.sum(legal))
    if len(sets) > 1:
        possible = _within_memory(pricer, reach, replace(flags.execution, recompute=FULL), tally)
        tally.excluded["memory"] += int(np.sum([mask & ~possible for mask in legal]))
        reach &= possible
    bounds = Bounds(keep=tally.keep, times=np.zeros(len(space)), roomy={})
    for number, (one, mask) in enumerate(zip(candidates, legal, strict=True)):
        if number == 0 and len(sets) > 1 and one.recompute.granularity == "none":
            for piece in pricer.pieces(np.flatnonzero(reach), one):
                _score_as_bound(piece, one, mask, bounds, tally)
        else:
            rows = bounds.left(np.flatnonzero(reach & mask), one.recompute, tally)
            for piece in pricer.pieces(rows, one):
                _score(piece, one, bounds, tally)
        step(len(space))


def _legal(question: Question, space: Geometries, execution: Execution, worth: Bools, tally: _Tally) -> Bools:
    """Rows worth trying that can start with these flags. [G]"""
    table = replace(space.table, executions=(execution,))
    worth = worth.copy()
    recompute = execution.recompute
    if recompute.method == "block" and recompute.num_layers is not None and len(space):
        deepest = np.array([max(p.layers_per_chunk) for p in space.pipelines])
        worth &= deepest[space.pipeline] > recompute.num_layers
    rows = np.flatnonzero(worth)
    if not len(rows):
        return worth
    mask, reasons = legal_mask(
        question.model, question.cluster, question.job, table.rows(rows), question.stack
    )
    tally.refused.update(reasons)
    worth[rows] = mask
    return worth


def _within_memory(pricer: Pricer, reach: Bools, lightest: Execution, tally: _Tally) -> Bools:
    """Rows whose state and least activations may fit; no recompute set keeps less than full recompute. [G]"""
    possible = np.zeros(len(reach), dtype=bool)
    for piece in pricer.pieces(np.flatnonzero(reach), lightest):
        size = piece.floor()
        possible[piece.rows] = size <= tally.usable
        tally.remember_least(piece.rows, lightest, size)
    return possible


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is proven of the rows of a space under one combination of flags.

    times   [G] seconds without recompute, which no recompute set undercuts (0 where unknown)
    roomy   {recompute set: [G] rows that surely fit with it and leave room}
    """

    keep: float
    times: Floats
    roomy: dict[Recompute, Bools]

    def left(self, rows: Ints, recompute: Recompute, tally: _Tally) -> Ints:
        """The rows that no bound excludes; the others are counted."""
        if np.isinf(self.keep):
            return rows
        slow = self.times[rows] > self.keep * tally.best
        tally.excluded["time"] += int(slow.sum())
        rows = rows[~slow]
        settled = np.zeros(len(rows), dtype=bool)
        for lighter, roomy in self.roomy.items():
            if is_lighter(lighter, recompute):
                settled |= roomy[rows]
        tally.excluded["recompute"] += int(settled.sum())
        return rows[~settled]

    def learn(self, piece: Piece, used: MemoryTable, recompute: Recompute, usable: float) -> None:
        """Note which rows of a piece surely fit with room."""
        room = space_table()["tie"]["tight"] * usable
        roomy = self.roomy.setdefault(recompute, np.zeros(len(self.times), dtype=bool))
        roomy[piece.rows] = (used.peak * (1 + used.band) <= usable) & (used.peak <= room)


def _score(piece: Piece, execution: Execution, bounds: Bounds, tally: _Tally) -> None:
    """Memory of the rows, and step time of those that may fit."""
    used = piece.memory()
    peak, inside = used.peak, np.flatnonzero(used.may_fit)
    bounds.learn(piece, used, execution.recompute, tally.usable)
    tally.scored += len(piece.rows)
    tally.remember_least(piece.rows, execution, peak)
    if len(inside):
        tally.add(piece.rows[inside], execution, piece.seconds(inside), peak[inside])


def _score_as_bound(piece: Piece, execution: Execution, legal: Bools, bounds: Bounds, tally: _Tally) -> None:
    """Score rows without recompute; their times bound those of every recompute set from below."""
    used, seconds = piece.memory(), piece.seconds()
    bounds.times[piece.rows] = seconds
    mine = legal[piece.rows]
    bounds.learn(piece, used, execution.recompute, tally.usable)
    bounds.roomy[execution.recompute][piece.rows] &= mine
    tally.scored += int(mine.sum())
    inside = np.flatnonzero(used.may_fit & mine)
    if len(inside):
        tally.add(piece.rows[inside], execution, seconds[inside], used.peak[inside])


def _ranked(
    question: Question, pricer: Pricer, tally: _Tally, practice: Sequence[Known], *, partial: bool
) -> Found:
    """The tally as an answer."""
    rows, codes, step, peak = _joined(tally)
    ties = 0
    if len(rows):
        table = pricer.together(rows, codes, tuple(tally.executions))
        usual = usual_cp(question.job.seq_length)
        order, ties = rank(table, step, peak, tally.usable, practice, usual_cp=usual)
        table, step, peak = table.rows(order), step[order], peak[order]
    else:
        table, step, peak = _least_memory(pricer, tally)
    return Found(
        table=table, step=step, peak=peak, ties=ties,
        searched=tally.scored + sum(tally.excluded.values()), scored=tally.scored, valid=tally.legal,
        fitting=len(rows), reasons=dict(tally.refused), excluded=dict(tally.excluded), partial=partial,
    )  # fmt: skip


def _joined(tally: _Tally) -> tuple[Ints, Ints, Floats, Floats]:
    if not tally.pieces:
        nothing_here = np.zeros(0, dtype=np.int64)
        return nothing_here, nothing_here, np.zeros(0), np.zeros(0)
    rows, codes, step, peak = zip(*tally.pieces, strict=True)
    spread = [np.full(len(r), code, dtype=np.int64) for r, code in zip(rows, codes, strict=True)]
    return np.concatenate(rows), np.concatenate(spread), np.concatenate(step), np.concatenate(peak)


def _least_memory(pricer: Pricer, tally: _Tally) -> tuple[LayoutTable, Floats, Floats]:
    """The legal layout that needs least memory, priced (none at all where nothing is legal)."""
    smallest = sorted(tally.least, key=lambda entry: entry[:2])[:8]
    best: tuple[float, Piece] | None = None
    for _, row, execution in smallest:
        for piece in pricer.pieces(np.array([row]), execution):
            peak = float(piece.memory().peak[0])
            if best is None or peak < best[0]:
                best = peak, piece
    if best is None:
        empty = np.zeros(0, dtype=np.int64)
        return pricer.together(empty, empty, (Execution(),)), np.zeros(0), np.zeros(0)
    return best[1].table, best[1].seconds(), np.array([best[0]])


def usual_cp(seq_length: int) -> int:
    """The most context parallelism that the guide's sequence table names for a length."""
    return max(int(row["cp"][1]) for row in sequence_rows(seq_length))


def nothing(table: LayoutTable) -> Found:
    """A search that found nothing; `table` has no rows."""
    return Found(
        table=table, step=np.zeros(0), peak=np.zeros(0), ties=0, searched=0, scored=0, valid=0, fitting=0
    )
