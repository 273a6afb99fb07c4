"""Advice on memory and speed: what to try, in which order, and what it costs."""

from __future__ import annotations

from meshwright.layout.rules.advice_topology import GUIDE
from meshwright.layout.rules.graphs import impl
from meshwright.layout.rules.packing import packed
from meshwright.layout.rules.rule import ADVICE, Rule, given
from meshwright.layout.rules.view import View

TUNING = "Megatron Bridge skill: memory tuning"
RECOMPUTE = "Megatron Bridge skill: activation recompute"


def short(v: View, share: float = 1.0) -> bool:
    """Whether the estimated peak is above a share of what the GPU has; False where nobody estimated it."""
    ratio = v.get("memory_ratio")
    return ratio is not None and ratio > share


def narrow_modules(v: View) -> str:
    """The narrowest recompute that is worth it for this model."""
    if v.on("multi_latent_attention"):
        return "mla_up_proj" + (" moe_act layernorm" if v.is_moe else "")
    return "moe_act layernorm" if v.is_moe else "mlp"


FIRST = Rule(
    id="memory-first-steps",
    aliases=("R280",),
    area="memory",
    must="a layout that does not fit is helped in this order: expandable segments, selective recompute; TP "
    "and PP last",
    why="Raising TP cost 28 % on a 70B model; PP that halves DP cost 6 %.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=TUNING,
    applies=short,
    holds=lambda v: v.get("recompute_granularity") is not None,
    message=lambda v: f"the peak is {v['memory_ratio']:.0%} of the memory, and nothing is recomputed",
    fix=lambda v: (
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, then --recompute-granularity selective "
        f"--recompute-modules {narrow_modules(v)}"
    ),
    breaks=given(layers=32, memory_ratio=1.2),
    passes=given(layers=32, memory_ratio=0.8),
)

STREAMS = Rule(
    id="memory-nccl-variables",
    aliases=("R282",),
    area="memory",
    must="where memory is short, TORCH_NCCL_AVOID_RECORD_STREAMS=1 and NCCL_NVLS_ENABLE=0 are set",
    why="The first lets buffers be used again sooner, the second saves what NVLink SHARP reserves.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: short(v, 0.9),
    holds=lambda v: (
        v.variable("TORCH_NCCL_AVOID_RECORD_STREAMS") == "1" and v.variable("NCCL_NVLS_ENABLE") == "0"
    ),
    message=lambda v: (
        f"the peak is {v['memory_ratio']:.0%} of the memory: two NCCL variables would save some"
    ),
    fix="export TORCH_NCCL_AVOID_RECORD_STREAMS=1 NCCL_NVLS_ENABLE=0",
    breaks=given(memory_ratio=0.95, NCCL_NVLS_ENABLE=None),
    passes=given(memory_ratio=0.95, NCCL_NVLS_ENABLE=0, TORCH_NCCL_AVOID_RECORD_STREAMS=1),
)

GRAPHS_MEMORY = Rule(
    id="graphs-take-memory",
    aliases=("R283",),
    area="memory",
    must="CUDA graphs are used where some GB are free, with PP > 1 more than 10",
    why="Every captured micro-batch keeps its own buffers.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: impl(v) != "none",
    holds=lambda v: not short(v, 0.85),
    message="CUDA graphs (pp {pp}) where the peak is near the memory: they take a few GB, with PP more "
    "than 10",
    fix="capture less (attn only), or drop the graphs",
    breaks=given(
        cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"], layers=32, pp=4, memory_ratio=0.95
    ),
    passes=given(
        cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"], layers=32, pp=4, memory_ratio=0.6
    ),
)

PRECISE = Rule(
    id="precision-aware-saves",
    aliases=("R284",),
    area="memory",
    must="where memory is short, the precision-aware optimizer is used",
    why="It keeps only the part of the master weights that bf16 lacks, and smaller moments where asked.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: short(v) and v["optimizer"] == "adam" and v.on("use_distributed_optimizer"),
    holds=lambda v: v.on("use_precision_aware_optimizer"),
    message=lambda v: f"the peak is {v['memory_ratio']:.0%} of the memory with the plain optimizer",
    fix="--use-precision-aware-optimizer",
    breaks=given(memory_ratio=1.2, use_distributed_optimizer=True),
    passes=given(memory_ratio=1.2, use_distributed_optimizer=True, use_precision_aware_optimizer=True),
)

