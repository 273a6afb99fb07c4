"""Advice on where groups should sit: NVLink domains, nodes, racks."""

from __future__ import annotations

from meshwright.layout.rules.dispatcher import backend, flex
from meshwright.layout.rules.rule import ADVICE, CORE_LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View

STRATEGIES = "Megatron Bridge skill: parallelism strategies"
GUIDE = "Megatron Bridge docs/performance-guide.md"


def domain(v: View) -> int:
    """GPUs that NVLink joins; of an NVL72 rack 64 are counted where 72 does not divide."""
    return int(v["nvlink_domain"])


def expert_span(v: View) -> int:
    """Ranks between the first and the last of an expert group, in the default order."""
    return int(v.ep * v.etp)


TP_IN_DOMAIN = Rule(
    id="tp-inside-nvlink",
    aliases=("R265",),
    area="topology",
    must="the TP group sits inside one NVLink domain (8 on HGX nodes, 72 on NVL72)",
    why="TP communicates in every layer, in the way of the computation.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: v.tp > 1 and domain(v) > 1,
    holds=lambda v: v.tp <= domain(v),
    message="tp={tp} spans more than the {nvlink_domain} GPUs that NVLink joins",
    fix=lambda v: f"use tp of at most {domain(v)}, and more pp",
    breaks=given(tp=16, sp=True, nvlink_domain=8),
    passes=given(tp=8, sp=True, nvlink_domain=8),
)

EP_IN_DOMAIN = Rule(
    id="ep-inside-nvlink",
    aliases=("R266", "R290"),
    area="topology",
    must="the EP group sits inside one NVLink domain, or its exchange is overlapped (1F1B)",
    why="Tokens travel to the experts and back in every layer. Overlap gained 17.7 % (HybridEP) to 31.7 % "
    "(alltoall, "
    "EP16 over nodes).",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=f"{GUIDE}; Megatron Bridge skill: expert-parallel overlap",
    applies=lambda v: v.ep > 1 and domain(v) > 1,
    holds=lambda v: expert_span(v) <= domain(v) or v.on("overlap_moe_expert_parallel_comm"),
    message=lambda v: (
        f"EP crosses nodes: ep={v.ep} x etp={v.etp} = {expert_span(v)} ranks on NVLink domains of "
        f"{domain(v)}, and "
        "the exchange is not overlapped"
    ),
    fix="lower ep to the domain, or --overlap-moe-expert-parallel-comm (with VPP where PP > 1)",
    breaks=given(world=512, ep=64, etp=1, experts=64, nvlink_domain=8),
    passes=given(world=512, ep=8, etp=1, experts=64, nvlink_domain=8),
)

EP_WITHOUT_NVLINK = Rule(
    id="ep-without-nvlink",
    area="topology",
    must="expert parallelism runs on GPUs that NVLink joins",
    why="Without it every token takes the network twice a layer. The layout itself may be legal.",
    severity="warn",
    enforced_by=ADVICE,
    effect="advises",
    source=f"{GUIDE} (traffic of the experts' exchange)",
    applies=lambda v: v.ep > 1,
    holds=lambda v: domain(v) > 1,
    message="layout valid, but EP crosses nodes with no NVLink: ep={ep} exchanges every token over the "
    "network",
    fix="use pp instead of ep, or fewer hosts",
    breaks=given(world=4, ep=4, experts=8, gpus_per_node=1, nvlink_domain=1),
    passes=given(world=8, ep=4, experts=8, gpus_per_node=8, nvlink_domain=8),
)


