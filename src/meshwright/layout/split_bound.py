"""Lower bounds for the automatic split with several chunks a rank.

The bound forgets that chunks must join end to end, and keeps the rest: each chunk is some run of
layers that lies where that chunk can lie, and all ranks together hold every kind of layer as often as
the model has it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.split_problem import SECONDS, Problem
from meshwright.layout.table import Floats, Ints

TOLERANCE = 1e-9
MOST_COSTS = 3
"""Different layer times that are told apart; more are lowered to the nearest that is kept."""
MOST_STATES = 200_000


def average_bound(problem: Problem) -> float:
    """No split is faster than the mean load, or than the rank with the dearest fixed blocks."""
    fixed = fixed_seconds(problem)
    return float(max((layer_seconds(problem).sum() + fixed.sum()) / problem.pp, fixed.max()))


def layer_seconds(problem: Problem) -> Floats:
    """Least time of each decoder layer, wherever it sits, [layers]."""
    plain: Floats = np.diff(problem.plain[SECONDS])
    twin: Floats = np.diff(problem.recomputed[SECONDS])
    least: Floats = plain if problem.head_start == 0 else np.minimum(plain, twin)
    return least


def fixed_seconds(problem: Problem) -> Floats:
    """Time of embedding, MTP and head on each rank, [pp]."""
    summed: Floats = problem.fixed[SECONDS].reshape(problem.vpp, problem.pp).sum(axis=0)
    return summed


def composition_bound(problem: Problem, slowest: float) -> float:
    """Least load of the slowest rank over all ways to deal out runs of layers; at most `slowest`."""
    times, kind = _few_costs(layer_seconds(problem))
    total = np.bincount(kind, minlength=len(times))  # [costs]
    low = average_bound(problem)
    if int(np.prod(total + 1)) > MOST_STATES or slowest <= low * (1 + TOLERANCE):
        return low
    options = _rank_options(problem, kind, total)
    fixed = fixed_seconds(problem)
    loads = [fixed[rank] + option @ times for rank, option in enumerate(options)]
    limits = np.unique(np.round(np.concatenate(loads), 12))
    limits = limits[(limits > low * (1 + TOLERANCE)) & (limits < slowest * (1 - TOLERANCE))]
    needed = float(total @ times + fixed.sum())
    first, last = 0, len(limits)  # limits[:first] are impossible; limits[last:] are not known to be
    while first < last:
        middle = (first + last) // 2
        if _deals_out(float(limits[middle]), options, loads, total, needed):
            last = middle
        else:
            first = middle + 1
    return max(low, float(limits[first])) if first < len(limits) else slowest


def _few_costs(seconds: Floats) -> tuple[Floats, Ints]:
    """At most `MOST_COSTS` times, ascending, and each layer's index into them; times are never raised."""
    scale = float(seconds.max()) or 1.0
    times, kind = np.unique(np.round(seconds / scale, 9), return_inverse=True)
    while len(times) > MOST_COSTS:
        nearest = int(np.argmin(np.diff(times))) + 1
        times = np.delete(times, nearest)
        kind = np.where(kind >= nearest, kind - 1, kind)
    return times * scale, kind.reshape(-1)


def _rank_options(problem: Problem, kind: Ints, total: Ints) -> list[Ints]:
    """For each rank, all it can hold: counts of each cost, [options, costs]."""
    passed = np.zeros((len(kind) + 1, len(total)), dtype=np.int64)
    passed[np.arange(1, len(kind) + 1), kind] = 1
    passed = np.cumsum(passed, axis=0)
    radix = np.concatenate([[1], np.cumprod(problem.vpp * total[:-1] + 1)])  # sums never carry
    chunk_codes = _chunk_codes(problem, passed @ radix)
    found = []
    for rank in range(problem.pp):
        codes = np.zeros(1, dtype=np.int64)
        for chunk in chunk_codes[rank :: problem.pp]:
            codes = np.unique(np.add.outer(codes, chunk))
        counts = codes[:, None] // radix % (problem.vpp * total + 1)
        found.append(counts[(counts <= total).all(axis=1)])
    return found


def _chunk_codes(problem: Problem, passed: Ints) -> list[Ints]:
    """For each chunk, the codes of all runs of layers it can be."""
    low, high, layers = problem.low, problem.high, problem.num_layers
    before_low, before_high = np.cumsum(low) - low, np.cumsum(high) - high
    after_low, after_high = low.sum() - before_low, high.sum() - before_high
    found: list[Ints] = []
    seen: dict[tuple[int, int, int, int], Ints] = {}
    for chunk in range(len(low)):
        first = max(int(before_low[chunk]), layers - int(after_high[chunk]))
        last = min(int(before_high[chunk]), layers - int(after_low[chunk]))
        key = (first, last, int(low[chunk]), int(high[chunk]))
        if key not in seen:
            start = np.arange(first, last + 1)[:, None]
            stop = start + np.arange(low[chunk], high[chunk] + 1)[None, :]
            legal = stop <= layers
            codes = passed[np.minimum(stop, layers)] - passed[np.broadcast_to(start, stop.shape)]
            seen[key] = np.unique(codes[legal])
        found.append(seen[key])
    return found


def _deals_out(limit: float, options: list[Ints], loads: list[Floats], total: Ints, needed: float) -> bool:
    """Ranks can take all layers with no load above `limit`."""
    least = needed - (len(options) - 1) * limit  # the others cannot take more than that
    reached: NDArray[np.bool_] = np.zeros(tuple(total + 1), dtype=np.bool_)
    reached[(0,) * len(total)] = True
    for option, load in zip(options, loads, strict=True):
        fits = (load <= limit * (1 + TOLERANCE)) & (load >= least - limit * TOLERANCE)
        after = np.zeros_like(reached)
        for counts in option[fits]:
            taken = tuple(slice(int(count), None) for count in counts)
            left = tuple(slice(0, int(most - count) + 1) for most, count in zip(total, counts, strict=True))
            after[taken] |= reached[left]
        reached = after
    return bool(reached[tuple(total)])
