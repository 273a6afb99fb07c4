"""Rules of the router: scores, capacity, padding."""

from __future__ import annotations

from meshwright.layout.rules.rule import BRIDGE, CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

MOE = given(experts=64, topk=8, moe_ffn_hidden_size=1024, moe_router_dtype="fp32", add_bias_linear=False)
BALANCED = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")


def capacity(v: View) -> float | None:
    """The capacity factor; negative means none."""
    factor = v.get("moe_expert_capacity_factor")
    return None if factor is None or factor < 0 else float(factor)


def balancing(v: View) -> tuple[str, ...]:
    return v.listed("moe_router_load_balancing_type")


LIMITED_DEVICES = Rule(
    id="limited-devices-deprecated",
    aliases=("R129",),
    area="moe",
    must="group routing is given as groups, not as limited devices",
    why="moe_router_topk_limited_devices is deprecated; it sets the groups to EP.",
    severity="warn",
    enforced_by=CORE,
    effect="changes",
    source=CONFIG,
    applies=lambda v: v.is_moe,
    holds=lambda v: not v.get("moe_router_topk_limited_devices"),
    message="moe_router_topk_limited_devices {moe_router_topk_limited_devices}: groups become EP = {ep}",
    fix=lambda v: (
        f"--moe-router-num-groups {v.ep} (device-limited: groups equal EP; node-limited: the nodes of an "
        f"EP group) "
        f"--moe-router-group-topk {v['moe_router_topk_limited_devices']}"
    ),
    breaks=given(**MOE, world=8, ep=8, moe_router_topk_limited_devices=4),
    passes=given(**MOE, world=8, ep=8, moe_router_num_groups=8, moe_router_group_topk=4),
)

GROUP_TOPK = Rule(
    id="topk-multiple-of-group-topk",
    area="moe",
    must="the experts a token visits are a multiple of the groups it visits",
    why="A group's score is the sum of its best topk // group_topk experts; the division is rounded down "
    "silently.",
    severity="warn",
    enforced_by=CORE,
    effect="changes",
    source="megatron/core/transformer/moe/moe_utils.py, group_limited_topk",
    applies=lambda v: v.is_moe and bool(v.get("moe_router_group_topk")),
    holds=lambda v: v["moe_router_topk"] % v["moe_router_group_topk"] == 0,
    message="topk {moe_router_topk} is no multiple of group topk {moe_router_group_topk}: the group score "
    "rounds down",
    fix="use a topk that the group topk divides",
    breaks=given(**{**MOE, "topk": 6}, moe_router_num_groups=8, moe_router_group_topk=4),
    passes=given(**MOE, moe_router_num_groups=8, moe_router_group_topk=4),
)

EXPERT_BIAS = Rule(
    id="expert-bias-score",
    aliases=("R130",),
    area="moe",
    must="balancing by expert bias uses the sigmoid (or sqrtsoftplus) score",
    why="The bias is added to scores that do not compete with each other.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("moe_router_enable_expert_bias"),
    holds=lambda v: v["moe_router_score_function"] in ("sigmoid", "sqrtsoftplus"),
    message="expert bias with the {moe_router_score_function} score",
    fix="--moe-router-score-function sigmoid",
    breaks=given(**MOE, moe_router_enable_expert_bias=True),
    passes=given(**MOE, moe_router_enable_expert_bias=True, moe_router_score_function="sigmoid"),
)

TOPK_ONE = Rule(
    id="topk-one-pre-softmax",
    aliases=("R131",),
    area="moe",
    must="with topk 1 and softmax, the softmax comes before the choice",
    why="Softmax over one chosen expert is always 1 and gives the router no gradient.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: (
        v.is_moe
        and v["moe_router_topk"] == 1
        and v["moe_router_score_function"] == "softmax"
        and "sinkhorn" not in balancing(v)
    ),
    holds=lambda v: v.on("moe_router_pre_softmax"),
    message="topk 1 with softmax after the choice",
    fix="--moe-router-pre-softmax",
    breaks=given(**{**MOE, "topk": 1}),
    passes=given(**{**MOE, "topk": 1}, moe_router_pre_softmax=True),
)

