"""Rules of hiding the experts' exchange behind compute, and of delayed weight gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.layout.rules.routing import MOE
from meshwright.layout.rules.rule import ARGUMENTS, BRIDGE, CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

OVERLAP = given(
    **MOE,
    world=32,
    ep=8,
    overlap_moe_expert_parallel_comm=True,
    moe_token_dispatcher_type="alltoall",
    bf16=True,
)
COMM = "Megatron Bridge training/comm_overlap.py, _get_model_comm_overlap_cfgs"


def overlapped(v: View) -> bool:
    return v.on("overlap_moe_expert_parallel_comm")


def _vpp_set(v: View) -> Any:
    found = v.get("virtual_pipeline_model_parallel_size")
    return False if found is None else (np.greater(found, 1) if np.ndim(found) else True)


NEEDS_EP = Rule(
    id="ep-overlap-needs-ep",
    aliases=("R159", "R168"),
    area="ep_overlap",
    must="overlap of the experts' exchange needs EP > 1",
    why="With one EP rank nothing is exchanged.",
    severity="error",
    enforced_by=CORE,
    source=f"{CONFIG}; checked earlier in {COMM}",
    applies=overlapped,
    holds=lambda v: v.ep > 1,
    message="overlap_moe_expert_parallel_comm with ep={ep}",
    fix="drop the overlap, or use ep of at least 2",
    mask=True,
    per_execution=True,
    breaks=given(**{**OVERLAP, "ep": 1}),
    passes=OVERLAP,
)

DISPATCHER = Rule(
    id="ep-overlap-dispatcher",
    aliases=("R160",),
    area="ep_overlap",
    must="overlap of the experts' exchange needs the alltoall or flex dispatcher",
    why="A gather cannot be split into halves.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: v["moe_token_dispatcher_type"] in ("alltoall", "flex"),
    message="overlap_moe_expert_parallel_comm with the {moe_token_dispatcher_type} dispatcher",
    fix="--moe-token-dispatcher-type alltoall",
    mask=True,
    per_execution=True,
    breaks=given(**{**OVERLAP, "moe_token_dispatcher_type": "allgather"}),
    passes=OVERLAP,
)

NEEDS_VPP = Rule(
    id="ep-overlap-needs-vpp",
    aliases=("R161",),
    area="ep_overlap",
    must="overlap of the experts' exchange with PP > 1 needs VPP",
    why="The forward of one chunk hides the exchange in the backward of another.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: (v.pp == 1) | _vpp_set(v),
    message="overlap_moe_expert_parallel_comm with pp={pp} and no VPP",
    fix="use VPP of at least 2, or drop the overlap",
    mask=True,
    per_execution=True,
    breaks=given(**OVERLAP, layers=32, pp=4),
    passes=given(**OVERLAP, layers=32, pp=4, vpp=2),
)

PRECISION = Rule(
    id="ep-overlap-precision",
    aliases=("R162",),
    area="ep_overlap",
    must="overlap of the experts' exchange trains in bf16 or fp16",
    why="The schedule handles no fp32 model.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: v.on("bf16") or v.on("fp16"),
    message="overlap_moe_expert_parallel_comm in fp32",
    fix="--bf16",
    breaks=given(**{**OVERLAP, "bf16": False}),
    passes=OVERLAP,
)


def _recompute_fault(v: View) -> str:
    if v.get("recompute_granularity") == "full":
        return "full recompute"
    if v.get("recompute_method") is not None:
        return f"recompute method {v['recompute_method']}"
    if v.get("recompute_num_layers") is not None:
        return f"recompute_num_layers {v['recompute_num_layers']}"
    return "recompute of whole MoE layers" if "moe" in v.listed("recompute_modules") else ""


RECOMPUTE = Rule(
    id="ep-overlap-recompute",
    aliases=("R163",),
    area="ep_overlap",
    must="overlap of the experts' exchange is used without full recompute and without recompute of moe",
    why="Recomputing a layer would repeat its exchange inside the backward.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: not _recompute_fault(v),
    message=lambda v: f"overlap_moe_expert_parallel_comm with {_recompute_fault(v)}",
    fix="--recompute-granularity selective --recompute-modules moe_act layernorm",
    mask=True,
    per_execution=True,
    breaks=given(**OVERLAP, recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1),
    passes=given(
        **OVERLAP, recompute_granularity="selective", recompute_modules=["moe_act"], moe_grouped_gemm=True
    ),
)

SHARED = Rule(
    id="ep-overlap-shared",
    aliases=("R164",),
    area="ep_overlap",
    must="only one of the two overlaps, of the exchange and of the shared expert, is used",
    why="Both would fill the same gap.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: not v.on("moe_shared_expert_overlap"),
    message="overlap_moe_expert_parallel_comm with moe_shared_expert_overlap",
    fix="drop moe_shared_expert_overlap",
    breaks=given(**OVERLAP, moe_shared_expert_overlap=True),
    passes=OVERLAP,
)


def _torch_ok(v: View) -> bool:
    return v.get("torch_version") is None or v.release("torch_version") >= (2, 6)


MTP = Rule(
    id="ep-overlap-mtp",
    aliases=("R165",),
    area="ep_overlap",
    must="overlap of the experts' exchange has at most one MTP layer, and torch 2.6 or newer",
    why="The schedule plans for one; older torch hangs.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=overlapped,
    holds=lambda v: (v.get("mtp_num_layers") or 0) <= 1 and _torch_ok(v),
    message="overlap_moe_expert_parallel_comm with {mtp_num_layers} MTP layers, torch {torch_version}",
    fix="use one MTP layer, or drop the overlap",
    mask=True,
    per_execution=True,
    breaks=given(**OVERLAP, mtp_num_layers=2),
    passes=given(**OVERLAP, mtp_num_layers=1),
)

MTP_NEEDS_PP = Rule(
    id="ep-overlap-mtp-needs-pp",
    area="ep_overlap",
    must="before Megatron Core 0.18, overlap of the experts' exchange with an MTP layer needs PP > 1",
    why="The schedule without a pipeline had no place for it.",
    severity="error",
    enforced_by=CORE,
    until="2026-04-15",
    source="megatron/core/transformer/transformer_config.py, __post_init__ (0.16, 0.17)",
    applies=lambda v: v.get("mtp_num_layers") == 1 and overlapped(v),
    holds=lambda v: v.pp > 1,
    message="overlap_moe_expert_parallel_comm with an MTP layer and pp={pp}",
    fix="use pp of at least 2 with VPP, or update to Megatron Core 0.18",
    mask=True,
    per_execution=True,
    breaks=given(**OVERLAP, mtp_num_layers=1),
    passes=given(**OVERLAP, layers=32, pp=4, vpp=2, mtp_num_layers=1),
)

GRAPHS = Rule(
    id="ep-overlap-graphs",
    aliases=("R166",),
    area="ep_overlap",
    must="with overlap of the experts' exchange, TE CUDA graphs capture neither moe nor mlp",
    why="The schedule runs those in pieces.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: overlapped(v) and v["cuda_graph_impl"] == "transformer_engine",
    holds=lambda v: not {"moe", "mlp"} & set(v.listed("cuda_graph_modules")),
    message="overlap_moe_expert_parallel_comm with CUDA graphs of {cuda_graph_modules}",
    fix="--cuda-graph-modules attn moe_router moe_preprocess",
    breaks=given(
        **OVERLAP, moe_layer_freq=2, cuda_graph_impl="transformer_engine", cuda_graph_modules=["mlp"]
    ),
    passes=given(**OVERLAP, cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"]),
)

NCCLEP = Rule(
    id="ep-overlap-ncclep-offload",
    aliases=("R167",),
    area="ep_overlap",
    must="overlap of the experts' exchange with NCCL-EP does not offload expert_fc1",
    why="The overlap frees that input early.",
    severity="error",
    enforced_by=CORE,
    since="2026-07-08",
    source=CONFIG,
    applies=lambda v: overlapped(v) and v.get("moe_flex_dispatcher_backend") == "ncclep",
    holds=lambda v: "expert_fc1" not in v.listed("offload_modules"),
    message="overlap_moe_expert_parallel_comm with NCCL-EP and offload of {offload_modules}",
    fix="offload moe_act instead",
    breaks=given(
        **{**OVERLAP, "moe_token_dispatcher_type": "flex"},
        moe_flex_dispatcher_backend="ncclep",
        fine_grained_activation_offloading=True,
        offload_modules=["expert_fc1"],
    ),
    passes=given(
        **{**OVERLAP, "moe_token_dispatcher_type": "flex"},
        moe_flex_dispatcher_backend="ncclep",
        fine_grained_activation_offloading=True,
        offload_modules=["moe_act"],
    ),
)

ENERGON = Rule(
    id="energon-disables-ep-overlap",
    aliases=("R169",),
    area="ep_overlap",
    must="Energon packing is used without overlap of the exchange and delayed weight gradients",
    why="Bridge switches both off with a warning.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge training/config.py, _disable_native_energon_packing_moe_overlap",
    applies=lambda v: v.on("energon_packing"),
    holds=lambda v: not overlapped(v) and not v.on("delay_wgrad_compute"),
    message="Energon packing switches overlap_moe_expert_parallel_comm and delay_wgrad_compute off",
    fix="drop the overlap",
    breaks=given(**OVERLAP, mbs=1, energon_packing=True, calculate_per_token_loss=True),
    passes=given(**MOE, mbs=1, energon_packing=True, calculate_per_token_loss=True),
)

DELAY = Rule(
    id="delay-wgrad-needs-overlap",
    aliases=("R170",),
    area="ep_overlap",
    must="delay_wgrad_compute is used with overlap of the experts' exchange",
    why="The weight gradients fill what that schedule leaves open.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("delay_wgrad_compute"),
    holds=overlapped,
    message="delay_wgrad_compute without overlap_moe_expert_parallel_comm",
    fix="--overlap-moe-expert-parallel-comm",
    breaks=given(**MOE, world=8, ep=8, delay_wgrad_compute=True),
    passes=given(**OVERLAP, delay_wgrad_compute=True),
)


def _delay_needs(v: View) -> tuple[int, ...]:
    if v["cuda_graph_impl"] != "none":
        return (2, 12)
    if v.on("overlap_grad_reduce"):
        return (2, 8)
    return (1, 0) if v.on("gradient_accumulation_fusion") else (2, 7)


DELAY_TE = Rule(
    id="delay-wgrad-needs-te",
    aliases=("R171",),
    area="ep_overlap",
    must="delay_wgrad_compute needs Transformer Engine: 2.8 with overlap of the gradients, 2.12 with CUDA "
    "graphs, "
    "2.7 without fused accumulation",
    why="The split of the backward is in its modules. (Bridge asks 2.7 for overlap of the gradients.)",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("delay_wgrad_compute"),
    holds=lambda v: (
        v["transformer_impl"] == "transformer_engine" and v.release("te_version") >= _delay_needs(v)
    ),
    message=lambda v: (
        f"delay_wgrad_compute with Transformer Engine {v['te_version']}; it needs "
        f"{'.'.join(map(str, _delay_needs(v)))}"
    ),
    fix="update Transformer Engine, or drop delay_wgrad_compute",
    breaks=given(**OVERLAP, delay_wgrad_compute=True, overlap_grad_reduce=True, te_version="2.6"),
    passes=given(**OVERLAP, delay_wgrad_compute=True, overlap_grad_reduce=True, te_version="2.12"),
)


def _te_at_least(v: View, version: tuple[int, ...]) -> bool:
    return v.get("te_version") is None or v.release("te_version") >= version


DISPATCH_WGRAD = Rule(
    id="dispatch-wgrad-alone",
    aliases=("R172",),
    area="ep_overlap",
    must="overlap of the dispatch backward with the experts' weight gradients excludes the exchange overlap",
    why="They are two schedules for the same exchange; it needs Transformer Engine 2.3.",
    severity="error",
    enforced_by=CORE,
    since="2026-04-15",
    source=CONFIG,
    applies=lambda v: v.on("overlap_dispatch_backward_with_experts_wgrad"),
    holds=lambda v: not overlapped(v) and not v.on("delay_wgrad_compute") and _te_at_least(v, (2, 3)),
    message="overlap_dispatch_backward_with_experts_wgrad together with overlap_moe_expert_parallel_comm or "
    "delay_wgrad_compute (Transformer Engine {te_version})",
    fix="keep one of them",
    breaks=given(**OVERLAP, overlap_dispatch_backward_with_experts_wgrad=True),
    passes=given(**MOE, world=8, ep=8, overlap_dispatch_backward_with_experts_wgrad=True),
)

EARLY_RELEASE = Rule(
    id="early-release-needs-overlap",
    aliases=("R173",),
    area="ep_overlap",
    must="ep_overlap_early_attn_memory_release is used with overlap of the experts' exchange",
    why="It is a part of that schedule.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("ep_overlap_early_attn_memory_release"),
    holds=overlapped,
    message="ep_overlap_early_attn_memory_release without overlap_moe_expert_parallel_comm",
    fix="--overlap-moe-expert-parallel-comm",
    breaks=given(**MOE, ep_overlap_early_attn_memory_release=True),
    passes=given(**OVERLAP, ep_overlap_early_attn_memory_release=True),
)

RULES = (
    NEEDS_EP,
    DISPATCHER,
    NEEDS_VPP,
    PRECISION,
    RECOMPUTE,
    SHARED,
    MTP,
    MTP_NEEDS_PP,
    GRAPHS,
    NCCLEP,
    ENERGON,
    DELAY,
    DELAY_TE,
    DISPATCH_WGRAD,
    EARLY_RELEASE,
)
