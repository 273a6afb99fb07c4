"""Options from what other rooms know: names made canonical; models, jobs and executions as options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.layout.rules.view import UNKNOWN
from meshwright.model.spec import Attention, LinearAttention, Mamba2, Mla, Mlp, Model, Moe

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Job
    from meshwright.layout.layout import Layout


MOST = 10_000_000
"""Far above any real option; keeps a slip of the keyboard from filling the memory."""


def canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by canonical name: short names, dashes and the spellings of other versions are accepted."""
    names = load_json("meshwright.layout.rules", "names.json")
    said: dict[str, Any] = {}
    for raw, value in options.items():
        name = raw.removeprefix("--").replace("-", "_")
        if name in names["negated"] and isinstance(value, bool):
            said[names["negated"][name]] = not value
        else:
            said[names["same"].get(name, name)] = value
    for kind, least in (("degrees", 1), ("optional_degrees", 1), ("counts", 0)):
        for name in names["whole"][kind]:
            if said.get(name) is not None:
                said[name] = whole(name, said[name], least)
    return said


def whole(name: str, value: Any, least: int) -> Any:
    """A whole number that was perhaps written as text; QuestionError for anything else.

    Unknown values and arrays pass through.
    """
    if value is UNKNOWN or isinstance(value, np.ndarray):
        return value
    number = value
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
        number = int(value)
    if isinstance(number, (float, np.integer)) and number == int(number):
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MOST:
        raise QuestionError(f"{name} is {value!r}; it is a whole number from {least} to {MOST}")
    return number


def collect(
    *,
    layout: Layout | None,
    model: Model | None,
    cluster: Cluster | None,
    job: Job | None,
    execution: Execution | None,
) -> dict[str, Any]:
    """All options that the given values imply."""
    options: dict[str, Any] = {}
    if model is not None:
        options |= model_options(model)
    if cluster is not None:
        options |= cluster_options(cluster)
    if job is not None:
        options |= job_options(job)
    if execution is not None:
        options |= execution_options(execution, model)
    if job is not None or execution is not None:
        options["planned"] = True
    if layout is not None:
        options |= layout_options(layout)
        if layout.tp == 1:  # there is nothing to overlap, and the frameworks switch it off
            options["tp_comm_overlap"] = False
    return options


def layout_options(layout: Layout) -> dict[str, Any]:
    return {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": layout.vpp if layout.vpp > 1 else None,
        "context_parallel_size": layout.cp,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.etp,
        "micro_batch_size": layout.mbs,
        "sequence_parallel": layout.sp,
    }


def head_counts(model: Model) -> tuple[tuple[int, int], ...]:
    """(heads, kv heads) of the distinct softmax attention kinds; MLA has as many kv heads as heads."""
    found = []
    for kind in model.kinds:
        if isinstance(kind.mixer, Attention):
            found.append((kind.mixer.heads, kind.mixer.kv_heads))
        elif isinstance(kind.mixer, Mla):
            found.append((kind.mixer.heads, kind.mixer.heads))
    return tuple(dict.fromkeys(found))


