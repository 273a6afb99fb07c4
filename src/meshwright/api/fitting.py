"""`fit`: the fewest GPUs that train a model, and the most that given GPUs take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from meshwright.api.asking import Asked, Options, ask, axes_of, longer_positions
from meshwright.api.memory import first_with_detail
from meshwright.api.planning import plans_of
from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.parse import parse_cluster
from meshwright.cluster.spec import Cluster
from meshwright.errors import QuestionError
from meshwright.job.defaults import Assumption
from meshwright.job.spec import positive
from meshwright.layout.layout import Layout
from meshwright.model.spec import Model
from meshwright.planner.again import one_row
from meshwright.planner.answer import Plans
from meshwright.planner.capacity import COARSE, at_length, most_samples, most_tokens
from meshwright.planner.fit import Sized, fewest_gpus
from meshwright.planner.search import nothing, search

Most = Literal["sequence", "micro-batch"]


def fit(
    model: str | Model, gpu: str, options: Options | None = None, *, max_gpus: int = 16384, top: int = 3,
    cluster_overrides: Mapping[str, Any] | None = None,
) -> Plans:  # fmt: skip
    """The fewest GPUs of a kind that train a model, and the best layouts on them.

    `min_gpus_fitting` is the fewest on which memory surely suffices; `min_gpus_tight` a smaller number on
    which it may (what `plan` calls tight), with its best layout.
    """
    start = time.perf_counter()
    options = options or Options()
    if not gpu:
        raise QuestionError("say which kind of GPU: --gpu H100")
    per_node = find_gpu(gpu).gpus_per_node
    asked = ask(model, parse_cluster(f"{per_node}x{gpu}", **(cluster_overrides or {})), options)
    positive("most GPUs", max_gpus)
    found = fewest_gpus(asked.question, axes_of(asked, options, fixed=False), most=max_gpus)
    tight = None if found.tight is None else _sized(asked, found.tight, 1, start)
    if found.fits is None:
        answer = _empty(asked, start) if tight is None else tight
        return replace(answer, min_gpus_tight=_gpus(found.tight), tight=None if tight is None else tight.best)
    answer = _sized(asked, found.fits, top, start)
    return replace(
        answer, min_gpus_fitting=_gpus(found.fits), min_gpus_tight=_gpus(found.tight),
        tight=None if tight is None else tight.best,
    )  # fmt: skip


def _gpus(sized: Sized | None) -> int | None:
    return None if sized is None else sized[0].cluster.world


def _sized(asked: Asked, sized: Sized, top: int, start: float) -> Plans:
    question, found = sized
    answer = plans_of(replace(asked, question=question), found, top, time.perf_counter() - start)
    return first_with_detail(answer)


def _empty(asked: Asked, start: float) -> Plans:
    none = one_row(asked.question, Layout(), asked.execution, None).rows(slice(0, 0))
    return plans_of(asked, nothing(none), 0, time.perf_counter() - start)


def most_that_fits(
    model: str | Model, gpus: str | Cluster, what: Most, options: Options | None = None, *, top: int = 3
) -> Plans:
    """The longest sequence, or the largest micro-batch, that trains on given GPUs, and the layouts for it.

    Degrees and flags that are named stay; the others are searched at every length. `capacity` of the answer
    says what surely fits and what may; the global batch [samples] is held.
    """
    start = time.perf_counter()
    options = options or Options()
    sought = "--seq-length" if what == "sequence" else "--mbs"
    if (options.seq_length if what == "sequence" else options.mbs) is not None:
        raise QuestionError(f"the largest {sought} is what is asked for; leave {sought} out")
    asked = ask(model, gpus, options)
    axes = axes_of(asked, options, fixed=False)
    most = most_tokens if what == "sequence" else most_samples
    found = most(asked.question, axes)
    told = {"asked": what, "fits": found.fits, "may_fit": found.may_fit}
    if found.question is None or found.found is None:  # show what needs least, or why nothing is legal
        least = at_length(asked.question, COARSE) if what == "sequence" else asked.question
        nearest = search(least, axes)
        answer = plans_of(replace(asked, question=least), nearest, 1, time.perf_counter() - start)
        return first_with_detail(replace(answer, capacity=told))
    changed = replace(asked, question=found.question, assumptions=_unlike(asked, found.question.model, what))
    answer = plans_of(changed, found.found, top, time.perf_counter() - start)
    # the limit is that of the search's best layout; beside it others may be tight
    surest = sorted(answer.plans, key=lambda plan: plan.memory is None or plan.memory.verdict != "fits")
    return first_with_detail(replace(answer, plans=tuple(surest), capacity=told))


def _unlike(asked: Asked, model: Model, what: Most) -> tuple[Assumption, ...]:
    """What was filled in, without what the search changed; and longer positions where it needed them."""
    changed = {"sequence": "--seq-length", "micro-batch": "--mbs"}[what]
    kept = tuple(a for a in asked.assumptions if a.option != changed)
    if not model.max_position or model.max_position == asked.question.model.max_position:
        return kept
    return (*kept, longer_positions(asked.question.model, model.max_position))
