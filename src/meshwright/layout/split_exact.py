"""Exact search for the automatic split with several chunks a rank, where few states suffice.

Ranks are filled one after another; a state says where each round has come to. Layer costs repeat
sooner or later in real models (a few dense layers, then one kind; or a repeating pattern), so a place
is known well enough by its class: its number inside the beginning, its phase inside the repeating part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.layout.split_bound import layer_seconds
from meshwright.layout.split_problem import SECONDS, Problem
from meshwright.layout.table import Bools, Floats, Ints

TOLERANCE = 1e-9
FEW_STATES = 6_000
MANY_STATES = 40_000
"""States above which the exact search gives up: after some 20 ms, or a second or two."""


class TooManyStatesError(Exception):
    """The exact search would take too long."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Classes of places in a sequence of layers, and what follows from each.

    cost  [classes, sizes]  seconds of the next so many layers
    next  [classes, sizes]  class of the place behind them
    """

    beginning: int
    period: int
    cost: Floats
    next: Ints

    def of(self, place: Ints) -> Ints:
        repeating = self.beginning + (place - self.beginning) % self.period
        return np.where(place < self.beginning, place, repeating)


@dataclass(frozen=True, slots=True)
class _Step:
    """What one chunk added: for each kept state, the state before and the size of the chunk."""

    parent: Ints
    size: Ints


def split_below(problem: Problem, limit: float, most_states: int = FEW_STATES) -> Ints | None:
    """A split with no rank above `limit`, or None where there is none; memory is not looked at.

    TooManyStatesError where the search is too large, or costs depend on a layer's place in its chunk.
    """
    if problem.head_start:
        raise TooManyStatesError
    seconds = layer_seconds(problem)
    places = _classes(seconds, int(problem.high.max()))
    begins = _begins(problem, places, most_states)
    fixed = problem.fixed[SECONDS].reshape(problem.vpp, problem.pp)
    needed = float(seconds.sum() + fixed.sum())
    slack = limit * TOLERANCE

    at = begins.copy()  # [states, vpp] class of the place each round has come to
    total = np.zeros(len(at), dtype=np.int64)
    passed = np.zeros(len(at))
    steps: list[_Step] = []
    for rank in range(problem.pp):
        before = passed.copy()  # load of the ranks that are done
        for number in range(problem.vpp):
            chunk = number * problem.pp + rank
            sizes = np.arange(problem.low[chunk], problem.high[chunk] + 1)
            spent = passed[:, None] + places.cost[at[:, number]][:, sizes] + fixed[number, rank]
            legal = (spent - before[:, None] <= limit + slack) & _reachable(
                problem, chunk, total[:, None] + sizes
            )
            if number == problem.vpp - 1:
                legal &= spent >= needed - (problem.pp - 1 - rank) * limit - slack * problem.pp
            after = places.next[at[:, number]][:, sizes]
            goal = begins[:, number + 1] if number + 1 < problem.vpp else np.full(len(at), problem.num_layers)
            legal &= _round_closes(problem, places, rank, number, after, goal)
            parent, column = np.nonzero(legal)
            if not len(parent):
                return None
            size, passed, before = sizes[column], spent[parent, column], before[parent]
            begins, at, total = begins[parent], at[parent], total[parent] + size
            at[:, number] = places.next[at[:, number], size]
            kept = _distinct(np.column_stack([begins, at, total]), before)
            if len(kept) > most_states:
                raise TooManyStatesError
            steps.append(_Step(parent[kept], size[kept]))
            begins, at, total, passed, before = (
                begins[kept],
                at[kept],
                total[kept],
                passed[kept],
                before[kept],
            )
    closed = (at[:, :-1] == begins[:, 1:]).all(axis=1) & (total == problem.num_layers)
    return _traced(problem, steps, closed)


def _classes(seconds: Floats, longest: int) -> _Places:
    """The shortest description of a sequence as a beginning and a part that repeats."""
    rounded = np.round(seconds / (seconds.max() or 1.0), 9)
    layers = len(rounded)
    best = (layers, 1)
    for period in range(1, layers):
        differ = np.flatnonzero(rounded[period:] != rounded[:-period])
        beginning = int(differ[-1]) + 1 if len(differ) else 0
        if beginning + period < sum(best):
            best = (beginning, period)
    beginning, period = best
    count = beginning + period
    place = np.arange(count + longest)
    wrapped = np.where(place < beginning, place, beginning + (place - beginning) % period)
    following = np.append(seconds, 0.0)[wrapped]
    ahead = np.arange(count)[:, None] + np.arange(longest + 1)[None, :]
    running = np.concatenate([[0.0], np.cumsum(following)])
    return _Places(
        beginning, period, running[ahead] - running[np.arange(count)][:, None], wrapped_to(ahead, best)
    )


def wrapped_to(place: Ints, description: tuple[int, int]) -> Ints:
    """Class of each place."""
    beginning, period = description
    return np.where(place < beginning, place, beginning + (place - beginning) % period)


def _begins(problem: Problem, places: _Places, most_states: int) -> Ints:
    """Every choice of classes where the rounds may begin, [choices, vpp]; the first begins at 0."""
    low = problem.low.reshape(problem.vpp, problem.pp).sum(axis=1)
    high = problem.high.reshape(problem.vpp, problem.pp).sum(axis=1)
    begins = places.of(np.zeros((1, 1), dtype=np.int64))
    for number in range(1, problem.vpp):
        first = max(int(low[:number].sum()), problem.num_layers - int(high[number:].sum()))
        last = min(int(high[:number].sum()), problem.num_layers - int(low[number:].sum()))
        classes = np.unique(places.of(np.arange(first, last + 1)))
        length = classes[None, :] - begins[:, -1:]
        # inside the beginning a class is a place: the round between must be of a legal length
        known = (classes[None, :] < places.beginning) & (begins[:, -1:] < places.beginning)
        legal = ~known | ((length >= low[number - 1]) & (length <= high[number - 1]))
        row, column = np.nonzero(legal)
        if len(row) > most_states:
            raise TooManyStatesError
        begins = np.column_stack([begins[row], classes[column]])
    return begins


def _reachable(problem: Problem, chunk: int, total: Ints) -> Bools:
    """The layers left can still be held by the chunks that are filled after `chunk`."""
    grid = np.arange(problem.pp * problem.vpp).reshape(problem.vpp, problem.pp).T.reshape(-1)
    later = grid[int(np.flatnonzero(grid == chunk)[0]) + 1 :]
    left = problem.num_layers - total
    return np.asarray((left >= problem.low[later].sum()) & (left <= problem.high[later].sum()))


def _round_closes(
    problem: Problem, places: _Places, rank: int, number: int, after: Ints, goal: Ints
) -> Bools:
    """The ranks that follow can bring round `number` from `after` to `goal`, as far as places are known."""
    later = np.arange(number * problem.pp + rank + 1, (number + 1) * problem.pp)
    left = goal[:, None] - after
    last_round = number == problem.vpp - 1
    known = (after < places.beginning) & (last_round | (goal[:, None] < places.beginning))
    fits = (left >= problem.low[later].sum()) & (left <= problem.high[later].sum())
    return np.asarray(~known | fits)


def _distinct(states: Ints, before: Floats) -> Ints:
    """One index for each distinct state: the one whose current rank has the least load so far."""
    code = np.zeros(len(states), dtype=np.int64)
    span = states.max(axis=0).astype(object) + 1
    if np.prod(span) >= 2**62:
        raise TooManyStatesError
    for column in range(states.shape[1]):
        code = code * int(span[column]) + states[:, column]
    order: Ints = np.lexsort((-before, code))
    ordered = code[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    kept: Ints = order[first]
    return kept


def _traced(problem: Problem, steps: list[_Step], closed: Bools) -> Ints | None:
    """Sizes of all chunks of one closed state, in the order of the chunks."""
    found = np.flatnonzero(closed)
    if not len(found):
        return None
    state = int(found[0])
    layers = np.empty(problem.pp * problem.vpp, dtype=np.int64)
    for index in reversed(range(len(steps))):
        rank, number = divmod(index, problem.vpp)
        layers[number * problem.pp + rank] = steps[index].size[state]
        state = int(steps[index].parent[state])
    return layers
