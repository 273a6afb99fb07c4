"""The passes of one training step, as pictures, traces and terminals draw them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro-batch going forward or backward through one model chunk of one pipeline rank.

    start, end  [s] since the step began
    busy        share of the pass that is communication that nothing hides [0..1]
    """

    rank: int
    chunk: int
    microbatch: int
    backward: bool
    start: float
    end: float
    busy: float = 0.0

    @property
    def words(self) -> str:
        return f"{'backward' if self.backward else 'forward'} of micro-batch {self.microbatch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What every rank does once, after its passes: gradient reduction, the optimizer. [s]"""

    words: str
    communication: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step of a pipeline.

    num_microbatches  micro-batches of the step
    drawn             those that `passes` hold: where there are very many, fewer are laid out
    """

    pp: int
    vpp: int
    num_microbatches: int
    drawn: int
    passes: tuple[Pass, ...]
    tail: tuple[Tail, ...] = ()

    @property
    def end(self) -> float:
        """When the last pass ends. [s]"""
        return max(one.end for one in self.passes)

    @property
    def whole(self) -> float:
        """When the step ends, for the micro-batches drawn. [s]"""
        return self.end + sum(tail.seconds for tail in self.tail)

    def of_rank(self, rank: int) -> tuple[Pass, ...]:
        return tuple(one for one in self.passes if one.rank == rank)

    @property
    def idle(self) -> float:
        """Share of the ranks' time until the last pass that no pass fills. [0..1]"""
        return 1.0 - sum(one.end - one.start for one in self.passes) / (self.end * self.pp)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """What a rank of one stage holds over the step: (second, bytes), a straight line between points."""

    stage: int
    points: tuple[tuple[float, float], ...]
