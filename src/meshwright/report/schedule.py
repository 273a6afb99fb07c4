"""Passes laid out in time: each as early as its rank and the pass before it allow."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.report.passes import Pass, Tail, Timeline

MOST_PASSES = 6000
"""Passes that are laid out; of longer steps only some micro-batches are."""

Step = tuple[bool, int, int]
"""(forward, chunk, micro-batch)"""


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
    orders: Sequence[Sequence[Step]], forward: Sequence[Sequence[float]], backward: Sequence[Sequence[float]],
    micro: int, drawn: int, *, message: float = 0.0, busy: float = 0.0, tail: tuple[Tail, ...] = (),
) -> Timeline:  # fmt: skip
    """The timeline of a step whose ranks run their passes in the given orders.

    orders             passes of each rank, in order
    forward, backward  [pp][vpp] seconds of one micro-batch through each chunk of each rank
    micro, drawn       micro-batches of the step, and of `orders`
    message            seconds of a message between stages
    busy               share of every pass that is exposed communication
    """
    pp, vpp = len(forward), len(forward[0])
    ends: dict[tuple[int, Step], float] = {}
    at, clock = [0] * pp, [0.0] * pp
    passes: list[Pass] = []
    moved = True
    while moved:
        moved = False
        for rank in range(pp):
            while at[rank] < len(orders[rank]):
                step = orders[rank][at[rank]]
                ready = _ready(ends, rank, step, pp, vpp, message)
                if ready is None:
                    break
                start = max(clock[rank], ready)
                clock[rank] = ends[rank, step] = start + (forward if step[0] else backward)[rank][step[1]]
                passes.append(
                    Pass(rank=rank, chunk=step[1], microbatch=step[2], backward=not step[0], start=start,
                         end=clock[rank], busy=busy)
                )  # fmt: skip
                at[rank] += 1
                moved = True
    return Timeline(pp=pp, vpp=vpp, num_microbatches=micro, drawn=drawn, passes=tuple(passes), tail=tail)


def _ready(
    ends: dict[tuple[int, Step], float], rank: int, step: Step, pp: int, vpp: int, message: float
) -> float | None:
    """When the input of a pass is there; None where the pass it comes from has not run."""
    ahead, chunk, micro = step
    stage = chunk * pp + rank
    if not ahead and stage == pp * vpp - 1:
        return ends.get((rank, (True, chunk, micro)))
    if ahead and stage == 0:
        return 0.0
    before = stage - 1 if ahead else stage + 1
    end = ends.get((before % pp, (ahead, before // pp, micro)))
    return None if end is None else end + (message if pp > 1 else 0.0)
