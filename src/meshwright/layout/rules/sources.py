"""Options from what other rooms know: names made canonical; models, jobs and executions as options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.facts import load_json
from meshwright.model.spec import Attention, LinearAttention, Mamba2, Mla, Mlp, Model, Moe

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Job
    from meshwright.layout.layout import Layout


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
    return said


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
    if layout is not None:
        options |= layout_options(layout)
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
    if job.precision in fp8:
        options["fp8_recipe"] = fp8[job.precision]
    return options


def execution_options(execution: Execution, model: Model | None) -> dict[str, Any]:
    """Recompute, dispatcher, overlaps, graphs, sharding in Megatron's arguments."""
    recompute, overlaps = execution.recompute, execution.overlaps
    moe = model is not None and model.is_moe
    flex = execution.dispatcher in ("deepep", "hybridep")
    graphs = {"attn": ["attn"], "moe": ["attn", "moe_router", "moe_preprocess"]}
    options: dict[str, Any] = {
        "recompute_granularity": None if recompute.granularity == "none" else recompute.granularity,
        "cuda_graph_impl": {"none": "none", "full": "full_iteration"}.get(
            execution.cuda_graphs, "transformer_engine"
        ),
        "cuda_graph_modules": graphs.get(execution.cuda_graphs, []),
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
    }
    if recompute.granularity == "selective":
        options["recompute_modules"] = list(recompute.modules) or ["core_attn"]
    if recompute.granularity == "full":
        options |= {"recompute_method": recompute.method, "recompute_num_layers": recompute.num_layers or 1}
    if moe:
        options["moe_token_dispatcher_type"] = "flex" if flex else execution.dispatcher
        options |= {"moe_flex_dispatcher_backend": execution.dispatcher} if flex else {}
    if execution.cuda_graphs == "full":
        options["check_for_nan_in_loss_and_grad"] = False
    if execution.fsdp:
        options |= {"ckpt_format": "fsdp_dtensor", "data_parallel_sharding_strategy": "optim_grads_params"}
    return options
