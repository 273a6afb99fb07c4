"""Rules of the interleaved schedule, its communication, and multi-token prediction in the pipeline."""

from __future__ import annotations

from meshwright.layout.rules.rule import (
    ARGUMENTS,
    BRIDGE,
    CONFIG,
    CORE,
    GROUPS,
    LM,
    PARALLEL_CONFIG,
    Rule,
    given,
)

UCC = Rule(
    id="ucc-connections",
    aliases=("R117",),
    area="pp",
    must="the UCC pipeline backend is not used with CUDA_DEVICE_MAX_CONNECTIONS=1",
    why="Its kernels would wait for those of the same queue.",
    severity="error",
    enforced_by=CORE,
    source=GROUPS,
    applies=lambda v: v.get("pipeline_model_parallel_comm_backend") == "ucc",
    holds=lambda v: v.variable("CUDA_DEVICE_MAX_CONNECTIONS") != "1",
    message="the UCC backend with CUDA_DEVICE_MAX_CONNECTIONS=1",
    fix="unset CUDA_DEVICE_MAX_CONNECTIONS, or use NCCL",
    breaks=given(pipeline_model_parallel_comm_backend="ucc", CUDA_DEVICE_MAX_CONNECTIONS=1),
    passes=given(pipeline_model_parallel_comm_backend="ucc", CUDA_DEVICE_MAX_CONNECTIONS=32),
)

GROUP_UNSET = Rule(
    id="microbatch-group-unset",
    aliases=("R107",),
    area="interleave",
    must="the microbatch group of interleaving is given, or PP is what is wanted",
    why="Left unset it is PP; other sizes allow micro-batches that are no multiple of PP.",
    severity="warn",
    enforced_by=CORE,
    effect="fills",
    source=PARALLEL_CONFIG,
    applies=lambda v: v.vpp > 1,
    holds=lambda v: v.gave("microbatch_group_size_per_vp_stage"),
    message="microbatch group unset: it is PP = {pp}",
    fix="nothing to do",
    breaks=given(layers=32, pp=4, vpp=2),
    passes=given(layers=32, pp=4, vpp=2, microbatch_group_size_per_vp_stage=4),
)

OVERLAP_OR_BATCH = Rule(
    id="p2p-overlap-or-batch",
    aliases=("R108",),
    area="interleave",
    must="with interleaving, point-to-point calls are overlapped or batched, not both",
    why="A batched call is waited for at once.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving",
    applies=lambda v: v.interleaved and v.pp > 1,
    holds=lambda v: not (v.on("overlap_p2p_comm") and v.on("batch_p2p_comm")),
    message="overlap_p2p_comm and batch_p2p_comm are both on",
    fix="batch_p2p_comm=False with the overlap",
    breaks=given(layers=32, pp=4, vpp=2, overlap_p2p_comm=True, batch_p2p_comm=True),
    passes=given(layers=32, pp=4, vpp=2, overlap_p2p_comm=True, batch_p2p_comm=False),
)

OVERLAP_NEEDS_VPP = Rule(
    id="p2p-overlap-needs-vpp",
    aliases=("R109",),
    area="interleave",
    must="point-to-point overlap is used with interleaving",
    why="The plain schedule has nothing to do meanwhile. Megatron-LM and Bridge switch it off without VPP.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving",
    applies=lambda v: v.pp > 1 and not v.interleaved,
    holds=lambda v: not v.on("overlap_p2p_comm"),
    message="overlap_p2p_comm is on with pp={pp} and no interleaving",
    fix="overlap_p2p_comm=False, or use VPP",
    breaks=given(layers=32, pp=4, overlap_p2p_comm=True, batch_p2p_comm=False),
    passes=given(layers=32, pp=4, overlap_p2p_comm=False),
)

WARMUP_FLUSH = Rule(
    id="warmup-flush-needs-overlap",
    aliases=("R110",),
    area="interleave",
    must="overlap in warm-up and flush needs overlap_p2p_comm without batch_p2p_comm",
    why="It extends that overlap.",
    severity="error",
    enforced_by=CORE,
    source=PARALLEL_CONFIG,
    applies=lambda v: v.on("overlap_p2p_comm_warmup_flush"),
    holds=lambda v: v.on("overlap_p2p_comm") and not v.on("batch_p2p_comm"),
    message="overlap_p2p_comm_warmup_flush with overlap_p2p_comm {overlap_p2p_comm}, batch_p2p_comm "
    "{batch_p2p_comm}",
    fix="overlap_p2p_comm=True and batch_p2p_comm=False",
    breaks=given(overlap_p2p_comm_warmup_flush=True),
    passes=given(overlap_p2p_comm_warmup_flush=True, overlap_p2p_comm=True, batch_p2p_comm=False),
)

