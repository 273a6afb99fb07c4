"""Rules of data parallelism: overlaps, optimizer instances, buckets, checkpoint formats."""

from __future__ import annotations

from meshwright.layout.rules.rule import (
    ARGUMENTS,
    BRIDGE,
    BRIDGE_CONFIG,
    CORE,
    GROUPS,
    LM,
    Rule,
    given,
)
from meshwright.layout.rules.view import View

DDP = "megatron/core/distributed/distributed_data_parallel.py"
DDP_CONFIG = "megatron/core/distributed/distributed_data_parallel_config.py"


def instances(v: View) -> int:
    return int(v["num_distributed_optimizer_instances"])


GATHER = Rule(
    id="gather-overlap-needs",
    aliases=("R185",),
    area="dp",
    must="overlap_param_gather needs the distributed optimizer (or Megatron FSDP, dist_muon) and "
    "overlap_grad_reduce",
    why="There are no parameters to gather otherwise, and both share their buckets.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("overlap_param_gather"),
    holds=lambda v: (
        v.on("overlap_grad_reduce")
        and (v.on("use_distributed_optimizer") or v.on("use_megatron_fsdp") or v["optimizer"] == "dist_muon")
    ),
    message="overlap_param_gather with overlap_grad_reduce {overlap_grad_reduce}, "
    "distributed optimizer {use_distributed_optimizer}",
    fix="--use-distributed-optimizer --overlap-grad-reduce",
    breaks=given(overlap_param_gather=True, overlap_grad_reduce=False),
    passes=given(overlap_param_gather=True, overlap_grad_reduce=True, use_distributed_optimizer=True),
)


def _with_step_fault(v: View) -> str:
    if not v.on("use_distributed_optimizer"):
        return "no distributed optimizer"
    if not v.on("overlap_param_gather"):
        return "no overlap_param_gather"
    if v.vpp == 1:
        return "no VPP"
    saves = v.get("ckpt_format") in ("torch_dist", "zarr", "fsdp_dtensor", "torch_dcp")
    return f"distributed checkpoints ({v.get('ckpt_format')})" if saves else ""


GATHER_WITH_STEP = Rule(
    id="gather-with-step-needs",
    aliases=("R186",),
    area="dp",
    must="overlap_param_gather_with_optimizer_step needs the distributed optimizer, overlap_param_gather, "
    "VPP, and "
    "no distributed checkpoints",
    why="The step of one chunk runs beside the gather of another. Bridge does not check it.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("overlap_param_gather_with_optimizer_step"),
    holds=lambda v: not _with_step_fault(v),
    message=lambda v: f"overlap_param_gather_with_optimizer_step with {_with_step_fault(v)}",
    fix="use it with VPP and --ckpt-format torch",
    breaks=given(
        overlap_param_gather_with_optimizer_step=True,
        overlap_param_gather=True,
        overlap_grad_reduce=True,
        use_distributed_optimizer=True,
        ckpt_format="torch",
    ),
    passes=given(
        overlap_param_gather_with_optimizer_step=True,
        overlap_param_gather=True,
        overlap_grad_reduce=True,
        use_distributed_optimizer=True,
        ckpt_format="torch",
        layers=32,
        pp=4,
        num_virtual_stages_per_pipeline_rank=2,
    ),
)

REUSE_OR_STEP = Rule(
    id="buffer-reuse-or-gather-with-step",
    aliases=("R187",),
    area="dp",
    must="the gradient buffer is not reused together with overlap_param_gather_with_optimizer_step",
    why="The gather would overwrite gradients that the step still reads.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/optimizer/optimizer_config.py",
    applies=lambda v: v.on("reuse_grad_buf_for_mxfp8_param_ag"),
    holds=lambda v: not v.on("overlap_param_gather_with_optimizer_step"),
    message="reuse_grad_buf_for_mxfp8_param_ag with overlap_param_gather_with_optimizer_step",
    fix="drop overlap_param_gather_with_optimizer_step",
    breaks=given(reuse_grad_buf_for_mxfp8_param_ag=True, overlap_param_gather_with_optimizer_step=True),
    passes=given(reuse_grad_buf_for_mxfp8_param_ag=True),
)