def stage_block(v: View) -> int:
    """Ranks of one pipeline stage: contiguous in the default order."""
    return int(v.world // v.pp)


RACK = Rule(
    id="stages-fit-rack",
    aliases=("R267",),
    area="topology",
    must="on NVL72 the ranks of a stage divide 72 or are a multiple of it, or 64 of 72 GPUs are used",
    why="Otherwise some stage's data-parallel group spans two racks.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: domain(v) == 72 and v.world > 72 and v.world % v.pp == 0,
    holds=lambda v: 72 % stage_block(v) == 0 or stage_block(v) % 72 == 0,
    message=lambda v: (
        f"a stage of {stage_block(v)} ranks does not fit racks of 72: groups of some stages span two"
    ),
    fix="schedule 64 GPUs of each rack, or choose tp*dp that divides 72",
    breaks=given(world=256, tp=4, pp=4, sp=True, nvlink_domain=72),
    passes=given(world=288, tp=4, pp=4, sp=True, nvlink_domain=72),
)


def _most_tp(v: View) -> int:
    return {"nvlink": 8, "infiniband": 8, "ethernet": 4}.get(str(v["network"]).lower(), 8)


NETWORK = Rule(
    id="tp-by-network",
    aliases=("R268",),
    area="topology",
    must="TP is at most 8 in a node; on Ethernet at most 4, with PP across nodes",
    why="PP sends little and hides it; TP sends much in the way of the computation.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: v.get("network") is not None,
    holds=lambda v: v.tp <= max(_most_tp(v), 8 if v["network"] == "nvlink" else 0),
    message="tp={tp} on {network}",
    fix=lambda v: f"use tp of at most {_most_tp(v)} and pp across nodes",
    breaks=given(tp=8, sp=True, network="ethernet"),
    passes=given(tp=4, pp=2, layers=32, sp=True, network="ethernet"),
)

GUIDE_MINIMUM = Rule(
    id="minimum-gpus",
    aliases=("R273",),
    area="sizing",
    must="the fewest GPUs are PP*lcm(TP*CP, EP*ETP)",
    why="The guide's PP*max(TP*CP, EP*ETP) is right only where one grid divides the other; both must "
    "divide the "
    "world.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=f"{STRATEGIES}; megatron/core/parallel_state.py, initialize_model_parallel",
    applies=lambda v: v.ep * v.etp > 1,
    holds=lambda v: v.min_gpus == max(v.dense_grid, v.expert_grid),
    message=lambda v: (
        f"the fewest GPUs are {v.min_gpus}: pp {v.pp} x lcm({v.tp * v.cp}, {v.ep * v.etp}); the guide's "
        f"formula says "
        f"{max(v.dense_grid, v.expert_grid)}"
    ),
    fix=lambda v: f"use a multiple of {v.min_gpus} GPUs",
    breaks=given(tp=6, ep=4, etp=1, experts=8, sp=True),
    passes=given(tp=4, ep=8, etp=1, experts=8, sp=True),
)

ETP_UNSET = Rule(
    id="etp-unset",
    aliases=("R121", "R122"),
    area="ep",
    must="the expert tensor parallel size is given where TP and EP are above 1",
    why="Left unset it is TP in Megatron Core and Megatron-LM, and 1 in Megatron Bridge since mid-2026 (EP "
    "> 1): the "
    "same config needs other numbers of GPUs.",
    severity="warn",
    enforced_by=CORE_LM_BRIDGE,
    effect="changes",
    source="megatron/core/model_parallel_config.py, __post_init__; Megatron Bridge "
    "models/transformer_config.py, "
    "_set_moe_expert_tensor_parallel_default",
    applies=lambda v: v.is_moe and v.ep > 1 and v.tp > 1,
    holds=lambda v: v.gave("expert_tensor_parallel_size"),
    message=lambda v: (
        f"ETP unset: it is {v.etp} here (Megatron-LM vs Bridge: TP = {v.tp} in Megatron-LM, 1 in Bridge "
        f"since "
        f"mid-2026); the expert grid is then {v.expert_grid} = ETP*EP*PP"
    ),
    fix="--expert-tensor-parallel-size 1",
    breaks=given(world=8, tp=2, ep=4, experts=8, sp=True),
    passes=given(world=8, tp=2, ep=4, etp=1, experts=8, sp=True),
)


def hybridep_ranks(v: View) -> int:
    """EP ranks that share an NVLink domain: the value HybridEP must be told."""
    usable = 64 if domain(v) == 72 and 72 % expert_span(v) and expert_span(v) % 72 else domain(v)
    return min(expert_span(v), usable)


def _told(v: View) -> int | None:
    found = v.variable("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN")
    return None if found is None else int(found)


HYBRIDEP_RANKS = Rule(
    id="hybridep-ranks-per-domain",
    aliases=("R289",),
    area="dispatcher",
    must="NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN is the EP ranks that share an NVLink domain, and "
    "divides ETP*EP",
    why="HybridEP sends within that many ranks by NVLink and the rest by network; 16 to 32 SMs do. Packs are "
    "multiples of 128 wide.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skills: MoE dispatcher selection; sequence packing",
    applies=lambda v: flex(v) and backend(v) == "hybridep" and _told(v) is not None,
    holds=lambda v: _told(v) == hybridep_ranks(v) and v.ep * v.etp % hybridep_ranks(v) == 0,
    message=lambda v: (
        f"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN is {_told(v)}; with ETP*EP = {v.ep * v.etp} on domains of "
        f"{domain(v)} it is {hybridep_ranks(v)}"
    ),
    fix=lambda v: f"export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN={hybridep_ranks(v)}",
    breaks=given(
        world=64,
        ep=64,
        etp=1,
        experts=64,
        moe_token_dispatcher_type="flex",
        nvlink_domain=72,
        moe_flex_dispatcher_backend="hybridep",
        NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=8,
    ),
    passes=given(
        world=64,
        ep=64,
        etp=1,
        experts=64,
        moe_token_dispatcher_type="flex",
        nvlink_domain=72,
        moe_flex_dispatcher_backend="hybridep",
        NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64,
    ),
)


def _best_dispatcher(v: View) -> str:
    """What the skill says to try for this GPU: HybridEP on NVL72; otherwise alltoall, then A/B."""
    return "HybridEP" if str(v.get("gpu_name") or "").upper().startswith(("GB200", "GB300")) else "alltoall"


DISPATCHER = Rule(
    id="dispatcher-by-gpu",
    aliases=("R288",),
    area="dispatcher",
    must="the dispatcher suits the GPU: alltoall first, DeepEP or HybridEP by trial on H100 and B200, "
    "HybridEP on "
    "GB200 and GB300",
    why="DeepEP does not use NVL72; the allgather dispatcher sends every token everywhere.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: MoE dispatcher selection",
    applies=lambda v: v.is_moe and v.ep > 1,
    holds=lambda v: (
        v["moe_token_dispatcher_type"] != "allgather"
        and not (flex(v) and backend(v) == "deepep" and _best_dispatcher(v) == "HybridEP")
    ),
    message=lambda v: (
        f"the {backend(v) if flex(v) else v['moe_token_dispatcher_type']} dispatcher with ep={v.ep}; for "
        f"this GPU try "
        f"{_best_dispatcher(v)}"
    ),
    fix="--moe-token-dispatcher-type alltoall; or flex with --moe-flex-dispatcher-backend hybridep on "
    "GB200/GB300",
    breaks=given(
        world=8,
        ep=8,
        experts=64,
        gpu_name="GB200-NVL72",
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
    ),
    passes=given(
        world=8,
        ep=8,
        experts=64,
        gpu_name="GB200-NVL72",
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
    ),
)

CP_COMM = Rule(
    id="cp-comm-type-by-domain",
    aliases=("R277",),
    area="cp",
    must="CP inside the NVLink domain uses p2p; CP beyond it a2a+p2p with the a2a level inside",
    why="p2p is overlapped with attention; all_gather is fine with grouped-query attention; a2a is exposed "
    "and wants "
    "NVLink.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.cp > 1 and v.cp * v.tp > domain(v) and _inner(v) > 1,
    holds=lambda v: "p2p" not in (v.listed("cp_comm_type") or ("p2p",)),
    message="cp={cp} (times tp {tp}) passes keys over the network between NVLink domains of "
    "{nvlink_domain}: p2p",
    fix=lambda v: (
        "hierarchical CP: --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes "
        f"{_inner(v)} {v.cp // _inner(v)}"
    ),
    breaks=given(seq=131072, cp=16, nvlink_domain=8),
    passes=given(
        seq=131072, cp=16, nvlink_domain=8, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=[8, 2]
    ),
)


def _inner(v: View) -> int:
    """The largest CP level that fits the domain beside TP."""
    fitting = [size for size in range(1, int(v.cp) + 1) if v.cp % size == 0 and size * v.tp <= domain(v)]
    return max(fitting, default=1)


RULES = (
    TP_IN_DOMAIN,
    EP_IN_DOMAIN,
    EP_WITHOUT_NVLINK,
    RACK,
    NETWORK,
    GUIDE_MINIMUM,
    ETP_UNSET,
    HYBRIDEP_RANKS,
    DISPATCHER,
    CP_COMM,
)
