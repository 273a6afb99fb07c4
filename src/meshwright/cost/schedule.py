"""One training step of a pipeline as events: every forward and backward pass of every stage, in order.

Megatron Core's schedules: 1F1B, interleaved 1F1B, and 1F1B whose expert exchange runs beside the compute
of another micro-batch. A stage runs its passes in a fixed order; a pass waits for the one before it on
the same stage and for the message it needs. Long steps are cut to a few rounds of the pipeline and the
steady state is extrapolated.

Source: megatron/core/pipeline_parallel/schedules.py (get_pp_rank_microbatches, get_schedule_table).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from meshwright.cost.schedule_length import step_length
from meshwright.errors import QuestionError
from meshwright.layout.table import Floats

Kind = Literal["forward", "backward"]
ROUNDS = 4
"""Micro-batches simulated, in multiples of pp, before the steady state is extrapolated."""


class Pass(NamedTuple):
    """One pass of one micro-batch through one chunk of a stage."""

    kind: Kind
    micro: int
    chunk: int


class Slot(NamedTuple):
    """A pass with its place and its time [s]."""

    stage: int
    kind: Kind
    micro: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCosts:
    """Seconds of a pipeline's passes.

    forward, backward  [S, C] one micro-batch through each chunk of each stage, in the steady state
    alone_forward, alone_backward  [S, C] the same where nothing runs beside it (fill and drain); equal to
                       the others but with overlapped expert exchange
    message   seconds until what one stage sends is there
    blocking  share of a message for which the sending stage waits
    """

    forward: Floats
    backward: Floats
    alone_forward: Floats
    alone_backward: Floats
    message: float = 0.0
    blocking: float = 0.0

    @property
    def stages(self) -> int:
        return len(self.forward)

    @property
    def chunks(self) -> int:
        return int(self.forward.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All passes of one step; `seconds` is when the last one ends."""

    slots: tuple[Slot, ...]
    seconds: float

    def busy(self, stage: int) -> float:
        """Seconds that a stage computes."""
        return sum(slot.end - slot.start for slot in self.slots if slot.stage == stage)


def plain_costs(
    forward: Floats, backward: Floats, message: float = 0.0, blocking: float = 0.0
) -> PipelineCosts:
    """Costs without overlapped expert exchange; [S] for one chunk a stage, or [S, C]."""
    f, b = (np.asarray(x, dtype=float).reshape(len(x), -1) for x in (forward, backward))
    return PipelineCosts(
        forward=f, backward=b, alone_forward=f, alone_backward=b, message=message, blocking=blocking
    )


def passes_of_stage(
    stage: int, stages: int, chunks: int, micro: int, group: int, *, combined: bool = False
) -> tuple[list[Pass], int]:
    """The passes of one stage in the order they run, and how many of them fill the pipeline.

    group     micro-batches that pass a chunk before the next chunk's turn (pp unless said otherwise)
    combined  expert exchange runs beside compute: one more forward pass before the first backward
    """
    order = schedule_table(micro, chunks, group)
    if chunks > 1:
        warm = (stages - stage - 1) * 2 + (chunks - 1) * group + combined
    else:
        warm = stages - stage - 1 + combined
    warm = min(warm, len(order))
    forward = [Pass("forward", m, c) for m, c in order]
    backward = [Pass("backward", m, chunks - 1 - c) for m, c in order]
    steady = [one for pair in zip(forward[warm:], backward, strict=False) for one in pair]
    return forward[:warm] + steady + backward[len(order) - warm :], warm


