"""Rules of activation recompute and offload."""

from __future__ import annotations

from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

MODULES = {
    "core_attn": "2023-01-01",
    "mlp": "2025-05-01",
    "moe": "2025-05-01",
    "moe_act": "2025-05-01",
    "layernorm": "2025-05-01",
    "mla_up_proj": "2025-05-01",
    "shared_experts": "2025-10-01",
    "gdn_norm_out": "2026-06-15",
    "gdp_in_proj": "2026-08-01",
    "gdp_qkv": "2026-08-01",
    "mhc": "2026-08-01",
}
"""Modules that selective recompute knows, and the date of the code that brought each."""


def selective(v: View) -> bool:
    return bool(v.get("recompute_granularity") == "selective")


def known_modules(v: View) -> tuple[str, ...]:
    return tuple(module for module, since in MODULES.items() if since <= v.code_date)


def unknown_modules(v: View) -> list[str]:
    return [module for module in v.listed("recompute_modules") if module not in known_modules(v)]


def _full_fault(v: View) -> str:
    granularity, method = v["recompute_granularity"], v.get("recompute_method")
    if granularity not in ("full", "selective"):
        return f"recompute granularity {granularity} is neither full nor selective"
    if method is not None and method not in ("block", "uniform"):
        return f"recompute method {method} is neither block nor uniform"
    if granularity == "full" and method is None:
        return "full recompute without a method (block or uniform)"
    if granularity == "full" and v.get("recompute_num_layers") is None:
        return "full recompute without recompute_num_layers"
    return ""


FULL = Rule(
    id="full-recompute-method",
    aliases=("R225",),
    area="recompute",
    must="recompute is full or selective, and full recompute has a method and a number of layers",
    why="The method says which layers, the number how many.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.get("recompute_granularity") is not None,
    holds=lambda v: not _full_fault(v),
    message=_full_fault,
    fix="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    breaks=given(recompute_granularity="full"),
    passes=given(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1),
)

SELECTIVE = Rule(
    id="selective-has-no-layers",
    aliases=("R226",),
    area="recompute",
    must="selective recompute has no number of layers",
    why="It recomputes parts of every layer. (Megatron-LM refuses a method as well.)",
    severity="error",
    enforced_by=CORE,
    source=f"{CONFIG}; {ARGUMENTS}",
    applies=selective,
    holds=lambda v: (
        v.get("recompute_num_layers") is None
        and (v.framework != "megatron-lm" or v.get("recompute_method") is None)
    ),
    message="selective recompute with recompute_num_layers {recompute_num_layers}, method {recompute_method}",
    fix="drop --recompute-num-layers and --recompute-method",
    breaks=given(recompute_granularity="selective", recompute_num_layers=2),
    passes=given(recompute_granularity="selective"),
)

MODULES_UNSET = Rule(
    id="recompute-modules-unset",
    aliases=("R227",),
    area="recompute",
    must="selective recompute names its modules",
    why="Unset it recomputes core_attn.",
    severity="warn",
    enforced_by=CORE,
    effect="fills",
    source=CONFIG,
    applies=selective,
    holds=lambda v: v.gave("recompute_modules"),
    message="recompute modules unset: core_attn",
    fix="--recompute-modules ...",
    breaks=given(recompute_granularity="selective"),
    passes=given(recompute_granularity="selective", recompute_modules=["mlp"]),
)

KNOWN = Rule(
    id="recompute-modules-known",
    aliases=("R228",),
    area="recompute",
    must="the modules of selective recompute are known",
    why="Each stands for one place in the code.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=selective,
    holds=lambda v: not unknown_modules(v),
    message=lambda v: (
        f"recompute modules {', '.join(unknown_modules(v))} are not known; known: "
        f"{', '.join(known_modules(v))}"
    ),
    fix="use known modules",
    breaks=given(recompute_granularity="selective", recompute_modules=["attn"]),
    passes=given(recompute_granularity="selective", recompute_modules=["core_attn"]),
)


