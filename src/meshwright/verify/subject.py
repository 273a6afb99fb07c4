"""What is verified: a model under a layout, with everything that decides how it is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.model.spec import Model
from meshwright.verify.engine_config import EngineConfig, Placement, engine_config
from meshwright.verify.engine_fields import is_hybrid

if TYPE_CHECKING:
    from meshwright.planner.answer import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One plan in the terms of this room.

    global_batch  samples a step; 0 leaves the batch unchecked
    """

    model: Model
    layout: Layout
    world: int
    seq_length: int = 4096
    global_batch: int = 0
    execution: Execution = field(default_factory=Execution)
    placement: Placement = field(default_factory=Placement)

    def config(self, *, dtype: str = "bf16") -> EngineConfig:
        """The plan in the engine's words; CannotBuild where it has none."""
        return engine_config(
            self.model,
            self.layout,
            self.world,
            execution=self.execution,
            placement=self.placement,
            seq_length=self.seq_length,
            dtype=dtype,
        )

    def pipeline(self) -> PipelineLayout | None:
        """Our own reading of where layers go; None where there is no legal split."""
        model, layout, placement = self.model, self.layout, self.placement
        mtp = len(model.mtp)
        if placement.pipeline_layout:
            return PipelineLayout.parse(placement.pipeline_layout, layout.pp)
        first, last = placement.first_stage_layers, placement.last_stage_layers
        if first is not None or last is not None:
            return PipelineLayout.first_last(model.num_layers, layout.pp, layout.vpp, first, last, mtp)
        embedding, loss = placement.account_for_embedding, placement.account_for_loss
        if embedding or loss:
            return PipelineLayout.account(model.num_layers, layout.pp, layout.vpp, embedding, loss, mtp)
        return default_pipeline(model, layout.pp, layout.vpp)


def subject_of(estimate: Estimate) -> Subject:
    """The plan of an answer (of `plan`, `fit` or `estimate`)."""
    from meshwright.planner.answer import layout_of, said_pipeline

    question, layout = estimate.question, layout_of(estimate)
    return Subject(
        model=question.model,
        layout=layout,
        world=question.cluster.world,
        seq_length=question.job.seq_length,
        global_batch=question.job.global_batch,
        execution=estimate.execution,
        placement=placed(question.model, layout, said_pipeline(estimate)),
    )


def placed(model: Model, layout: Layout, pipeline: PipelineLayout | None = None) -> Placement:
    """The placement that says `pipeline` (None: the default one) to Megatron: nothing where it is even."""
    chosen = pipeline or default_pipeline(model, layout.pp, layout.vpp)
    if chosen is None or is_hybrid(model):
        return Placement()
    even = model.num_layers % (layout.pp * layout.vpp) == 0 and (
        chosen == PipelineLayout.even(model.num_layers, layout.pp, layout.vpp, len(model.mtp))
    )
    return Placement() if even else Placement(pipeline_layout=chosen.string())
