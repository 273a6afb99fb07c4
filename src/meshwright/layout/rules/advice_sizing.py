"""Advice on the degrees: which to raise first, and how far."""

from __future__ import annotations

from meshwright.layout.rules.advice_topology import GUIDE, STRATEGIES
from meshwright.layout.rules.environment import fsdp
from meshwright.layout.rules.numbers import divisors
from meshwright.layout.rules.packing import packed, tuned
from meshwright.layout.rules.pipeline import blocks, split_kind
from meshwright.layout.rules.rule import ADVICE, Rule, given
from meshwright.layout.rules.view import View

LEAST_WIDTH = 2048
"""Hidden size a TP rank should keep: below it the host launches kernels slower than they run."""

SP_WITH_TP = Rule(
    id="sp-with-tp",
    area="sizing",
    must="TP > 1 comes with sequence parallelism",
    why="It splits the activations of norms and dropout over TP at no cost in traffic. Dense models may "
    "run without.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: v.tp > 1 and not v.is_moe,
    holds=lambda v: v.on("sequence_parallel"),
    message="tp={tp} without sequence parallelism: recommended, not required, for a dense model",
    fix="--sequence-parallel",
    breaks=given(tp=2, sp=False, layers=32),
    passes=given(tp=2, sp=True, layers=32),
)

START_WITH_DP = Rule(
    id="distributed-optimizer-first",
    aliases=("R269",),
    area="sizing",
    must="data parallelism comes with the distributed optimizer, before TP and PP are raised",
    why="It divides the optimizer's state by DP for free; then TP, then PP with VPP.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.dp > 1 and not fsdp(v) and v["optimizer"] == "adam",
    holds=lambda v: v.on("use_distributed_optimizer"),
    message="dp={dp} without the distributed optimizer: every rank keeps the whole optimizer state of its "
    "part",
    fix="--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    breaks=given(world=8, use_distributed_optimizer=False),
    passes=given(world=8, use_distributed_optimizer=True),
)

WIDE_TP = Rule(
    id="tp-keeps-width",
    aliases=("R270",),
    area="sizing",
    must="TP leaves each rank a hidden size of about 2,048 or more",
    why="Narrow products are bound by the host: Llama3-70B runs better on TP4 with PP than on TP8; where the "
    "sequence is longer than the hidden size, TP2 with CP2 may beat TP4.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.tp >= 4 and not v.is_moe and v.get("hidden_size") is not None,
    holds=lambda v: v["hidden_size"] / v.tp >= LEAST_WIDTH,
    message=lambda v: (
        f"tp={v.tp} leaves {v['hidden_size'] // v.tp} of {v['hidden_size']} hidden a rank: host-bound"
    ),
    fix=lambda v: f"try tp={max(v.tp // 2, 1)} with pp {v.pp * 2} or cp {v.cp * 2}",
    breaks=given(hidden=8192, heads=64, layers=80, tp=8, sp=True),
    passes=given(hidden=8192, heads=64, layers=80, tp=4, pp=4, sp=True),
)

MOE_TP = Rule(
    id="moe-small-tp",
    aliases=("R271",),
    area="sizing",
    must="a mixture of experts keeps TP small and divides its experts by EP (near the number of experts), "
    "PP 8-16",
    why="The dense part is small; EP divides what is large.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: v.is_moe,
    holds=lambda v: v.tp < 8,
    message="tp={tp} for a mixture of {num_moe_experts} experts",
    fix="use tp 1 or 2 and more ep",
    breaks=given(experts=256, tp=8, ep=8, sp=True),
    passes=given(experts=256, tp=2, ep=64, sp=True),
)

ETP_ONE = Rule(
    id="prefer-ep-over-etp",
    area="sizing",
    must="experts are divided by EP before they are cut by ETP",
    why="Whole experts make larger matrix products. Both are legal in Megatron.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: v.is_moe and v.gave("expert_tensor_parallel_size"),
    holds=lambda v: v.etp == 1 or v.experts % (v.ep * v.etp) != 0,
    message=lambda v: (
        f"ep={v.ep} with etp={v.etp} is legal in Megatron but slow; prefer EP{v.ep * v.etp} ETP1"
    ),
    fix=lambda v: f"--expert-model-parallel-size {v.ep * v.etp} --expert-tensor-parallel-size 1",
    breaks=given(world=8, tp=8, ep=1, etp=8, experts=8, sp=True),
    passes=given(world=8, tp=8, ep=8, etp=1, experts=8, sp=True),
)


