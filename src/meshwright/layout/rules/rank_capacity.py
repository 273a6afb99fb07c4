"""Rules of NCCL-EP, of a bound on what an expert rank receives, and of the stash built on it."""

from __future__ import annotations

from meshwright.layout.rules.dispatcher import DISPATCHER
from meshwright.layout.rules.routing import MOE, capacity
from meshwright.layout.rules.rule import CONFIG, CORE, Rule, given
from meshwright.layout.rules.view import View


def _ncclep_fault(v: View) -> str:
    if v["moe_token_dispatcher_type"] != "flex":
        return f"the {v['moe_token_dispatcher_type']} dispatcher"
    if capacity(v) is not None:
        return "a capacity factor (it drops no tokens)"
    if v.on("moe_ncclep_grouped_tensor") and not v.on("use_transformer_engine_op_fuser"):
        return "grouped tensors without the operation fuser of Transformer Engine"
    if v.get("moe_expert_rank_capacity_factor") is not None and v.get("fp8") and v.sm < 10:
        return f"a rank capacity and fp8 on compute capability {v.get('compute_capability')}"
    return ""


NCCLEP = Rule(
    id="ncclep-conditions",
    aliases=("R148",),
    area="dispatcher",
    must="NCCL-EP is used with the flex dispatcher, without token drop; rank capacity with fp8 needs "
    "Blackwell",
    why="Those are the paths it has.",
    severity="error",
    enforced_by=CORE,
    since="2026-07-08",
    source=f"{CONFIG}; {DISPATCHER}",
    applies=lambda v: v.get("moe_flex_dispatcher_backend") == "ncclep",
    holds=lambda v: not _ncclep_fault(v),
    message=lambda v: f"NCCL-EP does not work with {_ncclep_fault(v)}",
    fix="--moe-token-dispatcher-type flex, no capacity factor",
    breaks=given(
        **MOE, world=8, ep=8, moe_flex_dispatcher_backend="ncclep", moe_token_dispatcher_type="alltoall"
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_flex_dispatcher_backend="ncclep", moe_token_dispatcher_type="flex"
    ),
)

RANK_CAPACITY = Rule(
    id="rank-capacity-backend",
    aliases=("R149",),
    area="dispatcher",
    must="a rank capacity needs HybridEP (with the operation fuser) or NCCL-EP",
    why="Only those can bound what a rank receives.",
    severity="error",
    enforced_by=CORE,
    since="2026-05-01",
    source=CONFIG,
    applies=lambda v: v.get("moe_expert_rank_capacity_factor") is not None,
    holds=lambda v: (
        v.get("moe_flex_dispatcher_backend") == "ncclep"
        or (v.get("moe_flex_dispatcher_backend") == "hybridep" and v.on("use_transformer_engine_op_fuser"))
    ),
    message="rank capacity {moe_expert_rank_capacity_factor} with the backend {moe_flex_dispatcher_backend}",
    fix="--moe-flex-dispatcher-backend hybridep --use-transformer-engine-op-fuser",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_expert_rank_capacity_factor=1.5,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
    ),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_expert_rank_capacity_factor=1.5,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
        use_transformer_engine_op_fuser=True,
    ),
)


def _stash_fault(v: View) -> str:
    if v.get("moe_expert_rank_capacity_factor") is None:
        return "no rank capacity"
    if v.on("cpu_offloading"):
        return "cpu_offloading"
    inside = {"expert_fc1", "moe_act", "fused_group_mlp"} & set(v.listed("offload_modules"))
    return f"offload of {', '.join(sorted(inside))}" if inside else ""


PAGED_STASH = Rule(
    id="paged-stash-conditions",
    aliases=("R150",),
    area="dispatcher",
    must="the paged stash needs a rank capacity, and no other offload of the experts' activations",
    why="It keeps exactly those activations.",
    severity="error",
    enforced_by=CORE,
    since="2026-05-01",
    source=CONFIG,
    applies=lambda v: v.on("moe_paged_stash"),
    holds=lambda v: not _stash_fault(v),
    message=lambda v: f"moe_paged_stash with {_stash_fault(v)}",
    fix="--moe-expert-rank-capacity-factor 1.5, and drop the other offload",
    breaks=given(**MOE, world=8, ep=8, moe_paged_stash=True),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_paged_stash=True,
        moe_expert_rank_capacity_factor=1.5,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="ncclep",
    ),
)

RULES = (
    NCCLEP,
    RANK_CAPACITY,
    PAGED_STASH,
)
