"""Rules of activation recompute."""

from __future__ import annotations

from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, Rule, given
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
    if granularity == "full" and method == "uniform" and v["recompute_num_layers"] < 1:
        return f"uniform recompute of {v['recompute_num_layers']} layers at a time never ends"
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
    mask=True,
    per_execution=True,
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

RULES = (
    FULL,
    SELECTIVE,
    MODULES_UNSET,
    KNOWN,
    FITS,
    FP8,
    CORE_ATTENTION,
    MLP_BIAS,
)