def _module_fault(v: View) -> str:
    modules = v.listed("recompute_modules")
    variant = v.get("experimental_attention_variant")
    faults = {
        "moe_act without grouped GEMM": "moe_act" in modules and not v.on("moe_grouped_gemm"),
        "mla_up_proj without multi-latent attention": "mla_up_proj" in modules
        and not v.on("multi_latent_attention"),
        "gdn_norm_out without gated delta nets": "gdn_norm_out" in modules and variant != "gated_delta_net",
        "shared_experts with moe_shared_expert_overlap": "shared_experts" in modules
        and v.get("moe_shared_expert_intermediate_size") is not None
        and v.on("moe_shared_expert_overlap"),
        "mhc without hyper-connections, or with mlp": "mhc" in modules
        and (not v.on("enable_mhc_connections") or "mlp" in modules),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


FITS = Rule(
    id="recompute-module-fits-model",
    aliases=("R229",),
    area="recompute",
    must="recomputed modules exist in the model: moe_act needs grouped GEMM, mla_up_proj MLA, gdn_norm_out "
    "gated "
    "delta nets, shared_experts no overlap, mhc hyper-connections",
    why="There is nothing to recompute otherwise.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=selective,
    holds=lambda v: not _module_fault(v),
    message=lambda v: f"selective recompute of {_module_fault(v)}",
    fix="drop the module",
    breaks=given(recompute_granularity="selective", recompute_modules=["mla_up_proj"]),
    passes=given(
        recompute_granularity="selective", recompute_modules=["mla_up_proj"], multi_latent_attention=True
    ),
)


def _fp8_fault(v: View) -> str:
    if v["fp8_recipe"] == "delayed":
        return "delayed scaling"
    old = v.get("te_version") is not None and v.release("te_version") < (2, 6)
    return f"Transformer Engine {v['te_version']} (it needs 2.6)" if old else ""


FP8 = Rule(
    id="recompute-fp8",
    aliases=("R230",),
    area="recompute",
    must="recompute of moe_act or layernorm in fp8 is used without delayed scaling, with Transformer "
    "Engine 2.6",
    why="Delayed scales would have moved on when the part is computed again.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: (
        selective(v)
        and bool(v.get("fp8"))
        and bool({"moe_act", "layernorm"} & set(v.listed("recompute_modules")))
    ),
    holds=lambda v: not _fp8_fault(v),
    message=lambda v: f"recompute of {', '.join(v.listed('recompute_modules'))} in fp8 with {_fp8_fault(v)}",
    fix="--fp8-recipe tensorwise (or blockwise, mxfp8)",
    breaks=given(fp8="hybrid", recompute_granularity="selective", recompute_modules=["layernorm"]),
    passes=given(
        fp8="hybrid",
        fp8_recipe="tensorwise",
        recompute_granularity="selective",
        recompute_modules=["layernorm"],
    ),
)

CORE_ATTENTION = Rule(
    id="core-attn-recompute-fused",
    aliases=("R231",),
    area="recompute",
    must="core_attn is recomputed only with unfused attention",
    why="Fused attention keeps no scores: recomputing it costs time and saves next to nothing.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    source=CONFIG,
    applies=lambda v: selective(v) and v["transformer_impl"] == "transformer_engine",
    holds=lambda v: (
        "core_attn" not in v.listed("recompute_modules") or v.get("attention_backend") in ("unfused", "local")
    ),
    message="core_attn is recomputed although Transformer Engine's attention is fused",
    fix="recompute mlp, moe_act, layernorm or mla_up_proj instead",
    breaks=given(recompute_granularity="selective", recompute_modules=["core_attn"]),
    passes=given(recompute_granularity="selective", recompute_modules=["mlp"]),
)