INSTANCES_DIST = Rule(
    id="instances-need-distributed-optimizer",
    aliases=("R188",),
    area="dp",
    must="several optimizer instances need the distributed optimizer",
    why="An instance is a group over which its state is sharded.",
    severity="error",
    enforced_by=CORE,
    source=DDP,
    applies=lambda v: instances(v) > 1,
    holds=lambda v: v.on("use_distributed_optimizer"),
    message="{num_distributed_optimizer_instances} optimizer instances without the distributed optimizer",
    fix="--use-distributed-optimizer",
    breaks=given(world=8, num_distributed_optimizer_instances=2, use_distributed_optimizer=False),
    passes=given(world=8, num_distributed_optimizer_instances=2, use_distributed_optimizer=True),
)

INSTANCES_DIVIDE = Rule(
    id="instances-divide-dp",
    aliases=("R189",),
    area="dp",
    must="the optimizer instances divide DP*CP and expert DP",
    why="Each instance takes an equal part of both groups.",
    severity="error",
    enforced_by=CORE,
    since="2024-11-30",
    source=GROUPS,
    applies=lambda v: instances(v) > 1 and v.world % v.min_gpus == 0,
    holds=lambda v: (v.dp * v.cp) % instances(v) == 0 and v.edp % instances(v) == 0,
    message="{num_distributed_optimizer_instances} optimizer instances do not divide dp*cp = {dp}*{cp} and "
    "expert dp "
    "{edp}",
    fix="use a number that divides both",
    breaks=given(
        world=8, ep=8, experts=8, num_distributed_optimizer_instances=2, use_distributed_optimizer=True
    ),
    passes=given(
        world=8, ep=2, experts=8, num_distributed_optimizer_instances=2, use_distributed_optimizer=True
    ),
)

FP32_ACCUMULATION = Rule(
    id="fp32-scatter-one-instance",
    aliases=("R190",),
    area="dp",
    must="reduce-scatter with fp32 accumulation is used with one optimizer instance",
    why="It sums over one group only.",
    severity="error",
    enforced_by=CORE,
    since="2025-12-01",
    source="megatron/core/distributed/param_and_grad_buffer.py",
    applies=lambda v: v.on("reduce_scatter_with_fp32_accumulation"),
    holds=lambda v: instances(v) == 1,
    message="reduce_scatter_with_fp32_accumulation with {num_distributed_optimizer_instances} optimizer "
    "instances",
    fix="use one instance",
    breaks=given(world=8, reduce_scatter_with_fp32_accumulation=True, num_distributed_optimizer_instances=2),
    passes=given(world=8, reduce_scatter_with_fp32_accumulation=True),
)

BUCKETS = Rule(
    id="buckets-number-or-size",
    aliases=("R191", "R293"),
    area="dp",
    must="either the number of buckets or their size is given, above 0",
    why="One follows from the other. The size counts parameters, not bytes.",
    severity="error",
    enforced_by=CORE,
    source=DDP_CONFIG,
    applies=lambda v: v.gave("num_buckets"),
    holds=lambda v: v["num_buckets"] > 0 and not v.gave("bucket_size"),
    message="num_buckets {num_buckets} together with bucket_size {bucket_size}",
    fix="keep one of them",
    breaks=given(num_buckets=4, bucket_size=40_000_000),
    passes=given(num_buckets=4),
)

BUCKET_UNSET = Rule(
    id="bucket-size-unset",
    aliases=("R192", "R193"),
    area="dp",
    must="the bucket size is given, or the default is what is wanted",
    why="Unset it is max(40 million, 1 million * DP) parameters with overlap of the gradients, one bucket "
    "without; "
    "Bridge's overlap config uses 128 Mi.",
    severity="warn",
    enforced_by=CORE,
    effect="fills",
    source=f"{DDP}; Megatron Bridge training/comm_overlap.py, _get_optimizer_overlap_cfgs",
    applies=lambda v: v.on("overlap_grad_reduce"),
    holds=lambda v: v.gave("bucket_size") or v.gave("num_buckets"),
    message="bucket size unset: it follows from the data-parallel size",
    fix="nothing to do",
    breaks=given(overlap_grad_reduce=True),
    passes=given(overlap_grad_reduce=True, bucket_size=40_000_000),
)