def dense_cp(v: View) -> int:
    """Context parallel size of the guide's table: none to 8K, 2 to 32K, 4 beyond, 8 from 128K."""
    length = int(v["seq_length"])
    if length < 8 * 1024:
        return 1
    if length < 32 * 1024:
        return 2
    return 4 if length < 128 * 1024 else 8


LONG_DENSE = Rule(
    id="cp-for-long-sequences",
    aliases=("R274",),
    area="cp",
    must="long sequences use CP: 2 from 8K, 4 from 32K, 8 at 128K (2-8K are a matter for SP)",
    why="Activations grow with the sequence; CP divides them and the attention.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=STRATEGIES,
    applies=lambda v: not v.is_moe and v["seq_length"] >= 32 * 1024,
    holds=lambda v: v.cp * 2 >= dense_cp(v) if v["seq_length"] < 128 * 1024 else v.cp * 2 > dense_cp(v) // 2,
    message=lambda v: f"cp={v.cp} for sequences of {v['seq_length']}; the guide's table says {dense_cp(v)}",
    fix=lambda v: f"try cp={dense_cp(v)}, with a2a+p2p where it leaves the NVLink domain",
    breaks=given(seq=131072, cp=2, layers=32),
    passes=given(seq=131072, cp=8, layers=32),
)


def moe_cp(v: View) -> int:
    """About S/4096, as a power of two."""
    return 1 << max(round(int(v["seq_length"]) / 4096).bit_length() - 1, 0)


LONG_MOE = Rule(
    id="moe-cp-for-long-sequences",
    aliases=("R275",),
    area="cp",
    must="a mixture of experts with long sequences uses CP of about S/4096",
    why="Tokens of a rank set the size of the experts' exchange buffers.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: MoE long context",
    applies=lambda v: v.is_moe and v["seq_length"] >= 32 * 1024,
    holds=lambda v: v.cp * 4 >= moe_cp(v) if v["seq_length"] < 128 * 1024 else v.cp * 4 > moe_cp(v),
    message=lambda v: (
        f"cp={v.cp} for MoE sequences of {v['seq_length']}; about S/4096 = {moe_cp(v)} is usual"
    ),
    fix=lambda v: f"try cp={moe_cp(v)}",
    breaks=given(seq=131072, cp=4, experts=64),
    passes=given(seq=131072, cp=32, experts=64),
)

CP_SHORT = Rule(
    id="cp-only-for-long-sequences",
    aliases=("R276",),
    area="cp",
    must="CP is used where the sequence is longer than the hidden size",
    why="Below that, keys and values on the wire cost more than the attention they divide. (Optimizer "
    "state is "
    "sharded over DP*CP in any case.)",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: v.cp > 1 and v.get("hidden_size") is not None,
    holds=lambda v: v["seq_length"] > v["hidden_size"],
    message="cp={cp} with sequences of {seq_length}, no longer than the hidden size {hidden_size}",
    fix="use dp instead of cp",
    breaks=given(seq=2048, cp=2, hidden=8192),
    passes=given(seq=32768, cp=2, hidden=8192),
)


def bubble(v: View) -> float:
    """Idle share of the schedule, (PP-1)/(M*VPP): what interleaving divides."""
    return float((v.pp - 1) / max(v.num_microbatches * v.vpp, 1))


