"""Rules of environment variables and what they must be for the layout and the GPU."""

from __future__ import annotations

from meshwright.layout.rules.rule import ARGUMENTS, BRIDGE, CORE, LM, LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def fsdp(v: View) -> bool:
    return v.on("use_megatron_fsdp") or v.on("use_torch_fsdp2")


def one_queue(v: View) -> bool:
    """TP or CP on a GPU before Blackwell, where kernels start in the order of one queue."""
    return (v.tp > 1 or v.cp > 1) and v.sm < 10


def connections(v: View) -> str:
    return v.variable(CONNECTIONS) or "unset"


ONE = Rule(
    id="max-connections-1",
    aliases=("R174", "R291"),
    area="env",
    must="before Blackwell, TP or CP > 1 (without FSDP or expert overlap) sets CUDA_DEVICE_MAX_CONNECTIONS=1",
    why="One queue makes a collective start before the matrix product that hides it. Bridge does not ask "
    "for it.",
    severity="error",
    enforced_by=LM,
    since="2025-02-12",
    source=ARGUMENTS,
    applies=lambda v: (
        (v.tp > 1 or v.cp > 1) and not fsdp(v) and not v.on("overlap_moe_expert_parallel_comm") and v.sm < 10
    ),
    holds=lambda v: v.variable(CONNECTIONS) == "1",
    message=lambda v: (
        f"tp={v.tp}, cp={v.cp} on compute capability {v.sm}: {CONNECTIONS} is {connections(v)}, not 1"
    ),
    fix=f"export {CONNECTIONS}=1",
    breaks=given(tp=2, sp=True, compute_capability="9.0", CUDA_DEVICE_MAX_CONNECTIONS=None),
    passes=given(tp=2, sp=True, compute_capability="9.0", CUDA_DEVICE_MAX_CONNECTIONS=1),
)

ONE_BEFORE = Rule(
    id="max-connections-1-any-gpu",
    area="env",
    must="TP or CP > 1 sets CUDA_DEVICE_MAX_CONNECTIONS=1 (before February 2025, on any GPU)",
    why="Older Megatron-LM knew no exemption for Blackwell.",
    severity="error",
    enforced_by=LM,
    until="2025-02-12",
    source="megatron/training/arguments.py, validate_args (0.10 and before)",
    applies=lambda v: v.tp > 1 or v.cp > 1,
    holds=lambda v: v.variable(CONNECTIONS) == "1",
    message=lambda v: f"tp={v.tp}, cp={v.cp}: {CONNECTIONS} is {connections(v)}, not 1",
    fix=f"export {CONNECTIONS}=1",
    breaks=given(tp=2, sp=True, CUDA_DEVICE_MAX_CONNECTIONS=None),
    passes=given(tp=2, sp=True, CUDA_DEVICE_MAX_CONNECTIONS=1),
)

FSDP_CONFLICT = Rule(
    id="fsdp-with-tp-connections",
    aliases=("R175",),
    area="env",
    must="before Blackwell, FSDP is used without TP and CP",
    why="TP wants one queue and FSDP several; Megatron-LM warns.",
    severity="warn",
    enforced_by=LM,
    effect="warns",
    source=ARGUMENTS,
    applies=lambda v: fsdp(v) and v.sm < 10,
    holds=lambda v: v.tp == 1 and v.cp == 1,
    message=f"FSDP with tp={{tp}}, cp={{cp}} before Blackwell: they want different {CONNECTIONS}",
    fix="drop TP and CP, or accept less overlap",
    breaks=given(tp=2, sp=True, use_megatron_fsdp=True, ckpt_format="fsdp_dtensor", compute_capability="9.0"),
    passes=given(use_megatron_fsdp=True, ckpt_format="fsdp_dtensor", compute_capability="9.0"),
)

EP_CONFLICT = Rule(
    id="ep-overlap-with-tp-connections",
    aliases=("R176",),
    area="env",
    must="before Blackwell, overlap of the experts' exchange is used without TP and CP",
    why="TP wants one queue and the overlap several (32).",
    severity="warn",
    enforced_by=LM,
    effect="warns",
    since="2025-08-01",
    source=ARGUMENTS,
    applies=lambda v: v.on("overlap_moe_expert_parallel_comm") and not fsdp(v) and v.sm < 10,
    holds=lambda v: v.tp == 1 and v.cp == 1,
    message=f"expert overlap with tp={{tp}}, cp={{cp}} before Blackwell: {CONNECTIONS} 1 favours TP, 32 "
    f"the experts",
    fix=f"choose {CONNECTIONS} 1 or 32 by which traffic matters more",
    breaks=given(
        experts=8,
        world=8,
        ep=4,
        tp=2,
        sp=True,
        overlap_moe_expert_parallel_comm=True,
        moe_token_dispatcher_type="alltoall",
        compute_capability="9.0",
    ),
    passes=given(
        experts=8,
        world=8,
        ep=4,
        overlap_moe_expert_parallel_comm=True,
        moe_token_dispatcher_type="alltoall",
        compute_capability="9.0",
    ),
)

