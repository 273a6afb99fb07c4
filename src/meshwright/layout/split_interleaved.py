"""The automatic split for several chunks a rank and layers that cost differently.

A rank's load is the sum of chunks from all over the depth, so boundaries cannot be fixed one after
another. Rounds of chunks are improved two at a time; then an exact search either finds a better split
or proves that there is none; where that would take too long, a lower bound says how much may be lost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.layout.split_bound import average_bound, composition_bound, layer_seconds
from meshwright.layout.split_exact import FEW_STATES, MANY_STATES, TooManyStatesError, split_below
from meshwright.layout.split_problem import SECONDS, Problem, Split
from meshwright.layout.split_rounds import within_limit
from meshwright.layout.table import Ints

TOLERANCE = 1e-9
GOOD_ENOUGH = 5e-4
"""Gap below which nothing more is tried."""
WORTH_MORE_TIME = 0.01
"""Gap above which more starts are tried, then the exact search with more states."""
SHAKES = 16


def interleaved(problem: Problem) -> Split | None:
    """The best split found and a lower bound for it; None where none was found that fits."""
    problem = _near_even(problem)
    if problem.low.sum() > problem.num_layers or problem.high.sum() < problem.num_layers:
        return None
    bound = average_bound(problem)
    best = _improved(problem, _by_time(problem), bound)
    best, bound, proven = _exact(problem, best, bound, FEW_STATES)
    if not proven:
        bound = max(bound, composition_bound(problem, _slowest(problem, best)))
        best = _shaken(problem, _improved(problem, best, bound), bound)
    if not proven and _slowest(problem, best) > bound * (1 + WORTH_MORE_TIME):
        best, bound, _ = _exact(problem, best, bound, MANY_STATES)
    if not _fits(problem, best):
        return None
    slowest = _slowest(problem, best)
    return Split(layers=tuple(int(count) for count in best), slowest=slowest, bound=min(bound, slowest))


def _near_even(problem: Problem) -> Problem:
    """The problem with chunks between half and twice an equal share of layers.

    Wider spreads could even out the ranks a little more, but ranks wait for each other chunk by chunk.
    """
    share = problem.num_layers / (problem.pp * problem.vpp)
    low = np.maximum(problem.low, int(np.ceil(share / 2)))
    longest = float(layer_seconds(problem).max())
    for end in (0, -1):
        if problem.fixed[SECONDS, end] > longest * share / 2:
            low[end] = problem.low[end]
    high = np.full_like(low, max(2, int(np.ceil(2 * share))))
    if low.sum() > problem.num_layers:
        low = problem.low
    return replace(problem, low=low, high=np.minimum(problem.high, high))


def _by_time(problem: Problem) -> Ints:
    """Boundaries where the running time crosses equal shares, within the legal sizes of chunks."""
    chunks = problem.pp * problem.vpp
    passed = np.concatenate([[0.0], np.cumsum(layer_seconds(problem))])
    fixed = np.cumsum(problem.fixed[SECONDS])
    total = passed[-1] + fixed[-1]
    wanted = total * np.arange(1, chunks) / chunks - fixed[:-1]
    stop = np.abs(passed[None, :] - wanted[:, None]).argmin(axis=1)
    low, high = np.cumsum(problem.low), np.cumsum(problem.high)
    least = np.maximum(low, problem.num_layers - (high[-1] - high))
    most = np.minimum(high, problem.num_layers - (low[-1] - low))
    stops = [0]
    for k in range(chunks - 1):
        lowest = max(stops[-1] + problem.low[k], least[k])
        highest = min(stops[-1] + problem.high[k], most[k])
        stops.append(int(min(max(stop[k], lowest), highest)))
    return np.diff(np.array([*stops, problem.num_layers]))


def _improved(problem: Problem, layers: Ints, bound: float) -> Ints:
    """The best of improving towards the bound, towards half-way, and towards anything better."""
    best = layers
    for part in (0.0, 0.5, 1.0 - 1e-6):
        slowest = _slowest(problem, best)
        if slowest <= bound * (1 + GOOD_ENOUGH) and _fits(problem, best):
            break
        tried = within_limit(problem, best, bound + part * (slowest - bound))
        if _fits(problem, tried) >= _fits(problem, best) and (
            not _fits(problem, best) or _slowest(problem, tried) < slowest
        ):
            best = tried
    return best


def _shaken(problem: Problem, best: Ints, bound: float) -> Ints:
    """Start again from random neighbours of the best, as long as it is not near the bound.

    The numbers drawn are always the same, so that a question has one answer.
    """
    dice = np.random.default_rng(0)
    for attempt in range(SHAKES):
        slowest = _slowest(problem, best)
        if slowest <= bound * (1 + WORTH_MORE_TIME):
            break
        layers = best.copy()
        for giver in dice.integers(len(best), size=len(best) // 4):
            taker = giver + 1 if giver == 0 or (giver + 1 < len(best) and dice.random() < 0.5) else giver - 1
            if layers[giver] > problem.low[giver] and layers[taker] < problem.high[taker]:
                layers[giver] -= 1
                layers[taker] += 1
        tried = within_limit(problem, layers, bound if attempt % 2 else slowest * (1 - 1e-6))
        if _fits(problem, tried) and _slowest(problem, tried) < slowest:
            best = tried
    return best


def _exact(problem: Problem, best: Ints, bound: float, most_states: int) -> tuple[Ints, float, bool]:
    """The optimal split, its load as the bound, and True; what was known and False where that is too much.

    A better split that does not fit into memory gives only the bound.
    """
    slowest = _slowest(problem, best)
    while slowest > bound * (1 + GOOD_ENOUGH):
        far = slowest > bound * (1 + WORTH_MORE_TIME)
        limit = (slowest + bound) / 2 if far else slowest * (1 - 1e-6)
        try:
            better = split_below(problem, limit, most_states)
        except TooManyStatesError:
            return best, bound, False
        if better is None:
            bound = limit if far else slowest
        else:
            slowest = _slowest(problem, better)
            best = better if _fits(problem, better) else best
    return best, bound, True


def _slowest(problem: Problem, layers: Ints) -> float:
    return float(problem.rank_costs(layers)[0].max())


def _fits(problem: Problem, layers: Ints) -> bool:
    return bool((problem.rank_costs(layers)[1] <= problem.memory * (1 + TOLERANCE)).all())