def _offload_fault(v: View) -> str:
    layers = v.get("cpu_offloading_num_layers", 0)
    if not 0 <= layers < v.layers:
        return f"{layers} of {v.layers} layers are to be offloaded, at most {v.layers - 1} can be"
    if v.pp > 1:
        return f"pp is {v.pp}, and it works on one stage only"
    return "it excludes activation recompute" if v.get("recompute_granularity") is not None else ""


LAYERS = Rule(
    id="cpu-offload-conditions",
    aliases=("R232",),
    area="offload",
    must="cpu_offloading is for fewer layers than there are, PP 1 and no recompute",
    why="Whole layers move to the host and back around one stage.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("cpu_offloading"),
    holds=lambda v: not _offload_fault(v),
    message=lambda v: f"cpu_offloading: {_offload_fault(v)}",
    fix="lower cpu_offloading_num_layers, use pp 1, drop recompute, or use fine-grained offload",
    breaks=given(layers=32, pp=2, cpu_offloading=True, cpu_offloading_num_layers=16),
    passes=given(layers=32, pp=1, cpu_offloading=True, cpu_offloading_num_layers=16),
)

MLP_BIAS = Rule(
    id="mlp-recompute-needs-no-bias",
    area="recompute",
    must="the module mlp is recomputed only in dense layers without linear biases",
    why="A recomputed block returns its bias beside its output, and the backward pass of the two calls "
    "itself until Python stops it (RecursionError in the first step).",
    severity="error",
    enforced_by=CORE,
    since="2025-05-01",
    source="megatron/core/transformer/transformer_layer.py, _forward_mlp (recompute_mlp); "
    "megatron/core/tensor_parallel/random.py, CheckpointFunction; run with 0.16.1",
    applies=lambda v: (
        selective(v)
        and "mlp" in v.listed("recompute_modules")
        and (not v.is_moe or v.on("has_dense_layers"))
        and not (v.get("fp8") or v.get("fp4"))
    ),
    holds=lambda v: not v.on("add_bias_linear"),
    message="recompute of mlp with add_bias_linear on: the first backward pass never ends",
    fix="--disable-bias-linear, or drop mlp from --recompute-modules",
    mask=True,
    per_execution=True,
    breaks=given(recompute_granularity="selective", recompute_modules=["mlp"], add_bias_linear=True),
    passes=given(recompute_granularity="selective", recompute_modules=["mlp"], add_bias_linear=False),
)

EXCLUDES = Rule(
    id="cpu-offload-excludes",
    aliases=("R233",),
    area="offload",
    must="cpu_offloading excludes fine-grained offload, the paged stash and CUDA graphs of layers",
    why="They move the same activations.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("cpu_offloading"),
    holds=lambda v: not _excluded(v),
    message=lambda v: f"cpu_offloading with {_excluded(v)}",
    fix="keep one of them",
    breaks=given(layers=32, cpu_offloading=True, cpu_offloading_num_layers=8, cuda_graph_impl="local"),
    passes=given(layers=32, cpu_offloading=True, cpu_offloading_num_layers=8),
)


def _excluded(v: View) -> str:
    if v.on("fine_grained_activation_offloading"):
        return "fine-grained offload"
    if v.on("moe_paged_stash"):
        return "the paged stash"
    graphs = v["cuda_graph_impl"]
    whole = graphs == "full_iteration" or "full_iteration" in v.listed("cuda_graph_modules")
    return f"CUDA graphs ({graphs})" if graphs != "none" and not whole else ""


OFFLOAD_MODULES = (
    "core_attn",
    "attn_proj",
    "expert_fc1",
    "fused_group_mlp",
    "moe_act",
    "attn_norm",
    "mlp_norm",
    "qkv_linear",
)