def schedule_table(micro: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """(micro-batch, chunk) in the order of the forward passes: groups of micro-batches, chunk after chunk.

    >>> schedule_table(3, 2, 2)
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    table: list[tuple[int, int]] = []
    for first in range(0, micro, group):
        last = micro if first + group >= micro else first + group
        table += [(m, c) for c in range(chunks) for m in range(first, last)]
    return table


def simulate(
    costs: PipelineCosts, micro: int, *, group: int | None = None, combined: bool = False
) -> Timeline:
    """Every pass of a step of `micro` micro-batches.

    QuestionError where the order can never finish (a group smaller than the pipeline).
    """
    stages, chunks = costs.stages, costs.chunks
    group = group or stages
    if chunks > 1 and stages > 1 and group < stages:
        raise QuestionError(
            f"groups of {group} micro-batches cannot fill {stages} stages; use at least {stages}"
        )
    programs = [passes_of_stage(s, stages, chunks, micro, group, combined=combined) for s in range(stages)]
    done: dict[tuple[str, int, int], float] = {}  # (kind, micro, position in the whole model) -> end
    clock, position = [0.0] * stages, [0] * stages
    slots: list[Slot] = []
    left = sum(len(program) for program, _ in programs)
    while left:
        before = left
        for stage, (program, warm) in enumerate(programs):
            left -= _advance(costs, stage, program, warm, clock, position, done, slots)
        if left == before:
            raise QuestionError(f"{micro} micro-batches in groups of {group} never finish on {stages} stages")
    return Timeline(slots=tuple(slots), seconds=max(clock))


def _advance(
    costs: PipelineCosts,
    stage: int,
    program: list[Pass],
    warm: int,
    clock: list[float],
    position: list[int],
    done: dict[tuple[str, int, int], float],
    slots: list[Slot],
) -> int:
    """Run the passes of one stage for as long as what they need is there; how many ran."""
    stages, chunks = costs.stages, costs.chunks
    last, total = stages * chunks - 1, len(program)
    wait = costs.blocking * costs.message
    ran = 0
    for index in range(position[stage], total):
        kind, micro, chunk = program[index]
        place = chunk * stages + stage
        if kind == "forward":
            needs = ("forward", micro, place - 1) if place else None
        else:
            needs = ("backward", micro, place + 1) if place < last else ("forward", micro, place)
        ready = 0.0
        if needs is not None:
            found = done.get(needs)
            if found is None:
                break
            ready = found + (costs.message if needs[2] != place else 0.0)
        alone = index < warm or index >= total - warm
        seconds = _seconds(costs, kind, stage, chunk, alone)
        start = max(clock[stage], ready)
        sends = place < last if kind == "forward" else place > 0
        end = start + seconds
        done[kind, micro, place] = end
        slots.append(Slot(stage, kind, micro, chunk, start, end))
        clock[stage] = end + (wait if sends else 0.0)
        ran += 1
    position[stage] += ran
    return ran


def _seconds(costs: PipelineCosts, kind: Kind, stage: int, chunk: int, alone: bool) -> float:
    if kind == "forward":
        table = costs.alone_forward if alone else costs.forward
    else:
        table = costs.alone_backward if alone else costs.backward
    return float(table[stage, chunk])


def pipeline_seconds(
    costs: PipelineCosts, micro: int, *, group: int | None = None, combined: bool = False
) -> float:
    """Seconds of the passes of a step; beyond a few rounds the steady state is extrapolated."""
    group = group or costs.stages
    most = ROUNDS * max(costs.stages, group)
    if micro <= most + group:
        return _length(costs, micro, group, combined)
    rest = micro % group
    long = _length(costs, most + rest, group, combined)
    short = _length(costs, most + rest - group, group, combined)
    return long + (micro - most - rest) / group * (long - short)


def _length(costs: PipelineCosts, micro: int, group: int, combined: bool) -> float:
    """What `simulate` ends at; it says why where the passes never finish."""
    seconds = step_length(costs, micro, group, combined=combined)
    return simulate(costs, micro, group=group, combined=combined).seconds if seconds is None else seconds


def chrome_trace(timeline: Timeline, names: Sequence[str] = ()) -> dict[str, object]:
    """The timeline in the Trace Event format that Chrome and Perfetto open; times in microseconds.

    names  one a stage; "stage 0", ... where absent
    """
    events: list[dict[str, object]] = [
        {
            "ph": "M", "pid": 0, "tid": stage, "name": "thread_name",
            "args": {"name": names[stage] if stage < len(names) else f"stage {stage}"},
        }
        for stage in sorted({slot.stage for slot in timeline.slots})
    ]  # fmt: skip
    events += [
        {
            "ph": "X", "pid": 0, "tid": slot.stage, "name": f"{slot.kind[0].upper()}{slot.micro}",
            "cat": slot.kind, "ts": slot.start * 1e6, "dur": (slot.end - slot.start) * 1e6,
            "args": {"micro_batch": slot.micro, "chunk": slot.chunk},
        }
        for slot in timeline.slots
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}
