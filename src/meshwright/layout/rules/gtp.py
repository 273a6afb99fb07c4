"""Rules of the weight-sharding axis (GTP) of mid-2026: weights spread over more ranks than TP."""

from __future__ import annotations

from meshwright.layout.rules.numbers import multiples_around
from meshwright.layout.rules.rule import ARGUMENTS, CORE, GROUPS, LM, Rule, given
from meshwright.layout.rules.view import View

SINCE = "2026-07-25"


def active(v: View) -> bool:
    """Whether weights are spread over more ranks than TP (or ETP) has."""
    return bool(v.gtp > 1 or v.egtp > 1)


def _fault(v: View) -> str:
    for shards, degree, name in (
        ("tensor_parallel_num_weight_shards", v.tp, "tp"),
        ("expert_tensor_parallel_num_weight_shards", v.etp, "etp"),
    ):
        count = v.get(shards)
        if count is not None and (count < degree or count % degree):
            near = " or ".join(map(str, multiples_around(degree, count)))
            return f"{shards} {count} is not a multiple of {name}={degree}; nearest: {near}"
    return ""


SHARDS = Rule(
    id="weight-shards-multiple-of-tp",
    aliases=("R010",),
    area="gtp",
    must="the number of weight shards is a multiple of TP (of ETP for experts)",
    why="Each TP slice of a weight is cut into the same whole number of shards.",
    severity="error",
    enforced_by=CORE,
    since=SINCE,
    source="megatron/core/model_parallel_config.py, resolve_tensor_parallel_weight_shards",
    holds=lambda v: not _fault(v),
    message=_fault,
    fix="use a multiple of the tensor parallel size",
    breaks=given(tp=4, tensor_parallel_num_weight_shards=6),
    passes=given(tp=4, tensor_parallel_num_weight_shards=8),
)

INSTANCES = Rule(
    id="gtp-one-optimizer-instance",
    aliases=("R011",),
    area="gtp",
    must="weight shards beyond TP are used with one distributed-optimizer instance",
    why="Both would divide the same data-parallel group.",
    severity="error",
    enforced_by=CORE,
    since=SINCE,
    source=GROUPS,
    applies=active,
    holds=lambda v: v["num_distributed_optimizer_instances"] == 1,
    message="weight shards x{gtp} with {num_distributed_optimizer_instances} distributed-optimizer instances",
    fix="use one instance, or as many weight shards as TP",
    breaks=given(tp=1, tensor_parallel_num_weight_shards=2, num_distributed_optimizer_instances=2),
    passes=given(tp=1, tensor_parallel_num_weight_shards=2, num_distributed_optimizer_instances=1),
)

CHECKPOINT = Rule(
    id="gtp-checkpoint",
    aliases=("R012",),
    area="gtp",
    must="weight shards beyond TP are saved as torch or torch_dist",
    why="Other formats do not know the extra axis.",
    severity="error",
    enforced_by=LM,
    since="2026-07-01",
    source=ARGUMENTS,
    applies=active,
    holds=lambda v: v["ckpt_format"] in ("torch", "torch_dist"),
    message="weight shards x{gtp} with the checkpoint format {ckpt_format}",
    fix="--ckpt-format torch_dist",
    breaks=given(tensor_parallel_num_weight_shards=2, ckpt_format="fsdp_dtensor"),
    passes=given(tensor_parallel_num_weight_shards=2, ckpt_format="torch_dist"),
)

AVERAGE = Rule(
    id="gtp-no-average-in-collective",
    aliases=("R013",),
    area="gtp",
    must="weight shards beyond TP are used without ddp_average_in_collective",
    why="Averages would need another scale for each buffer.",
    severity="error",
    enforced_by=LM,
    since="2026-07-01",
    source=ARGUMENTS,
    applies=active,
    holds=lambda v: not v.on("ddp_average_in_collective"),
    message="weight shards x{gtp} with ddp_average_in_collective",
    fix="drop --ddp-average-in-collective",
    breaks=given(tensor_parallel_num_weight_shards=2, ddp_average_in_collective=True),
    passes=given(tensor_parallel_num_weight_shards=2),
)

