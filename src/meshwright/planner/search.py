"""The search: enumerate, keep the legal, bound, price, keep what fits, rank, mark ties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import MemoryTable
from meshwright.cost.question import Question
from meshwright.job.spec import Execution
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable
from meshwright.planner.flags import FULL, Candidate, Saving, combinations_of, savings_of
from meshwright.planner.guide.rows import sequence_rows
from meshwright.planner.lawful import Lawful, lawful
from meshwright.planner.least_time import least_seconds
from meshwright.planner.pricing import Piece, Pricer
from meshwright.planner.ranking import Known, rank
from meshwright.planner.space import Axes, geometries
from meshwright.planner.values import table as space_table

TOGETHER = 16
"""Combinations of flags that are searched together: the cost of a call is shared, memory stays small. With
more of them than this the fastest under the base flags is found first, so that few are priced."""
ROWS_TOGETHER = 2**19
"""Rows up to which more combinations are searched together."""

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
               than `keep` times the fastest even without recompute), saving (slower than the same layout
               with less recompute or offload, which fits with room)
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
    pieces: list[tuple[Ints, Ints, Floats, Floats]] = field(default_factory=list)
    """(geometry, index into executions, seconds, bytes) of the rows that may fit."""
    least: list[tuple[float, int, Execution]] = field(default_factory=list)
    """(bytes, geometry, execution): the rows that need least memory, for when nothing fits."""

    def add(self, piece: Piece, inside: Ints, step: Floats, peak: Floats, size: int) -> None:
        """Take the rows of a piece that may fit; `size` is that of the space."""
        first = len(self.executions)
        if self.executions[-len(piece.table.executions) :] == list(piece.table.executions):
            first -= len(piece.table.executions)
        else:
            self.executions += piece.table.executions
        code = first + piece.table.execution[inside]
        self.pieces.append((piece.rows[inside] % size, code, step, peak))
        self.best = min(self.best, step[peak <= self.usable].min(initial=np.inf))

    def remember_least(self, piece: Piece, bytes_: Floats, size: int) -> None:
        """Keep the row that needs least memory of a piece."""
        if len(piece.rows):
            row = int(bytes_.argmin())
            execution = piece.table.executions[int(piece.table.execution[row])]
            self.least.append((float(bytes_[row]), int(piece.rows[row]) % size, execution))


def search(
    question: Question, axes: Axes, progress: Progress | None = None, practice: Sequence[Known] = (),
    *, keep: float | None = None, within: float = np.inf,
) -> Found:  # fmt: skip
    """Every layout of the space, priced and ranked.

    practice  layouts that people ship for this model, for ties
    keep      layouts proven slower than this many times the fastest are not scored; `inf` scores all
    within    nor are those proven slower than this [s], whatever is the fastest
    """
    space = geometries(question, axes)
    savings = savings_of(question.model, axes)
    flags = combinations_of(axes)
    law = lawful(question, axes, space, flags, savings)
    pricer = Pricer(question, space)
    tally = _Tally(
        keep=space_table()["keep"]["value"] if keep is None else keep,
        usable=question.cluster.gpu.usable_memory,
    )
    tally.legal, tally.refused = law.count(), Counter(law.refused())
    partial = False
    try:
        if np.isfinite(tally.keep) and (len(flags) > TOGETHER or np.isfinite(within)):
            base = _first_best(question, axes) if len(flags) > TOGETHER else np.inf
            tally.best = min(base, within / tally.keep)
            quick = _quick(pricer, law, flags, tally)
            tally.excluded["time"] += law.rows(np.flatnonzero(~quick)).count()
            kept = np.flatnonzero(quick)
            law, pricer = law.rows(kept), Pricer(question, space.rows(kept))
        possible = law.possible()
        together = max(TOGETHER, ROWS_TOGETHER // max(len(pricer.space), 1))
        whole = len(pricer.space) * len(possible) * len(savings)

        def step(combinations: int) -> None:
            tally.done += len(pricer.space) * combinations
            if progress is not None:
                progress(tally.done, whole)

        for start in range(0, len(possible), together):
            batch = _Batch.of(law, flags, savings, possible[start : start + together])
            _search_flags(pricer, batch, tally, step)
    except KeyboardInterrupt:
        if not tally.pieces:
            raise
        partial = True
    return _ranked(question, pricer, tally, practice, partial=partial)


def _first_best(question: Question, axes: Axes) -> float:
    """The fastest layout under the base flags alone: what all others are held against."""
    found = search(question, replace(axes, flags={}))
    inside = found.peak <= question.cluster.gpu.usable_memory
    return float(found.step[inside].min(initial=np.inf)) if found.fitting else np.inf


def _quick(pricer: Pricer, law: Lawful, flags: Sequence[Candidate], tally: _Tally) -> Bools:
    """Geometries that some flags may bring near the fastest. [G]"""
    if np.isinf(tally.best):
        return np.ones(len(pricer.space), dtype=bool)
    least = least_seconds(pricer, [flags[number].execution for number in law.possible().tolist()])
    return np.asarray(least <= tally.keep * tally.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Some combinations of flags that are searched together, with every saving.

    Rows are numbered as in `Pricer.pieces`: G geometries under F combinations are F*G rows.

    executions  one tuple a saving; legal  [F*G] one mask a saving
    """

    flags: tuple[Execution, ...]
    savings: Sequence[Saving]
    executions: list[tuple[Execution, ...]]
    legal: list[Bools]

    @classmethod
    def of(cls, law: Lawful, flags: Sequence[Candidate], savings: Sequence[Saving], some: Ints) -> _Batch:
        own = tuple(flags[number].execution for number in some.tolist())
        return cls(
            flags=own, savings=savings,
            executions=[tuple(saving.applied(one) for one in own) for saving in savings],
            legal=[law.mask(some, number) for number in range(len(savings))],
        )  # fmt: skip

    def exclude(self, rows: Ints, why: str, tally: _Tally) -> None:
        """Count rows that a bound excludes under every saving."""
        tally.excluded[why] += int(np.sum([mask[rows].sum() for mask in self.legal]))


