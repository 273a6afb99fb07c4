"""Advice on the number of GPUs and the batch: awkward counts, a few less, batches that divide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.parse import build_cluster
from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.defaults import divided, odd_part
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes
from meshwright.planner.values import table as space_table

WINDOWS = ((0.96, 1.0), (0.85, 0.96), (0.5, 0.85))
"""Shares of the GPUs within which the roundest count is compared."""
GAIN = 0.01
"""A count that is faster by less than this is called as fast."""

MANY = 2_000_000
"""Layouts beyond which the smaller counts are searched with the flags of the best alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """A smaller number of GPUs beside the one asked for.

    speed  tokens a second over those of the asked number; more than 1 is faster with fewer GPUs, None
           where nothing fits on the asked number
    batch  global batch of the comparison, where the asked one does not divide over the smaller number
    """

    gpus: int
    spared: int
    speed: float | None
    step: float
    batch: int | None = None

    def __str__(self) -> str:
        verdict = "hold it"
        if self.speed is not None:
            change = self.speed - 1
            verdict = f"are {change:.0%} faster than all of them" if change > GAIN else "are as fast as all"
        batch = f" with a batch of {self.batch:,}" if self.batch else ""
        return f"{self.gpus:,} GPUs ({self.spared:,} fewer){batch} {verdict}: {self.step:.4g} s a step"

    def as_dict(self) -> dict[str, Any]:
        return {
            "gpus": self.gpus, "spared": self.spared, "speed": self.speed, "step_seconds": self.step,
            "global_batch": self.batch,
        }  # fmt: skip


def rounder(world: int) -> tuple[int, ...]:
    """Smaller counts that divide better: in each window the one with the smallest odd part.

    >>> rounder(1000), rounder(96), rounder(256)
    ((992, 896, 512), (64,), ())
    """
    found = []
    for low, high in WINDOWS:
        first = -int(-world * low // 1)
        counts = range(max(first, 1), min(int(world * high) + 1, world))
        best = min(counts, key=lambda n: (odd_part(n), -n), default=0)
        if best and odd_part(best) < odd_part(world):
            found.append(best)
    return tuple(dict.fromkeys(found))


def fewer_gpus(
    question: Question, axes: Axes, found: Found, *, searched: Callable[..., Found] = search
) -> tuple[Fewer, ...]:
    """Rounder counts of GPUs that train at least as fast as all of them, best first.

    Empty for powers of two, and where every GPU earns its keep.
    """
    cluster, job = question.cluster, question.job
    if found.searched > MANY and len(found.table):
        # with the flags of the best alone: a smaller number may be missed, none is praised wrongly
        best = found.table.executions[int(found.table.execution[0])]
        axes = replace(axes, execution=best, flags={}, recompute=None)
    here = job.tokens_per_step / float(found.step[0]) if found.fitting else 0.0
    better = []
    for count in rounder(cluster.world):
        smaller = _sized(cluster, count)
        if smaller is None:
            continue
        own = replace(job, global_batch=divided(job.global_batch, count))
        asked = replace(question, cluster=smaller, job=own)
        other = searched(asked, axes, within=_within(own.tokens_per_step, here))
        if not other.fitting:
            continue
        step = float(other.step[0])
        speed = own.tokens_per_step / step / here if here else None
        batch = None if own == job else own.global_batch
        if speed is None or speed >= 1 - GAIN:
            better.append(
                Fewer(gpus=count, spared=cluster.world - count, speed=speed, step=step, batch=batch)
            )
    return tuple(sorted(better, key=lambda one: (-round(one.speed or 0.0, 2), one.gpus)))


def _within(tokens: int, here: float) -> float:
    """Seconds of a step of so many tokens beyond which it is slower than `here` [tokens/s] for certain.

    The first of a ranking may be slower than the fastest by a tie, and its ties must all be there.
    """
    return tokens / (here * (1 - GAIN)) * (1 + space_table()["tie"]["value"]) ** 2 if here else math.inf


def _sized(cluster: Cluster, world: int) -> Cluster | None:
    """The cluster cut to `world` GPUs in whole nodes; None where they do not fill nodes."""
    if world % cluster.gpus_per_node:
        return None
    try:
        domain = min(cluster.nvlink_domain, world)
        made = build_cluster(cluster.gpu, world, cluster.gpus_per_node, domain)
    except QuestionError:
        return None
    return replace(made, network=cluster.network)


def batches(question: Question, *, count: int = 2) -> tuple[int, ...]:
    """Global batches nearest to the asked one that every data parallel size of the world divides well.

    They are multiples of the odd part of the number of GPUs: with another batch, data parallelism cannot
    use its odd factors, which then must go into other degrees.
    """
    odd, batch = odd_part(question.cluster.world), question.job.global_batch
    if batch % odd == 0:
        return ()
    below = batch // odd * odd
    return tuple(value for value in (below, below + odd) if value)[:count]


def advice(question: Question, axes: Axes, found: Found) -> Iterator[str]:
    """What to change about the number of GPUs or the batch, in words."""
    world, batch = question.cluster.world, question.job.global_batch
    near = batches(question)
    if near:
        words = " or ".join(f"{value:,}" for value in near)
        odd = odd_part(world)
        yield (
            f"{world:,} GPUs have the factor {odd:,}, which a global batch of {batch:,} does not: "
            f"data parallelism cannot use it; a batch of {words} can"
        )
    yield from (str(one) for one in fewer_gpus(question, axes, found))
    if not found.fitting:
        yield from _with_offload(question, axes)


def _with_offload(question: Question, axes: Axes) -> Iterator[str]:
    """Whether it fits once the optimizer's state is in host memory."""
    if axes.execution.optimizer_offload == 1.0 or "optimizer_offload" in axes.flags:
        return
    found = search(question, replace(axes, execution=replace(axes.execution, optimizer_offload=1.0)))
    if found.fitting:
        yield (
            f"with the optimizer's state in host memory (--offload 1) it fits: {found.table.layout(0)}, "
            f"{found.step[0]:.4g} s a step"
        )
