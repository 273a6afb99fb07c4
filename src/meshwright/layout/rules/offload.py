"""Rules of moving activations to the host."""

from __future__ import annotations

from meshwright.layout.rules.recompute import selective
from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View


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
    LAYERS,
    EXCLUDES,
    FINE,
    FINE_GRAPHS,
    FINE_TE,
)
