"""What Megatron Core must be told to build a model under a layout: its own field names, as plain values.

Source: megatron/core/transformer/transformer_config.py and models/gpt/gpt_model.py, release 0.16.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.model.spec import Mla, Model
from meshwright.model.weights import padded_vocab
from meshwright.verify.engine_fields import hybrid_pattern, is_hybrid, model_fields

DEFAULT_ORDER = "tp-cp-ep-dp-pp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How layers and ranks are placed, beyond the degrees.

    pipeline_layout  Megatron's layout string, where layers are not divided evenly
    hierarchical_cp  sizes of the levels of context parallelism, innermost first
    """

    pipeline_layout: str | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    account_for_embedding: bool = False
    account_for_loss: bool = False
    order: str = DEFAULT_ORDER
    hierarchical_cp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One question to the engine.

    world    number of ranks
    mesh     arguments of `initialize_model_parallel`
    config   fields of `TransformerConfig`; functions and dtypes by name
    model    arguments of the model class
    notes    where the engine runs something else than the plan names, and why it is the same
    """

    world: int
    mesh: Mapping[str, Any]
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())

    def request(self) -> dict[str, Any]:
        """The values an engine request is made of."""
        return {
            "world": self.world,
            "mesh": dict(self.mesh),
            "config": dict(self.config),
            "model": dict(self.model),
        }

    def with_config(self, **fields: Any) -> EngineConfig:
        """The same with other fields of TransformerConfig."""
        return replace(self, config={**self.config, **fields})


def engine_config(
    model: Model,
    layout: Layout,
    world: int,
    *,
    execution: Execution | None = None,
    placement: Placement | None = None,
    seq_length: int = 4096,
    vocab_size: int | None = None,
    dtype: str = "bf16",
) -> EngineConfig:
    """The engine's words for `model` under `layout` on `world` ranks.

    vocab_size  rows of the embedding; None pads the model's vocabulary to a multiple of 128*tp
    Raises CannotBuild where the engine has no module for a part of the model. Whether the layout is
    valid is left to the engine.
    """
    execution = execution or Execution()
    placement = placement or Placement()
    fields, notes = execution_fields(model, execution)
    config = {
        **model_fields(model),
        **degree_fields(layout, placement),
        **precision_fields(dtype),
        **fields,
    }
    return EngineConfig(
        world=world,
        mesh=mesh_arguments(layout, placement, execution.optimizer_instances),
        config=config,
        model=model_arguments(model, layout, seq_length, vocab_size),
        notes=tuple(notes),
    )


def mesh_arguments(layout: Layout, placement: Placement, optimizer_instances: int) -> dict[str, Any]:
    """Arguments of `initialize_model_parallel`."""
    mesh: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": layout.vpp if layout.vpp > 1 else None,
        "context_parallel_size": layout.cp,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.etp,
        "order": placement.order,
    }
    if placement.hierarchical_cp:
        mesh["hierarchical_context_parallel_sizes"] = list(placement.hierarchical_cp)
    if optimizer_instances > 1:
        mesh["num_distributed_optimizer_instances"] = optimizer_instances
    return mesh


def degree_fields(layout: Layout, placement: Placement) -> dict[str, Any]:
    """The degrees and the pipeline split as TransformerConfig takes them."""
    fields: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": layout.vpp if layout.vpp > 1 else None,
        "context_parallel_size": layout.cp,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.etp,
        "sequence_parallel": layout.sp,
        "batch_p2p_comm": layout.vpp == 1,
        "overlap_p2p_comm": layout.vpp > 1,
        "num_layers_in_first_pipeline_stage": placement.first_stage_layers,
        "num_layers_in_last_pipeline_stage": placement.last_stage_layers,
        "account_for_embedding_in_pipeline_split": placement.account_for_embedding,
        "account_for_loss_in_pipeline_split": placement.account_for_loss,
        "pipeline_model_parallel_layout": placement.pipeline_layout,
    }
    if placement.hierarchical_cp:
        fields["hierarchical_context_parallel_sizes"] = list(placement.hierarchical_cp)
    return fields


def precision_fields(dtype: str) -> dict[str, Any]:
    return {
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": dtype == "bf16",
        "fp16": dtype == "fp16",
    }


def execution_fields(model: Model, execution: Execution) -> tuple[dict[str, Any], list[str]]:
    """Recompute, dispatcher and fusions; and notes where a GPU-only kernel is replaced by its equal."""
    notes: list[str] = []
    fields: dict[str, Any] = {
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "perform_initialization": False,
        "masked_softmax_fusion": False,
        "bias_dropout_fusion": False,
        "gradient_accumulation_fusion": False,
        "apply_rope_fusion": not any(isinstance(kind.mixer, Mla) for kind in model.kinds),
        "cp_comm_type": "a2a+p2p" if execution.cp_comm == "a2a+p2p" else execution.cp_comm,
    }
    fields |= {
        "cross_entropy_loss_fusion": execution.cross_entropy_fusion,
        "cross_entropy_fusion_impl": execution.cross_entropy_impl,
        "microbatch_group_size_per_vp_stage": execution.vp_group,
    }
    if not execution.activation_fusion:
        fields["bias_activation_fusion"] = False
    recompute = execution.recompute
    if recompute.granularity != "none":
        fields["recompute_granularity"] = recompute.granularity
    if recompute.granularity == "selective":
        fields["recompute_modules"] = list(recompute.modules or ("core_attn",))
    if recompute.granularity == "full":
        fields["recompute_method"] = recompute.method
        fields["recompute_num_layers"] = recompute.num_layers or 1
    if model.is_moe:
        fields["moe_token_dispatcher_type"] = execution.dispatcher
        if execution.dispatcher in ("deepep", "hybridep"):
            fields["moe_token_dispatcher_type"] = "alltoall"
            notes.append(
                f"{execution.dispatcher} needs GPUs: alltoall stands in and moves the same tokens to the "
                f"same experts; the {execution.dispatcher} kernels themselves are not proven"
            )
        if execution.capacity_factor is not None:
            fields["moe_expert_capacity_factor"] = execution.capacity_factor
    return fields, notes


def model_arguments(model: Model, layout: Layout, seq_length: int, vocab_size: int | None) -> dict[str, Any]:
    """What GPTModel or MambaModel takes."""
    return {
        "kind": "hybrid" if is_hybrid(model) else "gpt",
        "pattern": hybrid_pattern(model) if is_hybrid(model) else None,
        "vocab_size": padded_vocab(model.vocab_size, layout.tp) if vocab_size is None else vocab_size,
        "max_sequence_length": model.learned_positions or seq_length,
        "tied": model.tied,
        "position": "learned_absolute" if model.learned_positions else "none" if is_hybrid(model) else "rope",
        "post_norms": any(kind.norms == 4 for kind in model.kinds),
    }