CAPACITY_BALANCING = Rule(
    id="capacity-balancing",
    aliases=("R132",),
    area="moe",
    must="a capacity factor is used with auxiliary-loss balancing or none",
    why="Other routers already decide how many tokens an expert gets.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.get("moe_expert_capacity_factor") is not None,
    holds=lambda v: all(kind in BALANCED for kind in balancing(v)),
    message="capacity factor {moe_expert_capacity_factor} with {moe_router_load_balancing_type} balancing",
    fix="--moe-router-load-balancing-type aux_loss",
    breaks=given(**MOE, moe_expert_capacity_factor=1.0, moe_router_load_balancing_type="sinkhorn"),
    passes=given(**MOE, moe_expert_capacity_factor=1.0, moe_router_load_balancing_type="aux_loss"),
)

PAD_CAPACITY = Rule(
    id="pad-needs-capacity",
    aliases=("R133",),
    area="moe",
    must="padding to capacity needs a capacity factor",
    why="It says how far to pad.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("moe_pad_expert_input_to_capacity"),
    holds=lambda v: capacity(v) is not None,
    message="moe_pad_expert_input_to_capacity without moe_expert_capacity_factor",
    fix="--moe-expert-capacity-factor 1.0",
    breaks=given(**MOE, moe_pad_expert_input_to_capacity=True),
    passes=given(**MOE, moe_pad_expert_input_to_capacity=True, moe_expert_capacity_factor=1.0),
)

BRIDGE_DROP = Rule(
    id="bridge-token-drop",
    aliases=("R134", "R272"),
    area="moe",
    must="token dropping in Bridge uses the alltoall dispatcher and aux, seq_aux or no balancing",
    why="Its helper asserts it, narrower than Megatron Core. The docs' complete MoE example selects the flex "
    "dispatcher first and so contradicts itself.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge training/utils/moe_token_drop.py; docs/parallelisms.md",
    applies=lambda v: capacity(v) is not None,
    holds=lambda v: (
        v["moe_token_dispatcher_type"] in ("alltoall", "alltoall_seq")
        and set(balancing(v)) <= {"aux_loss", "seq_aux_loss", "none"}
    ),
    message="token drop (capacity {moe_expert_capacity_factor}) with the {moe_token_dispatcher_type} "
    "dispatcher and "
    "{moe_router_load_balancing_type} balancing",
    fix="use moe_token_dispatcher_type alltoall with aux_loss",
    breaks=given(**MOE, moe_expert_capacity_factor=1.0, moe_token_dispatcher_type="flex"),
    passes=given(**MOE, moe_expert_capacity_factor=1.0, moe_token_dispatcher_type="alltoall"),
)

PAD_QUANTIZATION = Rule(
    id="router-padding-needs-fp8",
    aliases=("R135",),
    area="moe",
    must="router padding for quantization is used with fp8 or fp4 and not with the allgather dispatcher",
    why="It pads tokens of an expert to what low-precision products need.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("moe_router_padding_for_quantization"),
    holds=lambda v: (
        (bool(v.get("fp8")) or bool(v.get("fp4")))
        and v["moe_token_dispatcher_type"] not in ("allgather", "alltoall_seq")
    ),
    message="router padding for quantization with fp8 {fp8}, fp4 {fp4}, dispatcher "
    "{moe_token_dispatcher_type}",
    fix="drop the padding, or train in fp8 with the alltoall or flex dispatcher",
    breaks=given(**MOE, moe_router_padding_for_quantization=True),
    passes=given(
        **MOE,
        moe_router_padding_for_quantization=True,
        fp8="e4m3",
        fp8_recipe="mxfp8",
        moe_token_dispatcher_type="alltoall",
    ),
)