SP_WARNING = Rule(
    id="sp-connections-warning",
    aliases=("R177",),
    area="env",
    must="with SP, CUDA_DEVICE_MAX_CONNECTIONS is 1 before Blackwell",
    why="Megatron Core warns once whenever it is not 1, on Blackwell too, where the warning can be ignored.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    source="megatron/core/tensor_parallel/layers.py",
    # FSDP and the overlapped expert exchange refuse 1: there is nothing to do about the warning
    applies=lambda v: (
        v.on("sequence_parallel")
        and v.sm < 10
        and not fsdp(v)
        and not v.on("overlap_moe_expert_parallel_comm")
    ),
    holds=lambda v: v.variable(CONNECTIONS) == "1",
    message=lambda v: f"sequence parallelism with {CONNECTIONS} {connections(v)}",
    fix=f"export {CONNECTIONS}=1",
    breaks=given(tp=2, sp=True, compute_capability="9.0", CUDA_DEVICE_MAX_CONNECTIONS=32),
    passes=given(tp=2, sp=True, compute_capability="9.0", CUDA_DEVICE_MAX_CONNECTIONS=1),
)

FSDP_NOT_ONE = Rule(
    id="fsdp-max-connections",
    aliases=("R178",),
    area="env",
    must="FSDP runs with CUDA_DEVICE_MAX_CONNECTIONS other than 1",
    why="Its gathers must run beside compute.",
    severity="error",
    enforced_by=LM_BRIDGE,
    source=f"{ARGUMENTS}; Megatron Bridge training/config.py, _validate_and_apply_megatron_fsdp_v1_configs",
    applies=fsdp,
    holds=lambda v: v.variable(CONNECTIONS) != "1",
    message=f"FSDP with {CONNECTIONS}=1",
    fix=f"unset {CONNECTIONS}, or set it to 8 or 32",
    breaks=given(use_megatron_fsdp=True, ckpt_format="fsdp_dtensor", CUDA_DEVICE_MAX_CONNECTIONS=1),
    passes=given(use_megatron_fsdp=True, ckpt_format="fsdp_dtensor", CUDA_DEVICE_MAX_CONNECTIONS=None),
)

RECIPE_VALUE = Rule(
    id="max-connections-by-gpu",
    aliases=("R179",),
    area="env",
    must="CUDA_DEVICE_MAX_CONNECTIONS is what the recipes of the GPU use: on Hopper 1 with TP or CP and no "
    "expert "
    "overlap or FSDP, else 32; on Blackwell 32",
    why="Bridge's performance recipes set it so (with a few exceptions: 8 for three expert-overlap recipes).",
    severity="advice",
    enforced_by=("advice",),
    effect="advises",
    since="2026-07-20",
    source="Megatron Bridge perf_recipes (env_vars of 2026-07-20)",
    applies=lambda v: v.framework == "megatron-bridge" and v.sm >= 9,
    holds=lambda v: connections(v) == recipe_connections(v),
    message=lambda v: (
        f"{CONNECTIONS} is {connections(v)}; recipes for this GPU and layout use {recipe_connections(v)}"
    ),
    fix=lambda v: f"export {CONNECTIONS}={recipe_connections(v)}",
    breaks=given(tp=2, sp=True, compute_capability="10.0", CUDA_DEVICE_MAX_CONNECTIONS=1),
    passes=given(tp=2, sp=True, compute_capability="10.0", CUDA_DEVICE_MAX_CONNECTIONS=32),
    example_framework="megatron-bridge",
)


def recipe_connections(v: View) -> str:
    """The value that Bridge's recipes use for this GPU and layout."""
    hides_tp = (v.tp > 1 or v.cp > 1) and not fsdp(v) and not v.on("overlap_moe_expert_parallel_comm")
    return "1" if v.sm < 10 and hides_tp else "32"


def _expandable(v: View) -> bool:
    return "expandable_segments:True" in (v.variable("PYTORCH_CUDA_ALLOC_CONF") or "")


