"""How long one training step of a pipeline takes, without keeping its passes.

The order of the passes depends on the shape of the schedule alone, so that it is laid out once for all the
costs that share it; the arithmetic is that of `schedule.simulate`, pass by pass: equal to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.cost.schedule import PipelineCosts

Program = tuple[tuple[int, int, int], ...]
"""Passes of one stage in order: (the pass it waits for or -1, its own number, which time it takes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A schedule without its costs.

    size  passes of all stages together
    """

    programs: tuple[Program, ...]
    size: int


@lru_cache(maxsize=64)
def shape(stages: int, chunks: int, micro: int, group: int, combined: bool) -> Shape:
    """The passes of every stage. A time is numbered kind (0 forward, 1 backward), then alone, then chunk."""
    from meshwright.cost.schedule import passes_of_stage

    places = stages * chunks
    half = micro * places
    programs = []
    for stage in range(stages):
        passes, warm = passes_of_stage(stage, stages, chunks, micro, group, combined=combined)
        cool = len(passes) - warm
        program = []
        for index, (kind, number, chunk) in enumerate(passes):
            place = chunk * stages + stage
            alone = chunks if index < warm or index >= cool else 0
            own = number * places + place
            if kind == "forward":
                program.append((own - 1 if place else -1, own, alone + chunk))
            else:
                needs = half + own + 1 if place < places - 1 else own
                program.append((needs, half + own, 2 * chunks + alone + chunk))
        programs.append(tuple(program))
    return Shape(programs=tuple(programs), size=2 * half)


def step_length(costs: PipelineCosts, micro: int, group: int, *, combined: bool = False) -> float | None:
    """Seconds of a step of `micro` micro-batches; None where the order can never finish."""
    stages, chunks = costs.stages, costs.chunks
    if chunks > 1 and stages > 1 and group < stages:
        return None
    plan = shape(stages, chunks, micro, group, combined)
    tables = [_times(costs, stage) for stage in range(stages)]
    there = [-1.0] * plan.size  # when what a pass sends has arrived; -1: not yet run
    clock, position = [0.0] * stages, [0] * stages
    left = plan.size
    while left:
        before = left
        for stage, program in enumerate(plan.programs):
            seconds, message, wait = tables[stage]
            now, index, most = clock[stage], position[stage], len(program)
            start = index
            while index < most:
                needs, own, which = program[index]
                if needs >= 0:
                    ready = there[needs]
                    if ready < 0.0:
                        break
                    if ready > now:
                        now = ready
                now += seconds[which]
                there[own] = now + message[which]
                now += wait[which]
                index += 1
            clock[stage], position[stage] = now, index
            left -= index - start
        if left == before:
            return None
    return max(clock)


def _times(costs: PipelineCosts, stage: int) -> tuple[list[float], list[float], list[float]]:
    """Of each numbered time of a stage: seconds, seconds of the message it sends, and the wait for that."""
    chunks, last = costs.chunks, costs.stages * costs.chunks - 1
    seconds: list[float] = []
    for table in (costs.forward, costs.alone_forward, costs.backward, costs.alone_backward):
        seconds += table[stage].tolist()
    sends = [float(chunk * costs.stages + stage < last) for chunk in range(chunks)] * 2
    sends += [float(chunk * costs.stages + stage > 0) for chunk in range(chunks)] * 2
    message = [costs.message if one else 0.0 for one in sends]
    return seconds, message, [costs.blocking * one for one in message]