PAD_FOR_FP8 = Rule(
    id="fp8-router-padding",
    area="moe",
    must="dropless experts trained in fp8 or fp4 with grouped GEMM pad the tokens of an expert",
    why="Token counts of an expert are arbitrary; mxfp8 products need multiples of 32, others of 16. Older "
    "code "
    "fails, newer code pads with a copy of its own.",
    severity="warn",
    enforced_by=("advice",),
    effect="advises",
    source="Transformer Engine block sizes; megatron/core/transformer/moe/moe_utils.py, get_fp8_align_size",
    applies=lambda v: (
        v.is_moe
        and (bool(v.get("fp8")) or bool(v.get("fp4")))
        and v.on("moe_grouped_gemm")
        and capacity(v) is None
    ),
    holds=lambda v: (
        v.on("moe_router_padding_for_quantization") or v.on("moe_permute_padding_for_quantization")
    ),
    message="grouped GEMM in fp8 ({fp8_recipe}) without router padding: tokens of an expert may not be a "
    "multiple of "
    "what the kernel needs",
    fix="--moe-router-padding-for-quantization (router padding)",
    breaks=given(**MOE, moe_grouped_gemm=True, fp8="e4m3", fp8_recipe="mxfp8"),
    passes=given(
        **MOE,
        moe_grouped_gemm=True,
        fp8="e4m3",
        fp8_recipe="mxfp8",
        moe_router_padding_for_quantization=True,
        moe_token_dispatcher_type="alltoall",
    ),
)

FP8_TE = Rule(
    id="moe-fp8-needs-te",
    aliases=("R136",),
    area="moe",
    must="fp8 experts need Transformer Engine 1.7, with grouped GEMM 1.11",
    why="Older kernels do not have them.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.is_moe and bool(v.get("fp8")),
    holds=lambda v: v.release("te_version") >= ((1, 11) if v.on("moe_grouped_gemm") else (1, 7)),
    message="fp8 experts with Transformer Engine {te_version}",
    fix="update Transformer Engine",
    breaks=given(**MOE, fp8="e4m3", te_version="1.6"),
    passes=given(**MOE, fp8="e4m3", te_version="2.3"),
)

GROUPED_GEMM = Rule(
    id="grouped-gemm-capability",
    aliases=("R137",),
    area="moe",
    must="grouped GEMM needs a GPU of compute capability 8.0 or more",
    why="Its kernels use instructions of Ampere.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.on("moe_grouped_gemm"),
    holds=lambda v: v.sm >= 8,
    message="grouped GEMM on compute capability {compute_capability}",
    fix="drop --moe-grouped-gemm",
    breaks=given(**MOE, moe_grouped_gemm=True, compute_capability="7.0"),
    passes=given(**MOE, moe_grouped_gemm=True, compute_capability="8.0"),
)

ROUTER_DTYPE = Rule(
    id="router-dtype",
    aliases=("R138",),
    area="moe",
    must="with 32 experts or more the router works in fp32",
    why="Many experts have close scores, which bf16 cannot tell apart.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    source=CONFIG,
    applies=lambda v: v.experts >= 32,
    holds=lambda v: v.get("moe_router_dtype") is not None,
    message="{num_moe_experts} experts without moe_router_dtype",
    fix="--moe-router-dtype fp32",
    breaks=given(experts=64),
    passes=given(experts=64, moe_router_dtype="fp32"),
)

RULES = (
    LIMITED_DEVICES,
    GROUP_TOPK,
    EXPERT_BIAS,
    TOPK_ONE,
    CAPACITY_BALANCING,
    PAD_CAPACITY,
    BRIDGE_DROP,
    PAD_QUANTIZATION,
    PAD_FOR_FP8,
    FP8_TE,
    GROUPED_GEMM,
    ROUTER_DTYPE,
)