def model_options(model: Model) -> dict[str, Any]:
    """A model as Megatron's arguments; what a model does not have is None.

    `num_attention_heads` is left out: layers may differ, and rules read the kinds themselves.
    """
    ffns = [kind.ffn for kind in model.kinds]
    dense = [ffn for ffn in ffns if isinstance(ffn, Mlp)]
    sparse = [ffn for ffn in ffns if isinstance(ffn, Moe)]
    options: dict[str, Any] = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden,
        "vocab_size": model.vocab_size,
        "ffn_hidden_size": dense[0].ffn if dense else (sparse[0].ffn if sparse else None),
        "num_moe_experts": model.num_experts or None,
        "mtp_num_layers": len(model.mtp) or None,
        "max_position_embeddings": model.max_position,
        "untie_embeddings_and_output_weights": not model.tied,
        "add_bias_linear": any(ffn.bias for ffn in dense) or any(ffn.bias for ffn in sparse),
        "multi_latent_attention": any(isinstance(kind.mixer, Mla) for kind in model.kinds),
        "position_embedding_type": "learned_absolute" if model.learned_positions else "rope",
        "ffn_widths": tuple(dict.fromkeys(ffn.ffn for ffn in dense)),
        "has_dense_layers": bool(dense),
        "is_hybrid_model": model.is_hybrid,
        "should_pad_vocab": True,
    }
    if model.max_position is None:
        del options["max_position_embeddings"]
    if sparse:
        options |= {
            "moe_router_topk": sparse[0].top_k,
            "moe_ffn_hidden_size": sparse[0].ffn,
            "moe_shared_expert_intermediate_size": sparse[0].shared_ffn or None,
            "moe_router_enable_expert_bias": sparse[0].expert_bias,
            "moe_router_score_function": "sigmoid" if sparse[0].expert_bias else "softmax",
            "moe_router_pre_softmax": sparse[0].top_k == 1,
            "moe_router_dtype": "fp32",
            "moe_grouped_gemm": True,
        }
    for kind in model.kinds:
        options |= _mixer_options(kind.mixer)
    return options


def _mixer_options(mixer: object) -> dict[str, Any]:
    if isinstance(mixer, Mla):
        return {
            "q_lora_rank": mixer.q_lora,
            "kv_lora_rank": mixer.kv_lora,
            "qk_pos_emb_head_dim": mixer.qk_rope,
        }
    if isinstance(mixer, Attention) and mixer.output_gate:
        return {"attention_output_gate": True}
    if isinstance(mixer, LinearAttention):
        return {"linear_num_key_heads": mixer.k_heads, "linear_num_value_heads": mixer.v_heads}
    if isinstance(mixer, Mamba2):
        return {
            "mamba_num_heads": mixer.heads,
            "mamba_num_groups": mixer.groups,
            "mamba_state_dim": mixer.state,
            "mamba_head_dim": mixer.head_dim,
        }
    return {}


def cluster_options(cluster: Cluster) -> dict[str, Any]:
    capability = cluster.gpu.compute_capability
    options: dict[str, Any] = {
        "world_size": cluster.world,
        "gpus_per_node": cluster.gpus_per_node,
        "nvlink_domain": cluster.nvlink_domain,
        "gpu_name": cluster.gpu.name,
        "gpu_architecture": cluster.gpu.architecture,
    }
    return options | ({"compute_capability": capability} if capability else {})


def job_options(job: Job) -> dict[str, Any]:
    """Precision, batch, optimizer and task in Megatron's arguments."""
    fp8 = {"fp8": "delayed", "fp8-current": "tensorwise", "fp8-block": "blockwise", "mxfp8": "mxfp8"}
    precise = job.optimizer == "adam-precision-aware"
    options: dict[str, Any] = {
        "seq_length": job.seq_length,
        "global_batch_size": job.global_batch,
        "bf16": job.precision != "fp16",
        "fp16": job.precision == "fp16",
        "pipeline_dtype": "fp16" if job.precision == "fp16" else "bf16",
        "fp8": "hybrid" if job.precision in fp8 else None,
        "fp4": "e2m1" if job.precision == "nvfp4" else None,
        "optimizer": "adam" if precise else job.optimizer,
        "use_precision_aware_optimizer": precise,
        "grad_reduce_in_bf16": job.grad_dtype == "bf16",
        "task": job.task,
    }
    if job.hidden_dropout or job.attention_dropout:
        options |= {"hidden_dropout": job.hidden_dropout, "attention_dropout": job.attention_dropout}
    if job.precision in fp8:
        options["fp8_recipe"] = fp8[job.precision]
    return options


