"""Memory and step time of what a reading states, where it states enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import MeshwrightError
from meshwright.frameworks.architecture import SHAPE, execution_from, job_from, layout_from, model_from
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.rollouts import rollout_of, trained
from meshwright.layout.rules import View

if TYPE_CHECKING:
    from meshwright.model.spec import Model
    from meshwright.planner.answer import Estimate


def shape_of(reading: Reading, view: View) -> Model | None:
    """The model: as stated, else as its name says."""
    stated = all(isinstance(reading.get(name), int) for name in SHAPE)
    return model_from(view.options) if stated or view.model is None else view.model


def estimate_of(reading: Reading, view: View) -> Estimate | None:
    """The estimate of a run; None when model, layout, batch or cluster are not settled or not legal."""
    from meshwright.cost.question import Question
    from meshwright.job.spec import Stack
    from meshwright.layout.pipeline import PipelineLayout
    from meshwright.planner.again import one_row
    from meshwright.planner.answer import estimates

    options = trained(reading, view.options)
    model, job, layout = shape_of(reading, view), job_from(options), layout_from(options)
    if model is None or view.cluster is None or job is None or layout is None:
        return None
    rollout = rollout_of(reading, model, view.cluster)
    if rollout is not None:
        job = replace(job, task="rl", rollout=rollout)
    if not model.is_moe:
        layout = replace(layout, ep=1, etp=1)
    text = options.get("pipeline_model_parallel_layout")
    try:
        layout.num_microbatches(view.cluster.world, job.global_batch)
        pipeline = PipelineLayout.parse(str(text), layout.pp) if text else None
        stack = Stack(framework=view.framework)
        question = Question(model=model, cluster=view.cluster, job=job, stack=stack)
        return estimates(question, one_row(question, layout, execution_from(options), pipeline))[0]
    except (MeshwrightError, ArithmeticError, ValueError, IndexError, KeyError, TypeError):
        # The rules have said what is wrong; an estimate of something that cannot start is no answer.
        return None