BRIDGE_P2P = Rule(
    id="bridge-sets-p2p-overlap",
    aliases=("R111",),
    area="interleave",
    must="the point-to-point overlap agrees with the pipeline",
    why="Bridge's communication-overlap config turns it on with VPP and off without, whatever was asked.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge training/comm_overlap.py",
    applies=lambda v: v.said.get("overlap_p2p_comm") is not None,
    holds=lambda v: bool(v.said["overlap_p2p_comm"]) == bool(v.vpp > 1 and v.pp > 1),
    message=lambda v: (
        f"overlap_p2p_comm={v.said['overlap_p2p_comm']} is changed to {v.vpp > 1 and v.pp > 1} (pp {v.pp}, "
        f"vpp {v.vpp})"
    ),
    fix="leave overlap_p2p_comm to Bridge",
    breaks=given(layers=32, pp=4, overlap_p2p_comm=True),
    passes=given(layers=32, pp=4, vpp=2, overlap_p2p_comm=True),
)

DEFER_WGRAD = Rule(
    id="defer-embedding-wgrad",
    aliases=("R112",),
    area="interleave",
    must="defer_embedding_wgrad_compute needs PP > 1, fused gradient accumulation and a limit of at least 0",
    why="It moves the head's weight gradient into the cool-down bubble.",
    severity="error",
    enforced_by=CORE,
    source=PARALLEL_CONFIG,
    applies=lambda v: v.on("defer_embedding_wgrad_compute"),
    holds=lambda v: (
        v.pp > 1 and v.on("gradient_accumulation_fusion") and v.get("wgrad_deferral_limit", 0) >= 0
    ),
    message="defer_embedding_wgrad_compute with pp={pp}, gradient fusion {gradient_accumulation_fusion}",
    fix="use it with pp of at least 2 and gradient_accumulation_fusion",
    breaks=given(defer_embedding_wgrad_compute=True),
    passes=given(layers=32, pp=4, defer_embedding_wgrad_compute=True, gradient_accumulation_fusion=True),
)

MTP_POSITIONS = Rule(
    id="mtp-positions",
    aliases=("R113",),
    area="mtp",
    must="multi-token prediction uses rotary positions or none",
    why="Its modules shift the tokens, and a learned table would be off by one.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: bool(v.get("mtp_num_layers")),
    holds=lambda v: v["position_embedding_type"] in ("rope", "none"),
    message="{mtp_num_layers} MTP layers with position embedding {position_embedding_type}",
    fix="--position-embedding-type rope",
    breaks=given(mtp_num_layers=1, position_embedding_type="learned_absolute"),
    passes=given(mtp_num_layers=1, position_embedding_type="rope"),
)

MTP_HSM = Rule(
    id="mtp-hsm-depth",
    aliases=("R114",),
    area="mtp",
    must="mtp_hsm needs at least two MTP layers",
    why="It shares hidden states between them. Megatron-LM switches it off with a warning.",
    severity="error",
    enforced_by=CORE,
    since="2026-08-20",
    source=CONFIG,
    applies=lambda v: v.on("mtp_hsm"),
    holds=lambda v: (v.get("mtp_num_layers") or 0) >= 2,
    message="mtp_hsm with {mtp_num_layers} MTP layers",
    fix="use at least 2 MTP layers, or drop mtp_hsm",
    breaks=given(mtp_hsm=True, mtp_num_layers=1),
    passes=given(mtp_hsm=True, mtp_num_layers=2),
)

MTP_RECOMPUTE = Rule(
    id="mtp-uniform-recompute",
    aliases=("R116",),
    area="mtp",
    must="MTP with uniform full recompute uses recompute_num_layers 1",
    why="An MTP block is one layer deep.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/multi_token_prediction.py",
    applies=lambda v: bool(v.get("mtp_num_layers")) and v.get("recompute_granularity") == "full",
    holds=lambda v: v.get("recompute_method") != "uniform" or v.get("recompute_num_layers") == 1,
    message="{mtp_num_layers} MTP layers with uniform recompute of {recompute_num_layers} layers",
    fix="--recompute-num-layers 1",
    breaks=given(
        mtp_num_layers=1, recompute_granularity="full", recompute_method="uniform", recompute_num_layers=2
    ),
    passes=given(
        mtp_num_layers=1, recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1
    ),
)

RULES = (
    UCC,
    GROUP_UNSET,
    OVERLAP_OR_BATCH,
    OVERLAP_NEEDS_VPP,
    WARMUP_FLUSH,
    BRIDGE_P2P,
    DEFER_WGRAD,
    MTP_POSITIONS,
    MTP_HSM,
    MTP_RECOMPUTE,
)
