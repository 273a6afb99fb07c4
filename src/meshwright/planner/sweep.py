"""The same training on several numbers of GPUs, or with several sequence lengths, side by side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from meshwright.cluster.parse import build_cluster, parse_cluster
from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job, one_of, positive
from meshwright.layout.layout import Layout
from meshwright.planner.answer import estimates
from meshwright.planner.economics import Economics, Rates, economics
from meshwright.planner.fit import fewest_gpus
from meshwright.planner.objectives import Objective, front, keep_for, ordered
from meshwright.planner.ranking import Known
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes

MOST_CLUSTERS = 64
DOUBLINGS = 5
"""How far `auto` goes beyond the fewest GPUs: 32 times."""

Ask = tuple[Question, Axes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The best layout of one question of a sweep; `found` has no fitting row where nothing fits."""

    question: Question
    found: Found
    rates: Rates
    tokens: float | None = None

    @property
    def gpus(self) -> int:
        return self.question.cluster.world

    @property
    def fits(self) -> bool:
        return self.found.fitting > 0

    @property
    def step(self) -> float:
        """Seconds."""
        return float(self.found.step[0])

    @property
    def peak(self) -> float:
        """Bytes."""
        return float(self.found.peak[0])

    @property
    def layout(self) -> Layout:
        return self.found.table.layout(0)

    @property
    def execution(self) -> Execution:
        return self.found.table.executions[int(self.found.table.execution[0])]

    @property
    def tokens_per_second(self) -> float:
        """Of the whole cluster."""
        return self.question.job.tokens_per_step / self.step

    @property
    def price(self) -> float | None:
        """Of one GPU hour."""
        return self.rates.price

    @property
    def economics(self) -> Economics:
        return economics(self.question.cluster, self.tokens_per_second, self.rates, self.tokens)

    def as_dict(self) -> dict[str, Any]:
        """JSON form; `step_seconds` and what follows from it are null where nothing fits."""
        job = self.question.job
        row: dict[str, Any] = {
            "gpus": self.gpus, "gpu": self.question.cluster.gpu.name, "seq_length": job.seq_length,
            "gbs": job.global_batch, "precision": job.precision, "optimizer": job.optimizer,
            "fits": self.fits,
        }  # fmt: skip
        if not self.fits:
            return row | dict.fromkeys(("layout", "step_seconds", "tokens_per_second_per_gpu", "economics"))
        return row | {
            "layout": str(self.layout),
            "recompute": str(self.execution.recompute),
            "fsdp": self.execution.fsdp,
            "step_seconds": self.step,
            "peak_bytes": round(self.peak),
            "tokens_per_second_per_gpu": self.tokens_per_second / self.gpus,
            "economics": self.economics.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How one point compares with the first that fits.

    speedup     tokens a second over the first's
    efficiency  tokens a second and GPU over the first's
    """

    point: Point
    speedup: float
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The best layout of each point, how they scale, the front, and the one the objective chooses."""

    points: tuple[Point, ...]
    scaling: tuple[Scaling, ...]
    front: tuple[Point, ...]
    chosen: Point | None
    objective: Objective
    against: str
    partial: bool = False
    """The sweep was interrupted: points are missing, or not searched to the end."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "points": [point.as_dict() for point in self.points],
            "scaling": [
                {"gpus": s.point.gpus, "speedup": s.speedup, "efficiency": s.efficiency} for s in self.scaling
            ],
            "front": [point.as_dict() for point in self.front],
            "front_against": self.against,
            "chosen": self._chosen(),
            "partial": self.partial,
        }

    def _chosen(self) -> dict[str, Any] | None:
        """The chosen point with its layout as `estimate` shows it: enough to take it up again."""
        if self.chosen is None:
            return None
        whole = estimates(self.chosen.question, self.chosen.found.table.rows(slice(0, 1)))[0]
        return self.chosen.as_dict() | {"estimate": whole.as_dict()}


def sweep(
    asks: Sequence[Ask], *, objective: Objective = "throughput",
    rates: Rates | Callable[[Cluster], Rates] | None = None,
    tokens: float | None = None, practice: Callable[[Question], Sequence[Known]] = lambda _: (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Point, ...]:  # fmt: skip
    """The best layout of each question; each is searched whole.

    An interrupt ends with the points that were searched until then (it is passed on where there is none).

    rates     one for all, or by cluster (GPU kinds have their own price)
    practice  layouts that people ship, for ties
    """
    points: list[Point] = []
    for number, (question, axes) in enumerate(asks):
        try:
            found = search(question, axes, practice=practice(question), keep=keep_for(objective))
        except KeyboardInterrupt:
            if not points:
                raise
            break
        own = rates(question.cluster) if callable(rates) else rates
        points.append(
            Point(question=question, found=ordered(found, objective), rates=own or Rates(), tokens=tokens)
        )
        if found.partial:
            break
        if progress is not None:
            progress(number + 1, len(asks))
    return tuple(points)


def scaling(points: Sequence[Point]) -> tuple[Scaling, ...]:
    """Speed-up and efficiency against the first point that fits; points that do not fit are left out."""
    fitting = [point for point in points if point.fits]
    if not fitting:
        return ()
    first = fitting[0]
    return tuple(
        Scaling(
            point=point,
            speedup=point.tokens_per_second / first.tokens_per_second,
            efficiency=point.tokens_per_second / first.tokens_per_second * first.gpus / point.gpus,
        )
        for point in fitting
    )


def pareto(points: Sequence[Point], against: Literal["gpus", "cost", "memory"] = "gpus") -> tuple[Point, ...]:
    """The points that none beats in time for a token and in the other measure as well, fastest first."""
    fitting = [point for point in points if point.fits]
    if not fitting:
        return ()
    seconds = np.array([1 / point.tokens_per_second for point in fitting])
    other = np.array([_measure(point, against) for point in fitting])
    return tuple(fitting[row] for row in front(seconds, other).tolist())


def _measure(point: Point, name: Literal["gpus", "cost", "memory"]) -> float:
    match name:
        case "gpus":
            return float(point.gpus)
        case "memory":
            return point.peak
        case "cost":
            cost = point.economics.cost
            return point.economics.gpu_hours if cost is None else cost


# Which questions to ask.


def strong(question: Question, clusters: Sequence[Cluster]) -> tuple[Question, ...]:
    """The same job on each cluster."""
    return tuple(replace(question, cluster=cluster) for cluster in clusters)


def weak(question: Question, clusters: Sequence[Cluster]) -> tuple[Question, ...]:
    """The same batch a GPU as in the question, on each cluster; rounded to a whole sample."""
    share = question.job.global_batch / question.cluster.world
    return tuple(
        replace(
            question, cluster=cluster,
            job=replace(question.job, global_batch=max(1, round(share * cluster.world))),
        )
        for cluster in clusters
    )  # fmt: skip


def sequences(
    question: Question, lengths: Sequence[int], hold: Literal["tokens", "batch"] = "tokens"
) -> tuple[Question, ...]:
    """The question with other sequence lengths, with the tokens of a step (or the samples) held."""
    found = []
    for length in lengths:
        positive("sequence length", length)
        batch = question.job.global_batch
        if hold == "tokens":
            batch = max(1, round(question.job.tokens_per_step / length))
        found.append(replace(question, job=replace(question.job, seq_length=length, global_batch=batch)))
    return tuple(found)


def jobs(question: Question, changes: Mapping[str, Sequence[object]]) -> tuple[Question, ...]:
    """The question with every combination of other values of its job: precision, optimizer, global_batch.

    These change the numerics, so a search never varies them by itself. QuestionError for a name that is
    no field of a job, or a value that it does not take.
    """
    names = [item.name for item in fields(Job)]
    for name in changes:
        one_of("field of a job", name, tuple(names))
    found = []
    for values in itertools.product(*changes.values()):
        change: dict[str, Any] = dict(zip(changes, values, strict=True))
        found.append(replace(question, job=replace(question.job, **change)))
    return tuple(found)


_KIND = re.compile(r"\d\s*[x*×\s]\s*(?P<kind>[A-Za-z].*)")
_AUTO = re.compile(r"auto(?:\s*[x*×\s]\s*(?P<kind>[A-Za-z].*))?", re.IGNORECASE)


def auto_kind(text: str) -> str | None:
    """The GPU kind of "autoxH100", an empty text for "auto" alone, None for anything else."""
    match = _AUTO.fullmatch(text.strip()) if len(text) <= 100 else None
    return (match["kind"] or "") if match else None


def parse_clusters(text: str, **overrides: Any) -> tuple[Cluster, ...]:
    """Several clusters: "64,128,256xH100", "64xH100,32xB200"; `overrides` as for `parse_cluster`.

    A comma inside a number ("1,024xH100") is one where a zero follows it. QuestionError names the part
    that is no cluster.
    """
    parts = [part.strip() for part in re.split(r",(?!0)", text.strip()[:2_000])]
    if len(parts) > MOST_CLUSTERS:
        raise QuestionError(f"--gpus names {len(parts)} clusters; at most {MOST_CLUSTERS} are compared")
    found: list[Cluster] = []
    waiting: list[str] = []
    for part in parts:
        if re.fullmatch(r"[\d,]+", part):
            waiting.append(part)
            continue
        cluster, match = parse_cluster(part, **overrides), _KIND.search(part)
        if waiting and match is None:
            raise QuestionError(f"{', '.join(waiting)} GPUs of which kind? For example 64,128,256xH100")
        kind = match["kind"] if match else ""
        found += [parse_cluster(f"{count}x{kind}", **overrides) for count in waiting]
        found.append(cluster)
        waiting = []
    if waiting:
        raise QuestionError(f"{', '.join(waiting)} GPUs of which kind? For example 64,128,256xH100")
    return tuple(found)


def auto_clusters(question: Question, axes: Axes, *, most: int = 16384) -> tuple[Cluster, ...]:
    """The fewest GPUs of the question's kind that train the model, and doublings of them.

    Stops where a GPU would have less than a sample of the batch to work on, or at `most`. Empty where no
    number up to `most` fits.
    """
    sized = fewest_gpus(question, axes, most=most)
    if sized.fits is None:
        return ()
    first = sized.fits[0].cluster
    return tuple(_doublings(first, most))


def _doublings(first: Cluster, most: int) -> Iterator[Cluster]:
    world = first.world
    for _ in range(DOUBLINGS + 1):
        if world > most:
            return
        yield first if world == first.world else build_cluster(first.gpu, world)
        world *= 2