def _search_flags(pricer: Pricer, batch: _Batch, tally: _Tally, step: Callable[[int], None]) -> None:
    """Every geometry under some combinations of flags and each saving."""
    savings, size = batch.savings, len(pricer.space)
    reach = np.any(batch.legal, axis=0)
    bounds = Bounds(keep=tally.keep, times=np.zeros(len(reach)), roomy={})
    bounded = len(savings) > 1 and savings[0].recompute.granularity == "none"
    known = bounded and np.isfinite(tally.best)
    if known:  # something fits: times first, since few are near the fastest
        for piece in pricer.pieces(np.flatnonzero(reach), batch.executions[0]):
            bounds.times[piece.rows] = piece.seconds()
        slow = np.flatnonzero(reach & (bounds.times > tally.keep * tally.best))
        batch.exclude(slow, "time", tally)
        reach[slow] = False
    if len(savings) > 1:
        least = Saving(recompute=FULL, offload=savings[-1].offload)
        lightest = tuple(least.applied(one) for one in batch.flags)
        possible = _within_memory(pricer, reach, lightest, tally)
        _remember_over(pricer, reach & ~possible, batch, tally)
        batch.exclude(np.flatnonzero(reach & ~possible), "memory", tally)
        reach &= possible
    for number, (executions, mask, saving) in enumerate(
        zip(batch.executions, batch.legal, savings, strict=True)
    ):
        if number == 0 and bounded and not known:
            for piece in pricer.pieces(np.flatnonzero(reach), executions):
                _score_as_bound(piece, mask, bounds, tally, size)
        else:
            rows = bounds.left(np.flatnonzero(reach & mask), saving, tally)
            for piece in pricer.pieces(rows, executions):
                _score(piece, bounds, tally, size)
        step(len(batch.flags))