def execution_options(execution: Execution, model: Model | None) -> dict[str, Any]:
    """Recompute, dispatcher, overlaps, graphs, sharding in Megatron's arguments."""
    overlaps = execution.overlaps
    options: dict[str, Any] = {
        "tp_comm_overlap": "tp" in overlaps,
        "overlap_grad_reduce": "dp" in overlaps,
        "overlap_param_gather": "dp" in overlaps and execution.distributed_optimizer,
        "overlap_moe_expert_parallel_comm": "ep" in overlaps,
        "use_distributed_optimizer": execution.distributed_optimizer or execution.fsdp,
        "use_megatron_fsdp": execution.fsdp,
        "optimizer_cpu_offload": execution.optimizer_offload > 0,
        "optimizer_offload_fraction": execution.optimizer_offload,
        "cp_comm_type": {"allgather": "all_gather"}.get(execution.cp_comm, execution.cp_comm),
        "moe_expert_capacity_factor": execution.capacity_factor,
        "transformer_impl": execution.transformer_impl.replace("-", "_"),
    }
    if model is not None and model.is_moe:
        flex = execution.dispatcher in ("deepep", "hybridep")
        options["moe_token_dispatcher_type"] = "flex" if flex else execution.dispatcher
        options |= {"moe_flex_dispatcher_backend": execution.dispatcher} if flex else {}
    if execution.fsdp:
        options |= {
            "ckpt_format": "fsdp_dtensor",
            "data_parallel_sharding_strategy": execution.fsdp_sharding,
        }
    return options | _recompute_options(execution) | _graph_options(execution) | _rarer_options(execution)


def _recompute_options(execution: Execution) -> dict[str, Any]:
    recompute = execution.recompute
    if recompute.granularity == "none":
        return {"recompute_granularity": None}
    options: dict[str, Any] = {"recompute_granularity": recompute.granularity}
    if recompute.granularity == "selective":
        return options | {"recompute_modules": list(recompute.modules) or ["core_attn"]}
    return options | {
        "recompute_method": recompute.method,
        "recompute_num_layers": recompute.num_layers or 1,
    }


GRAPH_MODULES = {
    "attn": ["attn"],
    "router": ["moe_router", "moe_preprocess"],
    "moe": ["attn", "moe_router", "moe_preprocess"],
}
"""What the named scopes of CUDA graphs capture, in Megatron's words."""


def _graph_options(execution: Execution) -> dict[str, Any]:
    if execution.cuda_graphs == "full":
        return {
            "cuda_graph_impl": "full_iteration",
            "cuda_graph_modules": [],
            "check_for_nan_in_loss_and_grad": False,
        }
    captured = GRAPH_MODULES.get(execution.cuda_graphs, [])
    return {
        "cuda_graph_impl": "transformer_engine" if captured else "none",
        "cuda_graph_modules": captured,
    }


def _rarer_options(execution: Execution) -> dict[str, Any]:
    """Options that are named only where they differ from the engine's own default."""
    options: dict[str, Any] = {}
    if execution.optimizer_instances > 1:
        options["num_distributed_optimizer_instances"] = execution.optimizer_instances
    if execution.vp_group is not None:
        options["microbatch_group_size_per_vp_stage"] = execution.vp_group
    if execution.fp8_param_gather is not None:
        options["fp8_param"] = execution.fp8_param_gather
    if execution.offload_modules:
        options["fine_grained_activation_offloading"] = True
        options["offload_modules"] = list(execution.offload_modules)
    if execution.rank_capacity is not None:
        options["moe_expert_rank_capacity_factor"] = execution.rank_capacity
    if execution.paged_stash is not None:
        options |= {
            "moe_paged_stash": True,
            "moe_paged_stash_buffer_size_factor_cuda": execution.paged_stash,
        }
    if execution.cpu_offload_layers:
        options |= {"cpu_offloading": True, "cpu_offloading_num_layers": execution.cpu_offload_layers}
    if execution.grouped_mlp_fusion:
        options["use_transformer_engine_op_fuser"] = True
    return options
