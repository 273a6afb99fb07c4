"""Rules of CUDA graphs: implementations, modules, and what cannot be captured."""

from __future__ import annotations

from meshwright.layout.rules.routing import MOE, capacity
from meshwright.layout.rules.rule import ARGUMENTS, BRIDGE, CONFIG, CORE, LM, LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View

TE = given(cuda_graph_impl="transformer_engine")


def impl(v: View) -> str:
    """The implementation; the old module name full_iteration counts as the implementation of that name."""
    return (
        "full_iteration" if "full_iteration" in v.listed("cuda_graph_modules") else str(v["cuda_graph_impl"])
    )


def modules(v: View) -> set[str]:
    """Captured modules; local graphs add router and preprocessing to each other."""
    found = set(v.listed("cuda_graph_modules")) - {"full_iteration", "full"}
    if impl(v) == "local" and found & {"moe_router", "moe_preprocess"}:
        found |= {"moe_router", "moe_preprocess"}
    return found


def layered(v: View) -> bool:
    """Graphs of layers or their modules are captured."""
    return impl(v) in ("local", "transformer_engine")


FULL_ITERATION_SINCE = "2026-04-15"
"""Since then a whole iteration is an implementation of its own; before it was a module of `local`."""


def known_impls(v: View) -> tuple[str, ...]:
    old = ("none", "transformer_engine", "local")
    return (*old, "full_iteration") if v.code_date >= FULL_ITERATION_SINCE else old


IMPLEMENTATION = Rule(
    id="graph-implementation",
    aliases=("R237",),
    area="graph",
    must="the implementation of CUDA graphs is none, transformer_engine, local or full_iteration; the last "
    "names no "
    "modules",
    why="A full-iteration graph captures everything.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    holds=lambda v: (
        impl(v) in ("none", "transformer_engine", "local", "full_iteration")
        and (v["cuda_graph_impl"] in known_impls(v) or v.on("planned"))
        and not (v["cuda_graph_impl"] == "full_iteration" and modules(v))
    ),
    message="CUDA graphs {cuda_graph_impl} with modules {cuda_graph_modules}",
    fix="--cuda-graph-impl full_iteration without modules, or transformer_engine with them",
    breaks=given(cuda_graph_impl="full_iteration", cuda_graph_modules=["attn"]),
    passes=given(cuda_graph_impl="full_iteration"),
)


def _together(v: View) -> str:
    found = modules(v)
    if {"moe", "moe_router"} <= found:
        return "moe and moe_router are both captured; moe holds the router"
    return "moe_preprocess is captured without moe_router" if _lone_preprocess(found) else ""


def _lone_preprocess(found: set[str]) -> bool:
    return "moe_preprocess" in found and "moe_router" not in found


TOGETHER = Rule(
    id="graph-modules-together",
    aliases=("R238",),
    area="graph",
    must="moe excludes moe_router, and moe_preprocess needs moe_router",
    why="The preprocessing follows the router in one graph.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=layered,
    holds=lambda v: not _together(v),
    message=_together,
    fix="--cuda-graph-modules moe_router moe_preprocess",
    mask=True,
    per_execution=True,
    breaks=given(**MOE, **TE, cuda_graph_modules=["moe", "moe_router"]),
    passes=given(**MOE, **TE, cuda_graph_modules=["moe_router", "moe_preprocess"]),
)


def _all_moe(v: View) -> bool:
    if v.get("has_dense_layers") is not None:
        return not v["has_dense_layers"]
    freq = v.get("moe_layer_freq", 1)
    return 0 not in freq if isinstance(freq, (list, tuple)) else freq in (None, 1)


def _exists(v: View) -> str:
    found, dropping = modules(v), capacity(v) is not None
    if v.experts <= 1:
        names = found & {"moe", "moe_router"}
        return f"{', '.join(sorted(names))} of a dense model" if names else ""
    if "mlp" in found and _all_moe(v):
        return "mlp: the model has no dense layer"
    if dropping and v.on("moe_pad_expert_input_to_capacity"):
        return ""
    if "moe" in found:
        return "moe without dropping and padding to capacity: its shapes change"
    alltoall = v["moe_token_dispatcher_type"] == "alltoall"
    padded = dropping or v.on("moe_router_padding_for_quantization")
    if "moe_preprocess" in found and alltoall and padded:
        return "moe_preprocess of the alltoall dispatcher with capacity or fp8 padding: it waits for the host"
    return ""