NARROW = Rule(
    id="recompute-narrow-first",
    aliases=("R285", "R286"),
    area="recompute",
    must="recompute starts narrow: MLA mla_up_proj, experts moe_act (layernorm), dense mlp; moe and full "
    "last",
    why="Full recompute costs about 30 % more compute; the narrow ones give most of the memory for a few "
    "percent.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=f"{RECOMPUTE}; {GUIDE}",
    holds=lambda v: v.get("recompute_granularity") != "full" or v.get("recompute_method") == "block",
    message="full recompute costs about 30 % of the speed",
    fix=lambda v: f"try --recompute-granularity selective --recompute-modules {narrow_modules(v)} first",
    breaks=given(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1),
    passes=given(
        experts=64, recompute_granularity="selective", recompute_modules=["moe_act"], moe_grouped_gemm=True
    ),
)

OFFLOAD = Rule(
    id="optimizer-offload-cost",
    aliases=("R287",),
    area="offload",
    must="optimizer offload is a last resort",
    why="It ran 1.9 (a quarter offloaded) to 4.2 times (all) slower for 8 to 32 % of the memory; "
    "cpu_offloading of "
    "activations works with PP 1 only.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: CPU offloading",
    holds=lambda v: not v.on("optimizer_cpu_offload"),
    message="optimizer_cpu_offload makes a step 1.9 to 4.2 times slower",
    fix="try recompute, the precision-aware optimizer or more GPUs first",
    breaks=given(
        optimizer_cpu_offload=True, use_precision_aware_optimizer=True, use_distributed_optimizer=True
    ),
    passes=given(optimizer_cpu_offload=False),
)

MARGIN = Rule(
    id="layernorm-sm-margin",
    aliases=("R292",),
    area="overlap",
    must="with overlap of data-parallel traffic, LayerNorm kernels leave 16 SMs free",
    why="They would hold every SM, and the collective could not start. Recipes use 20.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.framework == "megatron-bridge" and v.on("overlap_grad_reduce"),
    holds=lambda v: v.variable("NVTE_FWD_LAYERNORM_SM_MARGIN") is not None,
    message="overlap of gradients without NVTE_FWD_LAYERNORM_SM_MARGIN",
    fix="export NVTE_FWD_LAYERNORM_SM_MARGIN=16 NVTE_BWD_LAYERNORM_SM_MARGIN=16",
    breaks=given(overlap_grad_reduce=True, NVTE_FWD_LAYERNORM_SM_MARGIN=None),
    passes=given(overlap_grad_reduce=True, NVTE_FWD_LAYERNORM_SM_MARGIN=16),
    example_framework="megatron-bridge",
)

BF16_REDUCE = Rule(
    id="bf16-reduce-large-dp",
    aliases=("R294",),
    area="dp",
    must="gradients are reduced in bf16 only over fewer than 128 data-parallel ranks",
    why="A ring adds one rank after another and loses small terms.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.on("grad_reduce_in_bf16"),
    holds=lambda v: v.dp * v.cp < 128,
    message="gradients are reduced in bf16 over dp*cp = {dp}*{cp} ranks",
    fix="drop --grad-reduce-in-bf16, or use several optimizer instances",
    breaks=given(world=128, grad_reduce_in_bf16=True),
    passes=given(world=64, grad_reduce_in_bf16=True),
)

GRAPH_SCOPES = Rule(
    id="graph-scopes",
    aliases=("R297",),
    area="graph",
    must="TE graphs capture attn (and mlp) of dense models, moe_router and moe_preprocess (and attn) of "
    "dropless "
    "experts, and nothing of packed sequences",
    why="Those parts have fixed shapes; packs do not.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: CUDA graphs",
    applies=lambda v: impl(v) == "transformer_engine",
    holds=lambda v: not packed(v),
    message="TE CUDA graphs of {cuda_graph_modules} on packed sequences",
    fix="drop the graphs, or pad every pack to one length",
    breaks=given(cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"], packed_sequence=True),
    passes=given(cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"]),
)

FP8_WEIGHTS = Rule(
    id="fp8-keeps-bf16-weights",
    area="memory",
    must="fp8 training that should save memory keeps its parameters in fp8",
    why="Without fp8_param the bf16 weights stay, with fp8 copies beside them: fp8 is not smaller than bf16.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Transformer Engine: quantized weights are cached beside high-precision ones",
    applies=lambda v: bool(v.get("fp8")) and not v.on("planned"),
    holds=lambda v: v.on("fp8_param"),
    message="fp8 without fp8_param_gather: fp8 not smaller, the bf16 weights and 1-2 bytes a weight of "
    "copies stay",
    fix="--fp8-param-gather with the distributed optimizer",
    breaks=given(fp8="hybrid"),
    passes=given(fp8="hybrid", fp8_param=True, use_distributed_optimizer=True),
)

RULES = (
    FIRST,
    STREAMS,
    GRAPHS_MEMORY,
    PRECISE,
    NARROW,
    OFFLOAD,
    MARGIN,
    BF16_REDUCE,
    GRAPH_SCOPES,
    FP8_WEIGHTS,
)