MXFP8 = Rule(
    id="gtp-mxfp8",
    aliases=("R014",),
    area="gtp",
    must="weight shards beyond TP with mxfp8 use fp8_param_gather and reuse the gradient buffer",
    why="The optimizer keeps the fp8 shard; there is no bf16 weight to quantize again.",
    severity="error",
    enforced_by=LM,
    since="2026-07-01",
    source=ARGUMENTS,
    applies=lambda v: active(v) and bool(v.get("fp8")) and v["fp8_recipe"] == "mxfp8",
    holds=lambda v: v.on("fp8_param") and v.on("reuse_grad_buf_for_mxfp8_param_ag"),
    message="weight shards x{gtp} with mxfp8 and without fp8_param_gather and its buffer reuse",
    fix="--fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag",
    breaks=given(tensor_parallel_num_weight_shards=2, fp8="e4m3", fp8_recipe="mxfp8"),
    passes=given(
        tensor_parallel_num_weight_shards=2,
        fp8="e4m3",
        fp8_recipe="mxfp8",
        fp8_param_gather=True,
        reuse_grad_buf_for_mxfp8_param_ag=True,
        use_distributed_optimizer=True,
    ),
)

FP4 = Rule(
    id="gtp-fp4",
    aliases=("R015",),
    area="gtp",
    must="weight shards beyond TP with fp4 use fp4_param_gather",
    why="Weights are gathered in the format they are used in.",
    severity="error",
    enforced_by=LM,
    since="2026-07-01",
    source=ARGUMENTS,
    applies=lambda v: active(v) and bool(v.get("fp4")),
    holds=lambda v: v.on("fp4_param"),
    message="weight shards x{gtp} with fp4 and without fp4_param_gather",
    fix="--fp4-param-gather",
    breaks=given(tensor_parallel_num_weight_shards=2, fp4="e2m1"),
    passes=given(tensor_parallel_num_weight_shards=2, fp4="e2m1", fp4_param_gather=True),
)

GRAPHS = Rule(
    id="gtp-graph-priority",
    aliases=("R016",),
    area="gtp",
    must="weight shards beyond TP with CUDA graphs on Blackwell set CUDA_GRAPHS_USE_NODE_PRIORITY=1",
    why="Otherwise a captured graph loses the stream priorities that hide the gathers.",
    severity="error",
    enforced_by=LM,
    since="2026-07-01",
    source=ARGUMENTS,
    applies=lambda v: active(v) and v["cuda_graph_impl"] != "none" and v.sm >= 10,
    holds=lambda v: v.variable("CUDA_GRAPHS_USE_NODE_PRIORITY") == "1",
    message="weight shards x{gtp} with CUDA graphs and CUDA_GRAPHS_USE_NODE_PRIORITY not 1",
    fix="export CUDA_GRAPHS_USE_NODE_PRIORITY=1",
    breaks=given(
        tensor_parallel_num_weight_shards=2,
        cuda_graph_impl="transformer_engine",
        compute_capability="10.0",
        CUDA_GRAPHS_USE_NODE_PRIORITY=None,
    ),
    passes=given(
        tensor_parallel_num_weight_shards=2,
        cuda_graph_impl="transformer_engine",
        compute_capability="10.0",
        CUDA_GRAPHS_USE_NODE_PRIORITY=1,
    ),
)

PRIORITY_STREAMS = Rule(
    id="gtp-priority-streams",
    aliases=("R017",),
    area="gtp",
    must="weight shards beyond TP on Blackwell list gtp_remat among the high-priority streams",
    why="Megatron-LM adds it.",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    since="2026-07-01",
    source=ARGUMENTS,
    applies=lambda v: active(v) and v.sm >= 10,
    holds=lambda v: "gtp_remat" in v.listed("high_priority_stream_groups"),
    message="gtp_remat is added to the high-priority streams",
    fix="nothing to do",
    breaks=given(tensor_parallel_num_weight_shards=2, compute_capability="10.0"),
    passes=given(
        tensor_parallel_num_weight_shards=2,
        compute_capability="10.0",
        high_priority_stream_groups=["gtp_remat"],
    ),
)

RULES = (SHARDS, INSTANCES, CHECKPOINT, AVERAGE, MXFP8, FP4, GRAPHS, PRIORITY_STREAMS)