def _within_memory(pricer: Pricer, reach: Bools, lightest: tuple[Execution, ...], tally: _Tally) -> Bools:
    """Rows whose state and least activations may fit; no recompute set keeps less than full. [F*G]"""
    possible = np.zeros(len(reach), dtype=bool)
    for piece in pricer.pieces(np.flatnonzero(reach), lightest):
        possible[piece.rows] = piece.floor() <= tally.usable
    return possible


def _remember_over(pricer: Pricer, over: Bools, batch: _Batch, tally: _Tally) -> None:
    """Remember which row needs least, each with the heaviest saving that is legal there."""
    if tally.pieces:  # something fits: nobody will ask
        return
    left = over.copy()
    for executions, mask in zip(reversed(batch.executions), reversed(batch.legal), strict=True):
        for piece in pricer.pieces(np.flatnonzero(left & mask), executions):
            tally.remember_least(piece, piece.floor(), len(pricer.space))
        left &= ~mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is proven of the rows of a space under some combinations of flags.

    times   [F*G] seconds without any saving, which no saving undercuts (0 where unknown)
    roomy   {saving: [F*G] rows that surely fit with it and leave room}
    """

    keep: float
    times: Floats
    roomy: dict[Saving, Bools]

    def left(self, rows: Ints, saving: Saving, tally: _Tally) -> Ints:
        """The rows that no bound excludes; the others are counted."""
        if np.isinf(self.keep):
            return rows
        slow = self.times[rows] > self.keep * tally.best
        tally.excluded["time"] += int(slow.sum())
        rows = rows[~slow]
        settled = np.zeros(len(rows), dtype=bool)
        for lighter, roomy in self.roomy.items():
            if lighter.is_lighter(saving):
                settled |= roomy[rows]
        tally.excluded["saving"] += int(settled.sum())
        return rows[~settled]

    def learn(self, piece: Piece, used: MemoryTable, usable: float) -> None:
        """Note which rows of a piece surely fit with room."""
        saving = Saving.of(piece.table.executions[0])
        room = space_table()["tie"]["tight"] * usable
        roomy = self.roomy.setdefault(saving, np.zeros(len(self.times), dtype=bool))
        roomy[piece.rows] = used.surely_fits & (used.peak <= room)


def _score(piece: Piece, bounds: Bounds, tally: _Tally, size: int) -> None:
    """Memory of the rows, and step time of those that may fit."""
    used = piece.memory()
    peak, inside = used.peak, np.flatnonzero(used.may_fit)
    bounds.learn(piece, used, tally.usable)
    tally.scored += len(piece.rows)
    tally.remember_least(piece, peak, size)
    if len(inside):
        tally.add(piece, inside, piece.seconds(inside), peak[inside], size)


def _score_as_bound(piece: Piece, legal: Bools, bounds: Bounds, tally: _Tally, size: int) -> None:
    """Score rows without any saving; their times bound those of every saving from below."""
    used, seconds = piece.memory(), piece.seconds()
    bounds.times[piece.rows] = seconds
    mine = legal[piece.rows]
    bounds.learn(piece, used, tally.usable)
    bounds.roomy[Saving.of(piece.table.executions[0])][piece.rows] &= mine
    tally.scored += int(mine.sum())
    inside = np.flatnonzero(used.may_fit & mine)
    if len(inside):
        tally.add(piece, inside, seconds[inside], used.peak[inside], size)


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
    rows, codes, step, peak = (np.concatenate(parts) for parts in zip(*tally.pieces, strict=True))
    return rows, codes, step, peak


def _least_memory(pricer: Pricer, tally: _Tally) -> tuple[LayoutTable, Floats, Floats]:
    """The legal layout that needs least memory, priced (none at all where nothing is legal)."""
    smallest = sorted(tally.least, key=lambda entry: entry[:2])[:8]
    best: tuple[float, Piece] | None = None
    for _, row, execution in smallest:
        for piece in pricer.pieces(np.array([row]), (execution,)):
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