BRIDGE_SYNC = Rule(
    id="bridge-syncs-distributed-optimizer",
    aliases=("R194",),
    area="dp",
    must="the distributed optimizer is on or off for both ddp and optimizer",
    why="Where they differ Bridge sets both on.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge training/config.py, _validate_and_sync_distributed_optimizer_settings",
    applies=lambda v: v.said.get("use_distributed_optimizer") is False,
    holds=lambda v: not (v.on("overlap_param_gather") or v.on("optimizer_use_distributed_optimizer")),
    message="use_distributed_optimizer=False is set to True (ddp and optimizer settings differ)",
    fix="set it in both places",
    breaks=given(use_distributed_optimizer=False, optimizer_use_distributed_optimizer=True),
    passes=given(use_distributed_optimizer=False),
)

PER_TOKEN = Rule(
    id="per-token-loss-no-average",
    aliases=("R195",),
    area="dp",
    must="calculate_per_token_loss and average_in_collective are not both on",
    why="Sums of tokens must not be averaged over ranks.",
    severity="error",
    enforced_by=CORE,
    source=DDP,
    applies=lambda v: v.on("calculate_per_token_loss"),
    holds=lambda v: not (v.on("average_in_collective") or v.on("ddp_average_in_collective")),
    message="calculate_per_token_loss with average_in_collective",
    fix="average_in_collective=False",
    breaks=given(calculate_per_token_loss=True, average_in_collective=True),
    passes=given(calculate_per_token_loss=True),
)

SHARP = Rule(
    id="sharp-replica-group",
    aliases=("R196",),
    area="dp",
    must="a SHARP group is given only with use_sharp, and dp_replica only with several optimizer instances",
    why="With one instance there is no replica group.",
    severity="error",
    enforced_by=CORE,
    source=GROUPS,
    applies=lambda v: v.gave("sharp_enabled_group"),
    holds=lambda v: v.on("use_sharp") and (v["sharp_enabled_group"] != "dp_replica" or instances(v) > 1),
    message="SHARP group {sharp_enabled_group} with use_sharp {use_sharp}, "
    "{num_distributed_optimizer_instances} instances",
    fix="use_sharp=True; dp_replica with at least 2 instances",
    breaks=given(world=8, use_sharp=True, sharp_enabled_group="dp_replica"),
    passes=given(
        world=8,
        use_sharp=True,
        sharp_enabled_group="dp_replica",
        num_distributed_optimizer_instances=2,
        use_distributed_optimizer=True,
    ),
)

NO_GLOO = Rule(
    id="no-gloo-needs-dist-checkpoint",
    aliases=("R197", "R199"),
    area="dp",
    must="without gloo groups, the distributed optimizer is saved in a distributed format",
    why="The old format gathers the state over gloo.",
    severity="error",
    enforced_by=(*LM, *BRIDGE),
    source=f"{ARGUMENTS}; {BRIDGE_CONFIG}",
    applies=lambda v: v.get("use_gloo_process_groups") is False and v.on("use_distributed_optimizer"),
    holds=lambda v: v["ckpt_format"] in ("torch_dist", "fsdp_dtensor"),
    message="no gloo groups with the checkpoint format {ckpt_format}",
    fix="--ckpt-format torch_dist",
    breaks=given(use_gloo_process_groups=False, use_distributed_optimizer=True, ckpt_format="torch"),
    passes=given(use_gloo_process_groups=False, use_distributed_optimizer=True, ckpt_format="torch_dist"),
)

DECENTRALIZED = Rule(
    id="decentralized-no-gloo",
    aliases=("R198",),
    area="dp",
    must="decentralized process groups are used without gloo groups",
    why="They are not built there.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v.on("use_decentralized_pg") and v.gave("use_gloo_process_groups"),
    holds=lambda v: not v.on("use_gloo_process_groups"),
    message="use_decentralized_pg with gloo groups",
    fix="dist.use_gloo_process_groups=false",
    breaks=given(use_decentralized_pg=True, use_gloo_process_groups=True),
    passes=given(use_decentralized_pg=True, use_gloo_process_groups=False),
)

RULES = (
    GATHER,
    GATHER_WITH_STEP,
    REUSE_OR_STEP,
    INSTANCES_DIST,
    INSTANCES_DIVIDE,
    FP32_ACCUMULATION,
    BUCKETS,
    BUCKET_UNSET,
    BRIDGE_SYNC,
    PER_TOKEN,
    SHARP,
    NO_GLOO,
    DECENTRALIZED,
)
