"""What a person wants most: the order of layouts on some GPUs, and the choice among numbers of GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from meshwright.cost.question import Question
from meshwright.cost.simulation import simulated_step
from meshwright.job.spec import one_of
from meshwright.layout.table import Floats, Ints
from meshwright.planner.search import Found
from meshwright.planner.values import table

if TYPE_CHECKING:
    from meshwright.planner.sweep import Point

Objective = Literal["throughput", "memory", "cost", "fewest-gpus", "tokens-per-dollar"]
"""throughput: most tokens a second; memory: least on the fullest GPU; cost: least for the tokens, failures
and spares included; tokens-per-dollar: most while it works; fewest-gpus: the smallest number that fits."""

MEMORY_TIE = 0.01
"""Peaks nearer than this are told apart by step time."""


def read_objective(text: str) -> Objective:
    """The objective of that name, or a QuestionError that lists what is known."""
    return cast("Objective", one_of("objective", text, get_args(Objective)))


def keep_for(objective: Objective) -> float | None:
    """`keep` of a search for an objective: bounds on time say nothing about the least memory."""
    return math.inf if objective == "memory" else None


def ordered(found: Found, objective: Objective) -> Found:
    """The found layouts in the order of an objective.

    On given GPUs money and GPU hours follow step time, so only `memory` changes the order.
    """
    if objective != "memory" or not found.fitting:
        return found
    least = found.peak.min()
    near = found.peak <= least * (1 + MEMORY_TIE)
    order = np.lexsort((found.step, np.where(near, 0.0, found.peak), ~near))
    return replace(
        found, table=found.table.rows(order), step=found.step[order], peak=found.peak[order],
        ties=int(near.sum()),
    )  # fmt: skip


def front(*costs: Floats) -> Ints:
    """Rows that no other row beats in every cost (all are better small), by the first cost.

    Of rows that are equal in every cost the first stays.

    >>> front(np.array([1.0, 2.0, 3.0]), np.array([9.0, 9.0, 4.0])).tolist()
    [0, 2]
    """
    table_of = np.stack([np.asarray(cost, dtype=float) for cost in costs], axis=1)
    order = np.lexsort(tuple(table_of.T[::-1]))
    if len(costs) == 2:  # after the first cost, only a new least of the second is not beaten
        second = table_of[order, 1]
        new = np.diff(np.minimum.accumulate(second), prepend=np.inf) < 0
        new[:1] = True
        return np.asarray(order[new], dtype=np.int64)
    kept: list[int] = []
    best = np.empty((0, table_of.shape[1]))
    for row in order.tolist():
        if not len(best) or not np.all(best <= table_of[row], axis=1).any():
            kept.append(row)
            best = np.vstack([best, table_of[row]])
    return np.array(kept, dtype=np.int64)


def time_and_memory(found: Found) -> Ints:
    """Rows of the front of step time against memory; the search must have scored all (`keep` inf)."""
    return front(found.step, found.peak) if found.fitting else np.zeros(0, dtype=np.int64)


FRONT_SLOWEST = 3.0
"""How many times the fastest a layout may take and still be told as one that saves memory."""

FRONT_STEP = 0.1
"""A layout of the front is told beside a faster one where it takes at least this share less memory."""


def front_told(found: Found, question: Question) -> tuple[dict[str, object], ...]:
    """The front of the layouts a search priced, thinned and simulated: JSON values, fastest first.

    Only layouts expected inside the card, each at least a tenth smaller than the one before. Layouts that a
    bound excluded (slower than `keep` allows, or saving memory where nothing is short of it) are not among
    them: `--objective memory` searches those too.
    """
    rows = _thinned(found, question.cluster.gpu.usable_memory)
    told: list[dict[str, Any]] = []
    steps = simulated_step(question, found.table.rows(rows)).step if len(rows) else np.zeros(0)
    slowest = 0.0
    for row, step in sorted(zip(rows.tolist(), steps, strict=True), key=lambda pair: found.peak[pair[0]]):
        if told and step >= slowest:
            continue  # the simulation finds another smaller and faster
        slowest = float(step)
        execution = found.table.executions[int(found.table.execution[row])]
        told.append(
            {
                "layout": str(found.table.layout(row)), "recompute": str(execution.recompute),
                "fsdp": execution.fsdp, "step_seconds": slowest, "peak_bytes": round(float(found.peak[row])),
            }
        )  # fmt: skip
    return tuple(point for point in reversed(told) if point["step_seconds"] <= FRONT_SLOWEST * slowest)


def _thinned(found: Found, usable: float) -> Ints:
    """Rows of the front inside the card, each at least a tenth smaller than the one before."""
    rows: list[int] = []
    last = math.inf
    for row in time_and_memory(found).tolist():
        if found.peak[row] <= min(usable, last * (1 - FRONT_STEP)):
            last = float(found.peak[row])
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def choose(points: Sequence[Point], objective: Objective) -> Point | None:
    """The best of several numbers of GPUs, None where none fits; ties in cost go to fewer GPUs."""
    fitting = [point for point in points if point.fits]
    if not fitting:
        return None
    scores = np.array([_score(point, objective) for point in fitting])
    slack = table()["tie"]["value"] if objective in ("cost", "tokens-per-dollar") else 0.0
    near = [p for p, score in zip(fitting, scores, strict=True) if score <= scores.min() * (1 + slack)]
    return min(near, key=lambda point: (point.gpus, point.step))


def _score(point: Point, objective: Objective) -> float:
    """What is to be small."""
    match objective:
        case "throughput":
            return 1 / point.tokens_per_second
        case "memory":
            return point.peak / point.question.cluster.gpu.usable_memory
        case "fewest-gpus":
            return float(point.gpus)
        case "tokens-per-dollar":
            return point.gpus * (point.price or 1.0) / point.tokens_per_second
        case "cost":
            cost = point.economics.cost
            return point.economics.gpu_hours if cost is None else cost
