"""Several numbers of GPUs or sequence lengths at once, and the place of one layout among all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshwright.api.asking import Asked, Options, ask, axes_of, practice
from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.model.spec import Model
from meshwright.planner.economics import Rates
from meshwright.planner.objectives import Objective, choose
from meshwright.planner.place import Place
from meshwright.planner.place import why_not as place_of
from meshwright.planner.space import Axes
from meshwright.planner.sweep import (
    Sweep,
    auto_clusters,
    auto_kind,
    pareto,
    parse_clusters,
    scaling,
    sequences,
    strong,
    weak,
)
from meshwright.planner.sweep import jobs as changed_jobs
from meshwright.planner.sweep import sweep as run_sweep

MOST_POINTS = 256


def sweep(
    model: str | Model,
    gpus: str,
    options: Options | None = None,
    *,
    objective: Objective = "throughput",
    rates: Callable[[Any], Rates] | Rates | None = None,
    tokens: float | None = None,
    batch: Literal["strong", "weak"] = "strong",
    seq_lengths: Sequence[int] = (),
    jobs: Mapping[str, Sequence[object]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """The best layouts over several clusters ("64,128,256xH100", "autoxH100") or sequence lengths.

    batch   strong: the global batch is held over the clusters; weak: it grows with them
    tokens  budget of the run, for days and totals
    jobs    {precision, optimizer, grad_dtype or global_batch: values}, each combination a row of its own
    """
    options = options or Options()
    asked = _first(model, gpus, options)
    questions = _questions(asked, gpus, batch, axes_of(asked, options, fixed=False))
    if seq_lengths:
        questions = tuple(one for question in questions for one in sequences(question, seq_lengths))
    if jobs:
        questions = tuple(one for question in questions for one in changed_jobs(question, jobs))
    if len(questions) > MOST_POINTS:
        raise QuestionError(f"{len(questions):,} questions at once; at most {MOST_POINTS} are compared")
    points = run_sweep(
        [(question, _own_axes(question, options)) for question in questions],
        objective=objective,
        rates=rates,
        tokens=tokens,
        practice=lambda question: practice(replace(asked, question=question)),
        progress=progress,
    )
    against: Literal["gpus", "cost", "memory"] = "gpus" if len({p.gpus for p in points}) > 1 else "memory"
    return Sweep(
        points=points,
        scaling=scaling(points),
        front=pareto(points, against),
        chosen=choose(points, objective),
        objective=objective,
        against=against,
        partial=len(points) < len(questions) or any(point.found.partial for point in points),
    )


def _own_axes(question: Question, options: Options) -> Axes:
    """The axes of one question: the flags follow its own GPU and precision."""
    own = replace(options, precision=question.job.precision)
    job = question.job
    said = replace(own, seq_length=job.seq_length, global_batch=job.global_batch)
    return axes_of(ask(question.model, question.cluster, said), own, fixed=False)


def _first(model: str | Model, gpus: str, options: Options) -> Asked:
    """The question on the first cluster named (a node of the kind for `auto`)."""
    kind = auto_kind(gpus)
    if kind is None:
        return ask(model, parse_clusters(gpus)[0], options)
    if not kind:
        raise QuestionError("auto of which kind of GPU? For example --gpus autoxH100")
    return ask(model, parse_cluster(f"{find_gpu(kind).gpus_per_node}x{kind}"), options)


def _questions(asked: Asked, gpus: str, batch: str, axes: Any) -> tuple[Question, ...]:
    clusters = parse_clusters(gpus) if auto_kind(gpus) is None else auto_clusters(asked.question, axes)
    return (weak if batch == "weak" else strong)(asked.question, clusters)


def why_not(
    model: str | Model, gpus: Any, layout: str, options: Options | None = None, progress: Any = None
) -> Place:
    """The place of a layout ("tp=8,pp=8") in the ranking, and what puts or keeps it there."""
    options = options or Options()
    asked = ask(model, gpus, options)
    axes = axes_of(asked, options, fixed=False)
    return place_of(asked.question, axes, layout, practice=practice(asked), progress=progress)
