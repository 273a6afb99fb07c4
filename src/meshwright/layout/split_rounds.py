"""Improving a split two rounds at a time.

Round v is chunk v of every rank: pp chunks that follow each other. With all other rounds held, the
boundaries of two rounds are re-drawn together, rank by rank, by dynamic programming over how far each
boundary moves: within that reach nothing better is missed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from meshwright.layout.split_problem import ACTIVATION, SECONDS, STATIC, Problem
from meshwright.layout.table import Floats, Ints

REACH = 3
"""Layers by which a boundary moves in one step, at most."""
EVENNESS = 1e-6
"""Weight of the squared loads beside the time above the limit."""
TOO_MANY_BYTES = 1e3
"""Weight of memory above the limit beside time above the limit, both relative."""


def within_limit(problem: Problem, layers: Ints, limit: float) -> Ints:
    """The split after moving boundaries as long as load above `limit` (or memory above its own) shrinks."""
    value = _excess(problem, layers, limit)
    pairs = list(combinations(range(problem.vpp), 2))
    unchanged, turn = 0, 0
    while unchanged < len(pairs):
        moved = _redrawn(problem, layers, *pairs[turn % len(pairs)], limit)
        turn += 1
        after = _excess(problem, moved, limit)
        if after < value * (1 - 1e-9):
            layers, value, unchanged = moved, after, 0
        else:
            unchanged += 1
    return layers


def _excess(problem: Problem, layers: Ints, limit: float) -> float:
    load, held = problem.rank_costs(layers)
    return float(_price(problem, load, held, limit, problem.memory).sum())


def _price(problem: Problem, load: Floats, held: Floats, limit: float, memory: Floats) -> Floats:
    over = np.maximum(load / limit - (1 + 1e-9), 0.0) + EVENNESS * (load / limit) ** 2
    if np.isinf(problem.memory).all():
        return np.asarray(over)
    return np.asarray(over + TOO_MANY_BYTES * np.maximum(held / memory - (1 + 1e-9), 0.0))


def _redrawn(problem: Problem, layers: Ints, one: int, other: int, limit: float) -> Ints:
    """The best boundaries of rounds `one` < `other`, the rest held."""
    pp, width = problem.pp, 2 * REACH + 1
    begin = np.concatenate([[0], np.cumsum(layers)])  # boundary of every chunk, [n + 1]
    load, held = problem.rank_costs(layers)
    first, second = (_moved(problem, begin, number) for number in (one, other))  # [2, pp, width, width]
    rest = np.stack([load, held]) - first[:, :, REACH, REACH] - second[:, :, REACH, REACH]
    together = (
        rest[:, :, None, None, None, None] + first[:, :, :, None, :, None] + second[:, :, None, :, None, :]
    ).reshape(2, pp, width * width, width * width)  # [.., from, to]
    memory = problem.memory[:, None, None]
    price = _price(problem, together[0], together[1], limit, memory)

    still = REACH * width + REACH
    joined = np.arange(width) if other == one + 1 else np.array([REACH])
    value = np.full((len(joined), width * width), np.inf)  # where the second round begins, state
    value[np.arange(len(joined)), REACH * width + joined] = 0.0
    came_from = np.empty((pp, len(joined), width * width), dtype=np.int64)
    for rank in range(pp):
        reached = value[:, :, None] + price[rank]
        came_from[rank] = reached.argmin(axis=1)
        value = reached.min(axis=1)
    ends = joined * width + REACH if other == one + 1 else np.array([still])
    final = value[np.arange(len(joined)), ends]
    chosen = int(final.argmin())
    if not np.isfinite(final[chosen]):
        return layers
    moved = begin.copy()
    state = int(ends[chosen])
    for rank in reversed(range(pp)):
        moved[one * pp + rank + 1] += state // width - REACH
        if not (other == problem.vpp - 1 and rank == pp - 1):
            moved[other * pp + rank + 1] += state % width - REACH
        state = int(came_from[rank, chosen, state])
    return np.diff(moved)


def _moved(problem: Problem, begin: Ints, number: int) -> Floats:
    """Seconds and bytes of each chunk of a round when its start and stop move; [2, pp, width, width]."""
    pp, layers = problem.pp, problem.num_layers
    shift = np.arange(-REACH, REACH + 1)
    chunk = number * pp + np.arange(pp)
    start = (begin[chunk][:, None] + shift)[:, :, None]
    stop = (begin[chunk + 1][:, None] + shift)[:, None, :]
    size = stop - start
    legal = (start >= 0) & (stop <= layers)
    legal &= (size >= problem.low[chunk][:, None, None]) & (size <= problem.high[chunk][:, None, None])
    safe_start, safe_stop = np.broadcast_arrays(np.clip(start, 0, layers), np.clip(stop, 0, layers))
    each = problem.segment(np.minimum(safe_start, safe_stop), safe_stop)
    flight = problem.in_flight[:, number][:, None, None]
    costs = np.stack([each[SECONDS], each[STATIC] + flight * each[ACTIVATION]])
    return np.where(legal, costs, np.inf)