def chunk_sizes(v: View) -> tuple[int, ...]:
    """VPP above 1 that divide the layers of a stage."""
    return tuple(size for size in divisors(blocks(v) // int(v.pp)) if size > 1)


VPP = Rule(
    id="vpp-cuts-bubble",
    aliases=("R278",),
    area="pp",
    must="PP with few micro-batches uses VPP",
    why="The bubble (PP-1)/M is divided by VPP; with many micro-batches a small VPP is enough. Count "
    "embedding and "
    "loss as layers where the vocabulary is large.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: (
        v.pp > 2
        and v.gave("global_batch_size")
        and split_kind(v) == "even"
        and blocks(v) % v.pp == 0
        and v.num_microbatches >= v.pp
        and bool(chunk_sizes(v))
    ),
    holds=lambda v: v.vpp > 1 or bubble(v) <= 0.1,
    message=lambda v: (
        f"pp={v.pp} with {v.num_microbatches} micro-batches idles {bubble(v):.0%} beside its work (the "
        f"bubble), and "
        "VPP is 1"
    ),
    fix=lambda v: f"use VPP {' or '.join(map(str, chunk_sizes(v)[:3]))}",
    breaks=given(world=32, layers=32, tp=1, pp=8, gbs=64, mbs=1),
    passes=given(world=32, layers=32, tp=1, pp=8, vpp=2, gbs=64, mbs=1),
)

VPP_MEMORY = Rule(
    id="vpp-is-not-for-memory",
    aliases=("R279",),
    area="pp",
    must="VPP is raised for speed, not for memory",
    why="More chunks keep more micro-batches in flight on the first stage: VP5 to VP10 took 58.8 to 60.2 GB.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: memory tuning",
    applies=lambda v: v.get("memory_ratio") is not None and v["memory_ratio"] > 1,
    holds=lambda v: v.vpp == 1,
    message="vpp={vpp} in a layout that does not fit: fewer chunks keep fewer activations in flight",
    fix="lower VPP, or use recompute",
    breaks=given(layers=32, pp=4, vpp=4, memory_ratio=1.1),
    passes=given(layers=32, pp=4, vpp=4, memory_ratio=0.8),
)

FSDP = Rule(
    id="fsdp-for-small-models",
    aliases=("R295",),
    area="fsdp",
    must="small models with long sequences are sharded by FSDP rather than by TP",
    why="Gathers of small weights hide behind long sequences, and TP's narrow products are host-bound.",
    severity="advice",
    searched=True,
    enforced_by=ADVICE,
    effect="advises",
    source=GUIDE,
    applies=lambda v: (
        not v.is_moe
        and v.pp == 1
        and v.tp > 1
        and v.get("hidden_size") is not None
        and v["hidden_size"] <= 4096
        and v["seq_length"] >= 4 * v["hidden_size"]
    ),
    holds=fsdp,
    message="tp={tp} for a hidden size of {hidden_size} and sequences of {seq_length}: FSDP may be faster",
    fix="--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params with tp 1",
    breaks=given(world=8, hidden=4096, heads=32, layers=32, seq=32768, tp=4, sp=True),
    passes=given(
        world=8,
        hidden=4096,
        heads=32,
        layers=32,
        seq=32768,
        tp=4,
        sp=True,
        use_megatron_fsdp=True,
        ckpt_format="fsdp_dtensor",
    ),
)

PACKED_BATCH = Rule(
    id="packed-batch-covers-dp",
    aliases=("R296",),
    area="packing",
    must="packed fine-tuning has a global batch of at least DP that DP divides",
    why="A pack is one sample; with fewer packs than ranks use longer packs, at the same tokens a step.",
    severity="advice",
    enforced_by=ADVICE,
    effect="advises",
    source="Megatron Bridge skill: sequence packing",
    applies=lambda v: tuned(v) and packed(v),
    holds=lambda v: v.gbs % v.dp == 0 and v.gbs >= v.dp,
    message="{gbs} packs for dp={dp} ranks",
    fix="use fewer ranks, a larger batch, or shorter packs",
    breaks=given(task="sft", packed_sequence_size=8192, mbs=1, world=16, gbs=8),
    passes=given(task="sft", packed_sequence_size=8192, mbs=1, world=8, gbs=8),
)

RULES = (
    SP_WITH_TP,
    START_WITH_DP,
    WIDE_TP,
    MOE_TP,
    ETP_ONE,
    LONG_DENSE,
    LONG_MOE,
    CP_SHORT,
    VPP,
    VPP_MEMORY,
    FSDP,
    PACKED_BATCH,
)