EXISTS = Rule(
    id="graph-modules-exist",
    aliases=("R239",),
    area="graph",
    must="captured modules exist and have fixed shapes: moe needs experts with drop-and-pad, mlp a dense "
    "layer",
    why="A graph repeats the same kernels on the same shapes.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=layered,
    holds=lambda v: not _exists(v),
    message=lambda v: f"CUDA graphs cannot capture {_exists(v)}",
    fix="--cuda-graph-modules attn moe_router moe_preprocess",
    mask=True,
    per_execution=True,
    breaks=given(**MOE, **TE, cuda_graph_modules=["moe"]),
    passes=given(**MOE, **TE, cuda_graph_modules=["moe_router"]),
)

FULL_RECOMPUTE = Rule(
    id="graph-full-recompute",
    aliases=("R240",),
    area="graph",
    must="full recompute is used with full-iteration graphs or none",
    why="A captured layer cannot be run again from its input.",
    severity="error",
    enforced_by=CORE,
    since="2025-12-30",
    source=CONFIG,
    applies=layered,
    holds=lambda v: v.get("recompute_granularity") in (None, "selective"),
    message="full recompute with CUDA graphs of layers ({cuda_graph_impl})",
    fix="--cuda-graph-impl full_iteration or none, or selective recompute",
    mask=True,
    per_execution=True,
    breaks=given(
        **TE,
        cuda_graph_modules=["attn"],
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    passes=given(
        cuda_graph_impl="full_iteration",
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
)

MOE_RECOMPUTE = Rule(
    id="graph-moe-recompute",
    aliases=("R241",),
    area="graph",
    must="TE graphs of moe_router are used without recompute of moe",
    why="The router would be recomputed inside a layer that holds its graph.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: impl(v) == "transformer_engine" and v.get("recompute_granularity") == "selective",
    holds=lambda v: not ("moe" in v.listed("recompute_modules") and "moe_router" in modules(v)),
    message="CUDA graphs of moe_router with recompute of moe",
    fix="recompute moe_act instead",
    mask=True,
    per_execution=True,
    breaks=given(
        **MOE,
        **TE,
        cuda_graph_modules=["moe_router"],
        recompute_granularity="selective",
        recompute_modules=["moe"],
    ),
    passes=given(
        **MOE,
        **TE,
        cuda_graph_modules=["moe_router"],
        recompute_granularity="selective",
        recompute_modules=["moe_act"],
        moe_grouped_gemm=True,
    ),
)


def _random_fault(v: View) -> str:
    recomputed, captured = v.listed("recompute_modules"), modules(v)
    everything = impl(v) == "full_iteration" or not captured
    if v.get("attention_dropout", 0) and "core_attn" in recomputed and (everything or "attn" in captured):
        return f"attention dropout {v['attention_dropout']} in recomputed, captured attention"
    if v.get("hidden_dropout", 0):
        for module in ("mlp", "moe"):
            if module in recomputed and (everything or module in captured):
                return f"hidden dropout {v['hidden_dropout']} in recomputed, captured {module}"
    if v.get("moe_input_jitter_eps") and "moe" in recomputed and (everything or "moe" in captured):
        return "input jitter in recomputed, captured moe"
    return ""


RANDOM = Rule(
    id="graph-recompute-dropout",
    aliases=("R242",),
    area="graph",
    must="dropout and jitter are off in modules that are both captured and recomputed",
    why="The second run would draw other random numbers.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: impl(v) != "none" and v.get("recompute_granularity") == "selective",
    holds=lambda v: not _random_fault(v),
    message=lambda v: f"CUDA graphs with {_random_fault(v)}",
    fix="--attention-dropout 0 --hidden-dropout 0",
    breaks=given(
        **TE,
        cuda_graph_modules=["attn"],
        recompute_granularity="selective",
        recompute_modules=["core_attn"],
        attention_dropout=0.1,
    ),
    passes=given(
        **TE,
        cuda_graph_modules=["attn"],
        recompute_granularity="selective",
        recompute_modules=["core_attn"],
        attention_dropout=0.0,
    ),
)

NAN_CHECK = Rule(
    id="full-graph-nan-check",
    aliases=("R243",),
    area="graph",
    must="full-iteration graphs are used without the NaN check of the loss",
    why="The check waits for the host in the middle of the step.",
    severity="error",
    enforced_by=LM_BRIDGE,
    source=f"{ARGUMENTS}; Megatron Bridge training/config.py",
    applies=lambda v: impl(v) == "full_iteration",
    holds=lambda v: not v.on("check_for_nan_in_loss_and_grad"),
    message="full-iteration CUDA graphs with check_for_nan_in_loss_and_grad",
    fix="--no-check-for-nan-in-loss-and-grad",
    breaks=given(cuda_graph_impl="full_iteration", check_for_nan_in_loss_and_grad=True),
    passes=given(cuda_graph_impl="full_iteration", check_for_nan_in_loss_and_grad=False),
)

RNG_AUTO = Rule(
    id="graph-rng-tracker-on",
    aliases=("R244",),
    area="graph",
    must="CUDA graphs use the random-number tracker of Transformer Engine",
    why="Megatron-LM turns it on.",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    source=ARGUMENTS,
    applies=lambda v: impl(v) != "none" and v["transformer_impl"] == "transformer_engine",
    holds=lambda v: v.on("te_rng_tracker"),
    message="te_rng_tracker is turned on",
    fix="nothing to do",
    breaks=given(**TE),
    passes=given(**TE, te_rng_tracker=True),
)

RNG = Rule(
    id="graph-rng-tracker",
    aliases=("R245",),
    area="graph",
    must="in Bridge, CUDA graphs come with use_te_rng_tracker",
    why="Random numbers must be drawn in a way that a graph can repeat.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge models/gpt_provider.py, provide",
    applies=lambda v: impl(v) != "none" and v.said.get("use_te_rng_tracker") is not None,
    holds=lambda v: v.on("use_te_rng_tracker"),
    message="CUDA graphs with use_te_rng_tracker off",
    fix="rng.te_rng_tracker=true and model.use_te_rng_tracker=true",
    breaks=given(**TE, use_te_rng_tracker=False),
    passes=given(**TE, use_te_rng_tracker=True),
)

LOCAL = Rule(
    id="bridge-local-graphs",
    aliases=("R246",),
    area="graph",
    must="in Bridge, local graphs are for whole iterations (or inference)",
    why="Graphs of modules are those of Transformer Engine there.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge utils/cuda_graph.py, validate_cuda_graph_configuration",
    applies=lambda v: v["cuda_graph_impl"] == "local",
    holds=lambda v: "full_iteration" in v.listed("cuda_graph_modules"),
    message="local CUDA graphs of {cuda_graph_modules}",
    fix="cuda_graph_impl=transformer_engine",
    breaks=given(cuda_graph_impl="local", cuda_graph_modules=["attn"]),
    passes=given(**TE, cuda_graph_modules=["attn"]),
)

CLEARED = Rule(
    id="graph-scopes-cleared",
    aliases=("R247",),
    area="graph",
    must="modules to capture are named only with an implementation",
    why="Bridge clears them otherwise, and nothing is captured.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge utils/cuda_graph.py",
    applies=lambda v: v["cuda_graph_impl"] == "none",
    holds=lambda v: not v.listed("cuda_graph_modules"),
    message="cuda_graph_modules {cuda_graph_modules} are cleared: cuda_graph_impl is none",
    fix="cuda_graph_impl=transformer_engine, or drop the modules",
    breaks=given(cuda_graph_impl="none", cuda_graph_modules=["attn"]),
    passes=given(**TE, cuda_graph_modules=["attn"]),
)

RULES = (
    IMPLEMENTATION,
    TOGETHER,
    EXISTS,
    FULL_RECOMPUTE,
    MOE_RECOMPUTE,
    RANDOM,
    NAN_CHECK,
    RNG_AUTO,
    RNG,
    LOCAL,
    CLEARED,
)
