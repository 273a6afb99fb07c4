"""Rules of the world: both rank grids must divide the GPUs."""

from __future__ import annotations

from meshwright.layout.rules.numbers import divisors, multiples_around
from meshwright.layout.rules.rule import CORE, CORE_LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import Undecided, View


def _dense_message(v: View) -> str:
    gtp = f"*{v.gtp} (weight shards)" if v.gtp > 1 else ""
    return (
        f"{v.world} GPUs are not a multiple of TP*PP*CP = {v.tp}*{v.pp}*{v.cp}{gtp} = {v.dense_grid} "
        f"({v.world} % {v.dense_grid} = {v.world % v.dense_grid})"
    )


def largest_ep(v: View) -> int:
    """The largest smaller EP whose expert grid divides the world and which divides the experts; 0 if none."""
    experts = v.experts or v.ep
    sizes = [ep for ep in divisors(experts) if ep < v.ep and v.world % (v.etp * ep * v.pp * v.egtp) == 0]
    return max(sizes, default=0)


def _expert_message(v: View) -> str:
    grid = v.expert_grid
    relation = f"> {v.world}" if grid > v.world else f"does not divide {v.world}"
    factors = f"{v.etp}*{v.ep}*{v.pp}" + (f"*{v.egtp}" if v.egtp > 1 else "")
    return (
        f"the expert grid {grid} does not fit {v.world} GPUs: ETP*EP*PP = {grid} {relation} "
        f"(ETP*EP*PP = {factors}){_etp_words(v)}{_node_words(v)}"
    )


def _etp_words(v: View) -> str:
    """Why ETP is what it is, when nobody gave it and ETP=1 would help."""
    if v.gave("expert_tensor_parallel_size") or v.etp == 1:
        return ""
    one = v.ep * v.pp
    return (
        f"; ETP unset: it defaults to TP ({v.tp}) here, while ETP=1 needs {one} ({one} vs {v.expert_grid} "
        f"GPUs; "
        "Megatron-LM vs Bridge: Bridge since mid-2026 takes 1)"
    )


def _node_words(v: View) -> str:
    """Whether the number of GPUs may have been the number of nodes."""
    try:
        nodes = [int(v.value("gpus_per_node"))]
    except Undecided:
        nodes = [4, 8]
    for size in nodes:
        if size > 1 and (v.world * size) % v.min_gpus == 0:
            return f"; GPUs or nodes? {v.world} nodes of {size} would be {v.world * size} GPUs"
    return ""


def _expert_fix(v: View) -> str:
    step = int(v.min_gpus)
    worlds = " or ".join(f"{world} GPUs" for world in multiples_around(step, v.world))
    ep = largest_ep(v)
    return (f"EP must drop to {ep} (EP={ep}) on {v.world} GPUs, or use " if ep else "use ") + worlds


DENSE_GRID = Rule(
    id="world-divides-dense-grid",
    aliases=("R001", "R002", "R004"),
    area="world",
    must="the number of GPUs is a multiple of TP*PP*CP (times the weight shards)",
    why="Every dense replica takes TP*PP*CP ranks; DP is how many of them there are.",
    severity="error",
    enforced_by=CORE_LM_BRIDGE,
    source="megatron/core/parallel_state.py, initialize_model_parallel; megatron/training/arguments.py, "
    "validate_args; Megatron Bridge config.py, get_data_parallel_size",
    holds=lambda v: v.world % v.dense_grid == 0,
    message=_dense_message,
    nearest=lambda v: multiples_around(v.dense_grid, v.world),
    fix="change the number of GPUs, or lower TP, PP or CP until the product divides it",
    mask=True,
    breaks=given(world=24, tp=4, pp=4),
    passes=given(world=32, tp=4, pp=4),
)

EXPERT_GRID = Rule(
    id="world-divides-expert-grid",
    aliases=("R003", "R005"),
    area="world",
    must="the number of GPUs is a multiple of ETP*EP*PP (times the expert weight shards)",
    why="The expert layers have a rank grid of their own over the same GPUs; expert DP is "
    "world/(ETP*EP*PP). EP is folded over TP, CP and DP, so it may exceed DP.",
    severity="error",
    enforced_by=CORE,
    since="2024-11-23",
    source="megatron/core/parallel_state.py, initialize_model_parallel; Megatron Bridge initialize.py, "
    "_create_pg_collection",
    holds=lambda v: v.world % v.expert_grid == 0,
    message=lambda v: f"{_expert_message(v)}; {_expert_fix(v)}",
    fix=_expert_fix,
    mask=True,
    breaks=given(world=64, pp=8, ep=64, etp=1, experts=64),
    passes=given(world=512, pp=8, ep=64, etp=1, experts=64),
)

