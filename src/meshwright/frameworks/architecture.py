"""A model, a job and execution flags from the options that a file states, for the memory estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from meshwright.errors import MeshwrightError
from meshwright.frameworks.precision import precision_of
from meshwright.job.spec import (
    CpComm,
    CudaGraphs,
    Dispatcher,
    Execution,
    Job,
    OverlapKind,
    Recompute,
    ShardingStrategy,
    Task,
)
from meshwright.layout.layout import Layout
from meshwright.model.spec import Attention, Ffn, Layer, Mixer, Mla, Mlp, Model, Moe

GPT2_VOCABULARY = 50_257
"""Vocabulary where none is stated; it only adds to the ends of the model."""
MAX_LAYERS = 2000
SHAPE = ("num_layers", "hidden_size", "num_attention_heads")


def model_from(options: Mapping[str, Any], name: str = "the model of the script") -> Model | None:
    """The model that stated options describe; None when its shape is not stated."""
    if not all(_count(options, key) for key in SHAPE) or options["num_layers"] > MAX_LAYERS:
        return None
    mixer = _mixer(options)
    gated = any(options.get(name) for name in ("swiglu", "gated_linear_unit", "quick_geglu"))
    bias = options.get("add_bias_linear") is True and not gated
    dense = Layer(mixer=mixer, ffn=Mlp(ffn=_ffn(options), gated=gated, bias=bias))
    kinds: tuple[Layer, ...] = (dense,)
    pattern = [0] * int(options["num_layers"])
    if _count(options, "num_moe_experts"):
        kinds = (dense, Layer(mixer=mixer, ffn=_experts(options, gated)))
        pattern = _pattern(options)
        if 0 not in pattern:
            kinds, pattern = (kinds[1],), [0] * len(pattern)
    return Model(
        name=name,
        family="stated",
        hidden=options["hidden_size"],
        kinds=kinds,
        pattern=tuple(pattern),
        vocab_size=_count(options, "vocab_size") or GPT2_VOCABULARY,
        tied=options.get("untie_embeddings_and_output_weights") is not True,
        max_position=_count(options, "max_position_embeddings") or None,
        mtp=(len(kinds) - 1,) * (_count(options, "mtp_num_layers") or 0),
    )


def _count(options: Mapping[str, Any], name: str) -> int:
    value = options.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _ffn(options: Mapping[str, Any]) -> int:
    return _count(options, "ffn_hidden_size") or 4 * int(options["hidden_size"])


def _mixer(options: Mapping[str, Any]) -> Mixer:
    heads = int(options["num_attention_heads"])
    if options.get("multi_latent_attention") is True and _count(options, "kv_lora_rank"):
        return Mla(
            heads=heads,
            q_lora=_count(options, "q_lora_rank") or None,
            kv_lora=_count(options, "kv_lora_rank"),
            qk_nope=_count(options, "qk_head_dim") or 128,
            qk_rope=_count(options, "qk_pos_emb_head_dim") or 64,
            v_head=_count(options, "v_head_dim") or 128,
        )
    width = _count(options, "kv_channels") or max(int(options["hidden_size"]) // heads, 1)
    return Attention(heads=heads, kv_heads=_count(options, "num_query_groups") or heads, head_dim=width)


def _experts(options: Mapping[str, Any], gated: bool) -> Ffn:
    return Moe(
        experts=int(options["num_moe_experts"]),
        top_k=_count(options, "moe_router_topk") or 2,
        ffn=_count(options, "moe_ffn_hidden_size") or _ffn(options),
        gated=gated,
        shared_ffn=_count(options, "moe_shared_expert_intermediate_size"),
    )


def _pattern(options: Mapping[str, Any]) -> list[int]:
    """Which layers are MoE: moe_layer_freq as a list, or every n-th."""
    layers, freq = int(options["num_layers"]), options.get("moe_layer_freq")
    if isinstance(freq, (list, tuple)) and len(freq) == layers:
        return [int(bool(item)) for item in freq]
    every = freq if isinstance(freq, int) and freq > 0 else 1
    return [int(index % every == 0) for index in range(layers)]


def layout_from(options: Mapping[str, Any]) -> Layout | None:
    """Degrees as a layout; None when one is no whole number."""
    try:
        return Layout(
            tp=options["tensor_model_parallel_size"],
            pp=options["pipeline_model_parallel_size"],
            vpp=options.get("virtual_pipeline_model_parallel_size") or 1,
            cp=options["context_parallel_size"],
            ep=options["expert_model_parallel_size"],
            etp=options["expert_tensor_parallel_size"],
            mbs=options.get("micro_batch_size") or 1,
            sp=bool(options.get("sequence_parallel")),
        )
    except (MeshwrightError, KeyError, TypeError):
        return None


def job_from(options: Mapping[str, Any]) -> Job | None:
    """Sequence, batch, precision, optimizer."""
    sequence, batch = _count(options, "seq_length"), _count(options, "global_batch_size")
    if not sequence or not batch:
        return None
    # the flag alone leaves the moments in fp32 (megatron/core/optimizer/optimizer_config.py, exp_avg_dtype)
    low = str(options.get("exp_avg_dtype", "fp32")).removeprefix("torch.") not in ("fp32", "float32", "None")
    precise = options.get("use_precision_aware_optimizer") is True and low
    return Job(
        seq_length=sequence,
        global_batch=batch,
        precision=precision_of(options),  # type: ignore[arg-type]
        optimizer="adam-precision-aware" if precise else "adam",
        grad_dtype="bf16" if options.get("grad_reduce_in_bf16") is True else "fp32",
        task=_task(options),
        lora_rank=_count(options, "lora_rank") or 32,
    )


def _task(options: Mapping[str, Any]) -> Task:
    found: Task = options["task"] if options.get("task") in get_args(Task) else "pretrain"
    return found


def execution_from(options: Mapping[str, Any]) -> Execution:
    """The execution flags that options describe: what `execution_options` of the rules writes."""
    dispatcher = options.get("moe_token_dispatcher_type")
    backend = options.get("moe_flex_dispatcher_backend")
    name = {"flex": backend or "deepep"}.get(str(dispatcher), dispatcher)
    capacity = options.get("moe_expert_capacity_factor")
    sharding: ShardingStrategy = "optim_grads_params"
    if options.get("data_parallel_sharding_strategy") in get_args(ShardingStrategy):
        sharding = options["data_parallel_sharding_strategy"]
    comm = {"all_gather": "allgather"}.get(str(options.get("cp_comm_type")), options.get("cp_comm_type"))
    return Execution(
        recompute=_recompute(options),
        dispatcher=name if name in get_args(Dispatcher) else "alltoall",  # type: ignore[arg-type]
        cuda_graphs=_graphs(options),
        overlaps=frozenset(_overlaps(options)),
        distributed_optimizer=options.get("use_distributed_optimizer") is True,
        fsdp=options.get("use_megatron_fsdp") is True or options.get("use_torch_fsdp2") is True,
        optimizer_offload=_offload(options),
        cp_comm=comm if comm in get_args(CpComm) else "p2p",  # type: ignore[arg-type]
        capacity_factor=float(capacity) if isinstance(capacity, (int, float)) else None,
        optimizer_instances=_count(options, "num_distributed_optimizer_instances") or 1,
        vp_group=_group(options),
        fp8_param_gather=options["fp8_param"] if isinstance(options.get("fp8_param"), bool) else None,
        fsdp_sharding=sharding,
        offload_modules=_words(options.get("offload_modules")),
        cpu_offload_layers=_count(options, "cpu_offloading_num_layers"),
        rank_capacity=_share(options, "moe_expert_rank_capacity_factor"),
        paged_stash=_share(options, "moe_paged_stash_buffer_size_factor_cuda")
        if options.get("moe_paged_stash") is True
        else None,
    )


def _share(options: Mapping[str, Any], name: str) -> float | None:
    """A factor above 0, or None."""
    value = options.get(name)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _group(options: Mapping[str, Any]) -> int | None:
    """Micro-batches a virtual stage takes in a row, where that is not the pipeline size."""
    group = _count(options, "microbatch_group_size_per_vp_stage")
    return group if group and group != options.get("pipeline_model_parallel_size") else None


def _offload(options: Mapping[str, Any]) -> float:
    if options.get("optimizer_cpu_offload") is not True:
        return 0.0
    fraction = options.get("optimizer_offload_fraction", 1.0)
    return min(max(float(fraction), 0.0), 1.0) if isinstance(fraction, (int, float)) else 1.0


def _graphs(options: Mapping[str, Any]) -> CudaGraphs:
    implementation = options.get("cuda_graph_impl")
    if implementation in (None, "none"):
        return "none"
    if implementation in ("full_iteration", "local"):
        return "full"
    modules = _words(options.get("cuda_graph_modules"))
    return "moe" if any(module.startswith("moe") for module in modules) else "attn"


def _overlaps(options: Mapping[str, Any]) -> list[OverlapKind]:
    found: list[OverlapKind] = []
    if options.get("tp_comm_overlap") is True:
        found.append("tp")
    if options.get("overlap_grad_reduce") is True:
        found.append("dp")
    if options.get("overlap_moe_expert_parallel_comm") is True:
        found.append("ep")
    return found


def _words(value: Any) -> tuple[str, ...]:
    """A list option: a list, or words with commas or spaces."""
    if isinstance(value, str):
        return tuple(value.strip("[]").replace(",", " ").split())
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _recompute(options: Mapping[str, Any]) -> Recompute:
    granularity = options.get("recompute_granularity")
    layers = _count(options, "recompute_num_layers") or None
    try:
        if granularity == "full":
            method: Literal["uniform", "block"] = (
                "block" if options.get("recompute_method") == "block" else "uniform"
            )
            return Recompute(granularity="full", method=method, num_layers=layers)
        if granularity == "selective":
            modules = _words(options.get("recompute_modules")) or ("core_attn",)
            return Recompute(granularity="selective", modules=modules)
    except MeshwrightError:
        return Recompute(granularity="selective", modules=("core_attn",))
    return Recompute()
