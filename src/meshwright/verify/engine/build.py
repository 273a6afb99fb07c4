"""From a plain request to Megatron Core's config and the model chunks of the current rank.

A request holds `config` (fields of TransformerConfig, with names for functions and dtypes) and `model`
(what the model class takes); `meshwright.verify.engine_config` writes them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.activations import squared_relu
from megatron.core.extensions.transformer_engine import TENorm, TERowParallelLinear
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt import gpt_layer_specs as layer_specs
from megatron.core.models.gpt.experimental_attention_variant_module_specs import (
    get_transformer_block_with_experimental_attention_variant_spec,
)
from megatron.core.models.mamba import MambaModel
from megatron.core.models.mamba.mamba_layer_specs import mamba_stack_spec
from megatron.core.transformer.multi_token_prediction import get_mtp_ranks
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from torch.nn import functional

FUNCTIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "quick_gelu": quick_gelu,
    "squared_relu": squared_relu,
    "relu": functional.relu,
}
SEED = 1234
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def make_config(fields: dict[str, Any]) -> Any:
    """Megatron Core's own config, which raises its own errors."""
    fields = dict(fields)
    fields["activation_func"] = FUNCTIONS[fields["activation_func"]]
    for name in ("params_dtype", "pipeline_dtype"):
        if fields.get(name):
            fields[name] = DTYPES[fields[name]]
    if fields.get("window_size"):
        fields["window_size"] = tuple(fields["window_size"])
    kind = MLATransformerConfig if fields.get("multi_latent_attention") else TransformerConfig
    return kind(**fields)


class NormAfterRowLinear(TERowParallelLinear):  # type: ignore[misc]
    """A row-parallel linear whose output is normed (Gemma 2 and 3).

    Source: Megatron Bridge, models/gemma/gemma3_provider.py, TERowParallelLinearLayerNorm.
    """

    def __init__(self, input_size: int, output_size: int, *, config: Any, **rest: Any) -> None:
        super().__init__(input_size, output_size, config=config, **rest)
        self.post_layernorm = TENorm(config, output_size, config.layernorm_epsilon)

    def forward(self, x: Any) -> Any:
        y, bias = super().forward(x)
        return self.post_layernorm(y), bias


def block_spec(config: Any, model: dict[str, Any], vp_stage: int | None) -> Any:
    """Specs of the decoder layers of this rank's chunk."""
    if config.experimental_attention_variant == "gated_delta_net":
        return get_transformer_block_with_experimental_attention_variant_spec(config, vp_stage=vp_stage)
    spec = layer_specs.get_gpt_decoder_block_spec(config, use_transformer_engine=True, vp_stage=vp_stage)
    if model["post_norms"]:
        spec.layer_specs = [with_post_norms(layer) for layer in spec.layer_specs]
    return spec


def with_post_norms(layer: ModuleSpec) -> ModuleSpec:
    layer = copy.deepcopy(layer)
    layer.submodules.self_attention.submodules.linear_proj = NormAfterRowLinear
    layer.submodules.mlp.submodules.linear_fc2 = NormAfterRowLinear
    return layer


def mtp_spec(config: Any, vp_stage: int | None) -> Any:
    """Spec of the multi-token-prediction block if this chunk holds it, else None."""
    if not config.mtp_num_layers:
        return None
    last = layer_specs.get_gpt_decoder_layer_specs(config, use_transformer_engine=True)[-1]
    return layer_specs.get_gpt_mtp_block_spec(config, last, use_transformer_engine=True, vp_stage=vp_stage)


def build_chunk(config: Any, model: dict[str, Any], vp_stage: int | None) -> Any:
    """One model chunk of the current rank."""
    ends = {
        "pre_process": parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage),
        "post_process": parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage),
    }
    common = {
        "vocab_size": model["vocab_size"],
        "max_sequence_length": model["max_sequence_length"],
        "share_embeddings_and_output_weights": model["tied"],
        "position_embedding_type": model["position"],
        "parallel_output": True,
        **ends,
    }
    if model["kind"] == "hybrid":
        return MambaModel(
            config=config,
            mamba_stack_spec=mamba_stack_spec,
            hybrid_override_pattern=model["pattern"],
            **common,
        )
    return GPTModel(
        config=config,
        transformer_layer_spec=block_spec(config, model, vp_stage),
        mtp_block_spec=mtp_spec(config, vp_stage),
        vp_stage=vp_stage,
        **common,
    )


def embedding_ranks(request: dict[str, Any]) -> Any:
    """Which pipeline ranks share the word embedding: the ends, and where MTP modules are.

    Source: megatron/training (pretrain_gpt.py), which hands initialize_model_parallel such a function.
    """
    if not request["config"].get("mtp_num_layers"):
        return None
    config = make_config(request["config"])

    def ranks(pipeline: list[int], *_: Any) -> list[int]:
        ends = {pipeline[0], pipeline[-1]} if request["model"]["tied"] else {pipeline[0]}
        return sorted(ends | set(get_mtp_ranks(pipeline, config)))

    return ranks


def build_rank(request: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The config and all chunks of the current rank."""
    tensor_parallel.model_parallel_cuda_manual_seed(SEED)
    config = make_config(request["config"])
    vpp = config.virtual_pipeline_model_parallel_size
    stages: list[int | None] = list(range(vpp)) if vpp else [None]
    return config, [build_chunk(config, request["model"], stage) for stage in stages]