ORDER_ENDS_WITH_PP = Rule(
    id="order-needs-equal-dp",
    aliases=("R006",),
    area="world",
    must="the order of ranks ends with pp, or PP is 1, or expert DP equals DP",
    why="With use_tp_pp_dp_mapping the two grids would put the same rank on different pipeline stages.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/parallel_state.py, initialize_model_parallel",
    applies=lambda v: not rank_order(v).endswith("pp"),
    holds=lambda v: v.pp == 1 or v.edp == v.dp,
    message=lambda v: (
        f"with the order {rank_order(v)} the expert DP {v.edp} must equal DP {v.dp} when PP is {v.pp}"
    ),
    fix="use the default order tp-cp-ep-dp-pp, or an EP and ETP with ETP*EP = TP*CP",
    breaks=given(world=16, tp=2, pp=2, ep=8, etp=1, experts=8, use_tp_pp_dp_mapping=True),
    passes=given(world=16, tp=2, cp=2, pp=2, ep=4, etp=1, experts=8, use_tp_pp_dp_mapping=True),
)

ORDER_PP_BEFORE_EP = Rule(
    id="order-same-pipelines",
    aliases=("R007",),
    area="world",
    must="the decoder grid and the expert grid have the same pipeline groups",
    why="An order with pp before ep gives a rank one stage for attention and another for experts.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/parallel_state.py, initialize_model_parallel",
    applies=lambda v: v.pp > 1 and v.world % v.min_gpus == 0 and _complete(v),
    holds=lambda v: _stride_before_pp(v, expert=False) == _stride_before_pp(v, expert=True),
    message=lambda v: f"the order {rank_order(v)} puts the pipeline groups of decoder and experts apart",
    fix="use the order tp-cp-ep-dp-pp",
    breaks=given(world=16, tp=2, cp=2, pp=2, ep=4, etp=1, experts=8, order="tp-cp-pp-ep-dp"),
    passes=given(world=16, tp=2, cp=2, pp=2, ep=4, etp=1, experts=8, order="tp-cp-ep-dp-pp"),
)

ORDER_NAMES_AXES = Rule(
    id="order-names-every-axis",
    aliases=("R008", "R009"),
    area="world",
    must="every axis with a size above 1 is named in the order string",
    why="An axis that is not named has no place among the ranks.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/parallel_state.py, RankGenerator",
    holds=lambda v: not _missing_axes(v),
    message=lambda v: (
        f"the order {rank_order(v)} does not name {', '.join(_missing_axes(v))}, which is above 1 "
        f"(tp {v.tp}, cp {v.cp}, ep {v.ep}, pp {v.pp})"
    ),
    fix="use the order tp-cp-ep-dp-pp",
    breaks=given(world=8, cp=2, order="tp-dp-pp"),
    passes=given(world=8, cp=2, order="tp-cp-ep-dp-pp"),
)


def rank_order(v: View) -> str:
    """The order string that reaches Megatron Core."""
    return "tp-cp-ep-pp-dp" if v.on("use_tp_pp_dp_mapping") else str(v.value("order"))


def _missing_axes(v: View) -> tuple[str, ...]:
    sizes = {"tp": max(v.tp, v.etp), "cp": v.cp, "ep": v.ep, "pp": v.pp}
    named = rank_order(v).split("-")
    return tuple(axis for axis, size in sizes.items() if size > 1 and axis not in named)


def _complete(v: View) -> bool:
    return {"tp", "dp", "pp"} <= set(rank_order(v).split("-")) and not _missing_axes(v)


def _stride_before_pp(v: View, *, expert: bool) -> int:
    """Distance between neighbours of a pipeline group in one of the two grids."""
    dense = {"tp": v.tp, "cp": v.cp, "ep": 1, "dp": v.dp}
    experts = {"tp": v.etp, "cp": 1, "ep": v.ep, "dp": v.edp}
    sizes = experts if expert else dense
    order = rank_order(v).split("-")
    stride = 1
    for axis in order[: order.index("pp")]:
        stride *= int(sizes[axis])
    return stride


RULES = (DENSE_GRID, EXPERT_GRID, ORDER_ENDS_WITH_PP, ORDER_PP_BEFORE_EP, ORDER_NAMES_AXES)