def _fine_fault(v: View) -> str:
    modules = set(v.listed("offload_modules"))
    unknown = modules - set(OFFLOAD_MODULES)
    if not modules:
        return "no module named"
    if unknown:
        return f"unknown modules {', '.join(sorted(unknown))}; known: {', '.join(OFFLOAD_MODULES)}"
    if "attn_proj" in modules and "core_attn" not in modules:
        return "attn_proj without core_attn, whose output it needs"
    inside = {"moe_act", "expert_fc1", "fused_group_mlp"} & modules
    if selective(v) and "moe" in v.listed("recompute_modules") and inside:
        return f"{', '.join(sorted(inside))} inside a recomputed moe layer"
    if "fused_group_mlp" in modules:
        if not v.on("use_transformer_engine_op_fuser"):
            return "fused_group_mlp without use_transformer_engine_op_fuser"
        if modules & {"expert_fc1", "moe_act"}:
            return "fused_group_mlp together with parts of it"
    return ""


FINE = Rule(
    id="fine-offload-modules",
    aliases=("R234",),
    area="offload",
    must="fine-grained offload names known modules that fit together",
    why="Each is one saved tensor; some need others.",
    severity="error",
    enforced_by=CORE,
    since="2026-01-15",
    source=CONFIG,
    applies=lambda v: v.on("fine_grained_activation_offloading"),
    holds=lambda v: not _fine_fault(v),
    message=lambda v: f"fine-grained offload: {_fine_fault(v)}",
    fix="--offload-modules core_attn attn_proj, or others that fit",
    breaks=given(fine_grained_activation_offloading=True, offload_modules=["attn_proj"]),
    passes=given(fine_grained_activation_offloading=True, offload_modules=["core_attn", "attn_proj"]),
)


def _fine_graph_fault(v: View) -> str:
    impl, modules = v["cuda_graph_impl"], set(v.listed("offload_modules"))
    graphs = v.listed("cuda_graph_modules")
    partial = modules <= {"expert_fc1", "moe_act", "fused_group_mlp"} and graphs
    if impl == "local" and not partial:
        return f"local graphs with offload of {', '.join(sorted(modules))}"
    if "moe" in graphs:
        return "graphs of moe"
    return "no warm-up steps" if v.get("cuda_graph_warmup_steps", 3) <= 0 else ""


FINE_GRAPHS = Rule(
    id="fine-offload-graphs",
    aliases=("R235",),
    area="offload",
    must="fine-grained offload with CUDA graphs uses TE or full-iteration graphs (local ones for MoE parts), "
    "warm-up steps, and no graph of moe",
    why="A graph must find the tensors where they were when it was captured.",
    severity="error",
    enforced_by=CORE,
    since="2026-01-15",
    source=CONFIG,
    applies=lambda v: v.on("fine_grained_activation_offloading") and v["cuda_graph_impl"] != "none",
    holds=lambda v: not _fine_graph_fault(v),
    message=lambda v: f"fine-grained offload does not work with {_fine_graph_fault(v)}",
    fix="--cuda-graph-impl transformer_engine",
    breaks=given(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn"],
        cuda_graph_impl="local",
        cuda_graph_modules=["attn"],
    ),
    passes=given(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn"],
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["attn"],
    ),
)

FINE_TE = Rule(
    id="fine-offload-needs-te",
    aliases=("R236",),
    area="offload",
    must="fine-grained offload needs the Transformer Engine implementation",
    why="The hooks are in its modules.",
    severity="error",
    enforced_by=LM,
    since="2026-01-15",
    source=ARGUMENTS,
    applies=lambda v: v.on("fine_grained_activation_offloading"),
    holds=lambda v: v["transformer_impl"] == "transformer_engine",
    message="fine-grained offload with the {transformer_impl} implementation",
    fix="--transformer-impl transformer_engine",
    breaks=given(
        fine_grained_activation_offloading=True, offload_modules=["core_attn"], transformer_impl="local"
    ),
    passes=given(fine_grained_activation_offloading=True, offload_modules=["core_attn"]),
)

RULES = (
    FULL,
    SELECTIVE,
    MODULES_UNSET,
    KNOWN,
    FITS,
    FP8,
    CORE_ATTENTION,
    LAYERS,
    MLP_BIAS,
    EXCLUDES,
    FINE,
    FINE_GRAPHS,
    FINE_TE,
)
