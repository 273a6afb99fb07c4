"""Algorithms behind the automatic pipeline split."""

from __future__ import annotations

import heapq

import numpy as np

from meshwright.layout.split_problem import ACTIVATION, SECONDS, STATIC, Problem, Split
from meshwright.layout.table import Floats, Ints

TOLERANCE = 1e-9
"""Relative difference below which two loads are equal."""


def equal_layers(problem: Problem) -> Split | None:
    """Optimal split where all layers cost the same: only the number of layers of each rank matters.

    Each layer in turn goes to the rank that is least loaded with it and can hold it; for loads that
    grow by the same step this greedy order is optimal.
    """
    each = problem.plain[:, 1]
    grid = problem.fixed.reshape(3, problem.vpp, problem.pp)
    low = problem.low.reshape(problem.vpp, problem.pp)
    high = problem.high.reshape(problem.vpp, problem.pp)
    bytes_a_layer = each[STATIC] + problem.in_flight.T * each[ACTIVATION]  # [vpp, pp]
    base = (grid[STATIC] + problem.in_flight.T * grid[ACTIVATION] + low * bytes_a_layer).sum(axis=0)
    room = problem.memory * (1 + TOLERANCE) - base  # [pp]
    if (room < 0).any():
        return None
    cheapest = np.where(high > low, bytes_a_layer, np.inf).min(axis=0)
    limited = (cheapest > 0) & np.isfinite(cheapest)
    more = np.full(problem.pp, np.inf)
    np.divide(room, cheapest, out=more, where=limited)
    most = low.sum(axis=0) + np.floor(np.minimum(more, problem.num_layers)).astype(np.int64)

    seconds = grid[SECONDS] / (each[SECONDS] or 1.0)  # in layers
    step = float(each[SECONDS] > 0)
    per_rank = _fill(
        seconds.sum(axis=0) + low.sum(axis=0) * step, low.sum(axis=0), np.minimum(most, high.sum(axis=0)),
        step, problem.num_layers,
    )  # fmt: skip
    if per_rank is None:
        return None
    layers = np.empty((problem.vpp, problem.pp), dtype=np.int64)
    for rank in range(problem.pp):
        layers[:, rank] = _spread(
            int(per_rank[rank]), low[:, rank], high[:, rank], seconds[:, rank], step,
            bytes_a_layer[:, rank], float(room[rank]),
        )  # fmt: skip
    return _proven(problem, layers.reshape(-1))


def one_chunk_a_rank(problem: Problem) -> Split | None:
    """Optimal split for vpp = 1, by dynamic programming over layer boundaries.

    Among the splits with the fastest slowest rank it takes the most even one.
    """
    size = problem.num_layers + 1
    start, stop = np.arange(size)[:, None], np.arange(size)[None, :]
    cost = problem.segment(np.minimum(start, stop), np.broadcast_to(stop, (size, size)))
    load = np.empty((problem.pp, size, size))
    for rank in range(problem.pp):
        chunk = cost + problem.fixed[:, rank, None, None]
        held = chunk[STATIC] + problem.in_flight[rank, 0] * chunk[ACTIVATION]
        illegal = (stop - start < problem.low[rank]) | (stop - start > problem.high[rank])
        illegal |= held > problem.memory[rank] * (1 + TOLERANCE)
        load[rank] = np.where(illegal, np.inf, chunk[SECONDS])
    slowest = np.full(size, np.inf)
    slowest[0] = 0.0
    for rank in range(problem.pp):
        slowest = np.maximum(slowest[:, None], load[rank]).min(axis=0)
    if not np.isfinite(slowest[-1]):
        return None
    return _proven(problem, _most_even(load, float(slowest[-1])))


def _fill(load: Floats, low: Ints, most: Ints, step: float, total: int) -> Ints | None:
    """Layers of each rank: starting at `low`, one more at a time where that gives the least load."""
    count = low.copy()
    heap = [
        (round(float(value) + step, 9), -rank) for rank, value in enumerate(load) if low[rank] < most[rank]
    ]
    heapq.heapify(heap)
    for _ in range(total - int(low.sum())):
        if not heap:
            return None
        value, minus_rank = heapq.heappop(heap)
        count[-minus_rank] += 1
        if count[-minus_rank] < most[-minus_rank]:
            heapq.heappush(heap, (round(value + step, 9), minus_rank))
    return count


def _spread(
    count: int, low: Ints, high: Ints, fixed: Floats, step: float, bytes_each: Floats, room: float
) -> Ints:
    """`count` layers over the chunks of one rank: evenly by time, later chunks first, then as far as
    memory asks for it from chunks with many micro-batches in flight to those with few."""
    chunks = low.copy()
    for _ in range(count - int(low.sum())):
        load = np.where(chunks < high, np.round(fixed + (chunks + 1) * step, 9), np.inf)
        chunks[len(load) - 1 - int(np.argmin(load[::-1]))] += 1
    while ((chunks - low) * bytes_each).sum() > room:
        dearest = int(np.argmax(np.where(chunks > low, bytes_each, -np.inf)))
        cheapest = int(np.argmin(np.where(chunks < high, bytes_each, np.inf)))
        if bytes_each[dearest] <= bytes_each[cheapest]:
            break
        chunks[dearest] -= 1
        chunks[cheapest] += 1
    return chunks


def _most_even(load: Floats, slowest: float) -> Ints:
    """Boundaries with the least sum of squared loads among those where no load exceeds `slowest`."""
    ranks, size, _ = load.shape
    allowed = np.where(load <= slowest * (1 + TOLERANCE), load * load, np.inf)
    total = np.full(size, np.inf)
    total[0] = 0.0
    came_from = np.empty((ranks, size), dtype=np.int64)
    for rank in range(ranks):
        reached = total[:, None] + allowed[rank]
        came_from[rank] = reached.argmin(axis=0)
        total = reached.min(axis=0)
    layers = np.empty(ranks, dtype=np.int64)
    stop = size - 1
    for rank in reversed(range(ranks)):
        start = int(came_from[rank, stop])
        layers[rank] = stop - start
        stop = start
    return layers


def _proven(problem: Problem, layers: Ints) -> Split:
    slowest = float(problem.rank_costs(layers)[0].max())
    return Split(layers=tuple(int(count) for count in layers), slowest=slowest, bound=slowest)
