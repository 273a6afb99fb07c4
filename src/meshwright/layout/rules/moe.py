"""Rules of expert parallelism and routing."""

from __future__ import annotations

from meshwright.layout.rules.numbers import around, divisors, divisors_around
from meshwright.layout.rules.rule import CORE, LM, Rule, given
from meshwright.layout.rules.view import View

EP_NEEDS_MOE = Rule(
    id="ep-needs-experts",
    aliases=("R118",),
    area="ep",
    must="expert parallelism is used with a mixture of experts",
    why="A dense model has no experts to share; EP on it is an error, never a no-op.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    holds=lambda v: (v.ep == 1) | v.is_moe,
    message="ep={ep} on a dense model: there are no experts to share",
    nearest=lambda v: ("ep 1",),
    fix="drop --expert-model-parallel-size, or give --num-experts",
    mask=True,
    breaks=given(ep=2, experts=None),
    passes=given(ep=2, experts=64),
)

EP_DIVIDES = Rule(
    id="ep-divides-experts",
    aliases=("R119", "R120"),
    area="ep",
    must="the number of experts is a multiple of EP",
    why="Every EP rank holds the same whole number of experts.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/moe/moe_layer.py, BaseMoELayer; megatron/training/arguments.py",
    applies=lambda v: v.is_moe,
    holds=lambda v: v.experts % v.ep == 0,
    message="{num_moe_experts} experts cannot be shared evenly by ep={ep}",
    nearest=lambda v: divisors_around(v.experts, v.ep),
    fix="use an ep that divides the experts",
    mask=True,
    breaks=given(experts=160, ep=64),
    passes=given(experts=160, ep=32),
)

DENSE_EXPERTS = Rule(
    id="etp-equals-tp-without-ep",
    area="ep",
    must="with EP 1, experts are split as the dense layers are: ETP equals TP",
    why="With EP 1 the gradients of experts are reduced with those of the dense layers, over ranks that hold "
    "other shards or have seen other tokens when ETP is not TP. The job starts and trains wrongly (Mixtral "
    "with TP 2, ETP 1: the loss is 1e-3 off after the first steps). 0.19 picks the group by ETP as well.",
    severity="error",
    effect="miscomputes",
    enforced_by=CORE,
    until="2026-07-28",
    source="megatron/core/extensions/transformer_engine.py, TELinear and TEGroupedLinear (allreduce = not "
    "expert_parallel); compared with training on one process",
    applies=lambda v: (v.ep == 1) & v.is_moe,
    holds=lambda v: v.etp == v.tp,
    message="ep=1 with etp={etp} and tp={tp}: the experts' gradients are reduced over the wrong ranks, and "
    "nothing says so",
    nearest=lambda v: (f"etp {v.tp}",),
    fix="--expert-tensor-parallel-size {tp}, or use ep of at least 2",
    mask=True,
    breaks=given(experts=8, tp=2, ep=1, etp=1, sp=True),
    passes=given(experts=8, tp=2, ep=1, etp=2, sp=True),
)

TOPK = Rule(
    id="topk-within-experts",
    area="moe",
    must="a token visits at most as many experts as there are",
    why="The router takes the top k of the experts' scores.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function (torch.topk)",
    applies=lambda v: v.is_moe and v.gave("moe_router_topk"),
    holds=lambda v: 1 <= v["moe_router_topk"] <= v.experts,
    message="moe_router_topk {moe_router_topk} does not fit {num_moe_experts} experts",
    fix="lower --moe-router-topk",
    breaks=given(experts=4, topk=8),
    passes=given(experts=64, topk=8),
)

BIAS_ETP = Rule(
    id="expert-bias-needs-etp1",
    aliases=("R123",),
    area="ep",
    must="experts with biases use ETP 1",
    why="The bias of a row-split linear would be added ETP times.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: v.is_moe and v.on("add_bias_linear"),
    holds=lambda v: v.etp == 1,
    message="experts with biases cannot be split by etp={etp}",
    fix="use etp 1, or --disable-bias-linear",
    mask=True,
    breaks=given(experts=64, add_bias_linear=True, etp=2, tp=2, sp=True),
    passes=given(experts=64, add_bias_linear=True, etp=1, tp=2, sp=True),
)

