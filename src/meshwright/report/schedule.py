"""The simulated passes of a step, as pictures, traces and terminals draw them."""

from __future__ import annotations

from meshwright.cost import schedule
from meshwright.report.passes import Pass, Tail, Timeline

MOST_PASSES = 6000
"""Passes that are laid out; of longer steps only some micro-batches are."""


def microbatches_drawn(pp: int, vpp: int, micro: int, group: int) -> int:
    """Micro-batches that stay readable: all of few, else enough to fill and drain the pipeline twice.

    >>> microbatches_drawn(4, 1, 6, 4), microbatches_drawn(4, 1, 512, 4), microbatches_drawn(4, 2, 512, 4)
    (6, 16, 8)
    """
    readable = max(2 * pp, 16) if vpp == 1 else 2 * max(pp, group)
    most = max(MOST_PASSES // (2 * pp * vpp), 1)
    wanted = min(micro, readable, max(most, pp))
    return wanted if vpp == 1 else max(wanted // group * group, min(group, micro))


def lay_out(
    costs: schedule.PipelineCosts, micro: int, drawn: int, *, group: int | None = None,
    combined: bool = False, scale: float = 1.0, busy: float = 0.0, tail: tuple[Tail, ...] = (),
) -> Timeline:  # fmt: skip
    """The timeline of a step, from the simulation that prices it.

    costs, group, combined  as `cost.schedule.simulate` takes them
    micro, drawn  micro-batches of the step, and those that are laid out
    scale         what every second is multiplied by (the calibration's overall factor)
    busy          share of every pass that is exposed communication
    """
    simulated = schedule.simulate(costs, drawn, group=group, combined=combined)
    passes = tuple(
        Pass(
            rank=slot.stage, chunk=slot.chunk, microbatch=slot.micro, backward=slot.kind == "backward",
            start=slot.start * scale, end=slot.end * scale, busy=busy,
        )
        for slot in simulated.slots
    )  # fmt: skip
    return Timeline(
        pp=costs.stages, vpp=costs.chunks, num_microbatches=micro, drawn=drawn, passes=passes, tail=tail
    )