GRAPH_REGISTER = Rule(
    id="graphs-expandable-segments",
    aliases=("R180", "R281"),
    area="env",
    must="TE CUDA graphs with expandable segments set NCCL_GRAPH_REGISTER=0",
    why="NCCL cannot register memory whose mapping may grow.",
    severity="error",
    enforced_by=CORE,
    source=f"{ARGUMENTS}; megatron/core/transformer/cuda_graphs.py",
    applies=lambda v: v["cuda_graph_impl"] == "transformer_engine" and _expandable(v),
    holds=lambda v: v.variable("NCCL_GRAPH_REGISTER") == "0",
    message="CUDA graphs with expandable_segments and NCCL_GRAPH_REGISTER not 0",
    fix="export NCCL_GRAPH_REGISTER=0",
    breaks=given(
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["attn"],
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        NCCL_GRAPH_REGISTER=None,
    ),
    passes=given(
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["attn"],
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        NCCL_GRAPH_REGISTER=0,
    ),
)

USER_BUFFERS = Rule(
    id="nccl-ub-expandable-segments",
    aliases=("R181",),
    area="env",
    must="nccl_ub is not used with expandable segments (torch before 2.11)",
    why="Registered buffers must not move.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/distributed/distributed_data_parallel_config.py",
    applies=lambda v: (
        v.on("nccl_ub") and not (v.get("torch_version") is not None and v.release("torch_version") >= (2, 11))
    ),
    holds=lambda v: not _expandable(v),
    message="nccl_ub with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    fix="drop expandable_segments or nccl_ub",
    breaks=given(nccl_ub=True, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
    passes=given(nccl_ub=True, PYTORCH_CUDA_ALLOC_CONF=None),
)

ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")

DETERMINISTIC = Rule(
    id="deterministic-nccl",
    aliases=("R182",),
    area="env",
    must="deterministic mode names NCCL_ALGO (Tree, Ring, Collnet..., ^NVLS) and fuses no cross entropy",
    why="NCCL would choose an algorithm by what it measures.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge training/config.py, _validate_and_apply_deterministic_mode",
    applies=lambda v: v.on("deterministic_mode"),
    holds=lambda v: v.variable("NCCL_ALGO") in ALGORITHMS and not v.on("cross_entropy_loss_fusion"),
    message=lambda v: (
        f"deterministic mode with NCCL_ALGO {v.variable('NCCL_ALGO') or 'unset'}, "
        f"fused cross entropy {v.on('cross_entropy_loss_fusion')}"
    ),
    fix="export NCCL_ALGO=Ring and cross_entropy_loss_fusion=false",
    breaks=given(deterministic_mode=True, NCCL_ALGO=None),
    passes=given(deterministic_mode=True, NCCL_ALGO="Ring"),
)

OFFLOAD_V1 = Rule(
    id="fine-offload-v1",
    aliases=("R183",),
    area="env",
    must="fine-grained activation offload with Transformer Engine 2.10 or newer sets NVTE_CPU_OFFLOAD_V1=1",
    why="The newer offload of Transformer Engine works another way.",
    severity="error",
    enforced_by=LM_BRIDGE,
    since="2026-01-15",
    source=f"{ARGUMENTS}; Megatron Bridge training/config.py",
    applies=lambda v: v.on("fine_grained_activation_offloading") and v.release("te_version") >= (2, 10),
    holds=lambda v: v.variable("NVTE_CPU_OFFLOAD_V1") == "1",
    message="fine-grained offload with Transformer Engine {te_version} and NVTE_CPU_OFFLOAD_V1 not 1",
    fix="export NVTE_CPU_OFFLOAD_V1=1",
    breaks=given(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn"],
        te_version="2.10",
        NVTE_CPU_OFFLOAD_V1=None,
    ),
    passes=given(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn"],
        te_version="2.10",
        NVTE_CPU_OFFLOAD_V1=1,
    ),
)

STREAMS = Rule(
    id="fsdp-priority-streams",
    aliases=("R184",),
    area="env",
    must="FSDP lists dp_cp among the high-priority streams",
    why="Megatron-LM adds it (torch FSDP2 anywhere, Megatron FSDP on Blackwell).",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    source=ARGUMENTS,
    applies=lambda v: v.on("use_torch_fsdp2") or (v.on("use_megatron_fsdp") and v.sm >= 10),
    holds=lambda v: "dp_cp" in v.listed("high_priority_stream_groups"),
    message="dp_cp is added to the high-priority streams",
    fix="nothing to do",
    breaks=given(use_torch_fsdp2=True),
    passes=given(use_torch_fsdp2=True, high_priority_stream_groups=["dp_cp"]),
)

RULES = (
    ONE,
    ONE_BEFORE,
    FSDP_CONFLICT,
    EP_CONFLICT,
    SP_WARNING,
    FSDP_NOT_ONE,
    RECIPE_VALUE,
    GRAPH_REGISTER,
    USER_BUFFERS,
    DETERMINISTIC,
    OFFLOAD_V1,
    STREAMS,
)