SHARED_BIAS = Rule(
    id="shared-experts-no-bias",
    aliases=("R124",),
    area="ep",
    must="models with shared experts have no linear biases",
    why="The shared expert's block cannot add them.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/moe/shared_experts.py",
    applies=lambda v: v.is_moe and v.gave("moe_shared_expert_intermediate_size"),
    holds=lambda v: not v.on("add_bias_linear"),
    message="a shared expert of width {moe_shared_expert_intermediate_size} with add_bias_linear on",
    fix="--disable-bias-linear",
    breaks=given(experts=64, moe_shared_expert_intermediate_size=1024, add_bias_linear=True),
    passes=given(experts=64, moe_shared_expert_intermediate_size=1024, add_bias_linear=False),
)

MOE_FFN_NEEDS_EXPERTS = Rule(
    id="moe-ffn-needs-experts",
    aliases=("R125",),
    area="ep",
    must="moe_ffn_hidden_size is given only with experts",
    why="A dense model has no expert width.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: v.gave("moe_ffn_hidden_size") and v.get("moe_layer_freq") in (None, 1),
    holds=lambda v: v.is_moe,
    message="moe_ffn_hidden_size {moe_ffn_hidden_size} is given and the model has no experts",
    fix="give --num-experts, or drop --moe-ffn-hidden-size",
    breaks=given(moe_ffn_hidden_size=1024),
    passes=given(moe_ffn_hidden_size=1024, experts=8),
)

MOE_FFN_UNSET = Rule(
    id="moe-ffn-unset",
    aliases=("R126",),
    area="ep",
    must="the width of an expert is given",
    why="Left unset, each expert is as wide as a dense block.",
    severity="warn",
    enforced_by=CORE,
    effect="fills",
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: v.is_moe,
    holds=lambda v: v.gave("moe_ffn_hidden_size"),
    message="expert width unset: each expert gets the dense width {moe_ffn_hidden_size}",
    fix="give --moe-ffn-hidden-size",
    breaks=given(experts=8, ffn=14336),
    passes=given(experts=8, moe_ffn_hidden_size=14336),
)

LATENT = Rule(
    id="latent-needs-moe",
    aliases=("R127",),
    area="ep",
    must="moe_latent_size is above 0 and used with experts and Transformer Engine",
    why="It is the width that experts work in.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.gave("moe_latent_size"),
    holds=lambda v: v["moe_latent_size"] > 0 and v.is_moe and v["transformer_impl"] == "transformer_engine",
    message="moe_latent_size {moe_latent_size} with {num_moe_experts} experts and {transformer_impl}",
    fix="drop --moe-latent-size, or give --num-experts",
    breaks=given(moe_latent_size=1024, experts=None),
    passes=given(moe_latent_size=1024, experts=64),
)


def _group_fault(v: View) -> str:
    experts, groups, chosen = v.experts, v.get("moe_router_num_groups"), v["moe_router_group_topk"]
    if not v.is_moe:
        return f"moe_router_group_topk {chosen} on a dense model"
    if not groups:
        return f"moe_router_group_topk {chosen} without moe_router_num_groups"
    if experts % groups:
        near = " or ".join(map(str, around(divisors(experts), groups)))
        rest = f"{experts} % {groups} = {experts % groups}"
        return f"{experts} experts cannot be shared evenly by {groups} groups ({rest}); nearest: {near}"
    return f"{chosen} of {groups} groups are to be chosen" if chosen > groups else ""


GROUPS = Rule(
    id="router-groups",
    aliases=("R128",),
    area="moe",
    must="with group routing the groups divide the experts, and no more groups are chosen than there are",
    why="A group is a whole number of experts.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: bool(v.get("moe_router_group_topk")),
    holds=lambda v: not _group_fault(v),
    message=_group_fault,
    fix="use groups that divide the experts",
    breaks=given(experts=256, topk=8, moe_router_num_groups=6, moe_router_group_topk=4),
    passes=given(experts=256, topk=8, moe_router_num_groups=8, moe_router_group_topk=4),
)

RULES = (
    EP_NEEDS_MOE,
    EP_DIVIDES,
    DENSE_EXPERTS,
    TOPK,
    BIAS_ETP,
    SHARED_BIAS,
    MOE_FFN_NEEDS_EXPERTS,
    MOE_FFN_UNSET,
    LATENT,
    GROUPS,
)
