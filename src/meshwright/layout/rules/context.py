"""Rules of context parallelism beyond the sequence length: communication types, hybrids, attention kinds."""

from __future__ import annotations

import math

from meshwright.layout.rules.rule import (
    ARGUMENTS,
    BRIDGE,
    BRIDGE_CONFIG,
    CONFIG,
    CORE,
    CORE_LM_BRIDGE,
    GROUPS,
    LM,
    LM_BRIDGE,
    Rule,
    given,
)
from meshwright.layout.rules.view import View


def comm_types(v: View) -> tuple[str, ...]:
    """The communication types in use, one for all layers or one each."""
    return v.listed("cp_comm_type") or ("p2p",)


def _listed(v: View) -> bool:
    """Whether each layer names its own type; Megatron-LM takes a list of one for all layers."""
    kinds = v.get("cp_comm_type")
    alone = v.framework == "megatron-lm" and isinstance(kinds, (list, tuple)) and len(kinds) == 1
    return isinstance(kinds, (list, tuple)) and not alone


def _sizes(v: View) -> tuple[int, ...]:
    return tuple(int(size) for size in v.listed("hierarchical_context_parallel_sizes"))


HIERARCHY = Rule(
    id="hierarchical-cp-product",
    aliases=("R053",),
    area="cp",
    must="the product of the hierarchical context parallel sizes is CP",
    why="The levels divide the CP group.",
    severity="error",
    enforced_by=CORE_LM_BRIDGE,
    source=f"{GROUPS}; {ARGUMENTS}",
    applies=lambda v: bool(_sizes(v)),
    holds=lambda v: math.prod(_sizes(v)) == v.cp,
    message=lambda v: (
        f"hierarchical sizes {list(_sizes(v))} multiply to {math.prod(_sizes(v))}, and cp is {v.cp}"
    ),
    fix=lambda v: f"use sizes whose product is {v.cp}",
    breaks=given(cp=4, seq=8192, hierarchical_context_parallel_sizes=[2, 4]),
    passes=given(cp=4, seq=8192, hierarchical_context_parallel_sizes=[2, 2]),
)

HIERARCHY_NEEDED = Rule(
    id="a2a-p2p-needs-hierarchy",
    aliases=("R054", "R055"),
    area="cp",
    must="cp_comm_type a2a+p2p comes with hierarchical_context_parallel_sizes",
    why="The sizes say which ranks exchange heads and which pass keys around. Older stacks silently "
    "dropped the "
    "CP communication.",
    severity="error",
    enforced_by=LM_BRIDGE,
    since="2024-11-15",
    source=f"{ARGUMENTS}; Megatron Bridge training/config.py, _validate_cp_comm_type",
    applies=lambda v: "a2a+p2p" in comm_types(v),
    holds=lambda v: bool(_sizes(v)),
    message="cp_comm_type a2a+p2p (cp {cp}) without hierarchical_context_parallel_sizes",
    fix=lambda v: (
        f"--hierarchical-context-parallel-sizes with product {v.cp}, the a2a level first, inside NVLink"
    ),
    breaks=given(cp=16, seq=32768, cp_comm_type="a2a+p2p"),
    passes=given(cp=16, seq=32768, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=[8, 2]),
)

HIERARCHY_DECENTRALIZED = Rule(
    id="hierarchy-not-decentralized",
    aliases=("R056",),
    area="cp",
    must="hierarchical CP is not used with decentralized process groups",
    why="Bridge does not build the sub-groups there.",
    severity="error",
    enforced_by=BRIDGE,
    since="2026-04-02",
    source="Megatron Bridge training/initialize.py, _create_pg_collection",
    applies=lambda v: v.on("use_decentralized_pg"),
    holds=lambda v: not _sizes(v),
    message="hierarchical sizes {hierarchical_context_parallel_sizes} with use_decentralized_pg",
    fix="drop one of the two",
    breaks=given(cp=4, seq=8192, use_decentralized_pg=True, hierarchical_context_parallel_sizes=[2, 2]),
    passes=given(cp=4, seq=8192, use_decentralized_pg=True),
)

HIERARCHY_TE = Rule(
    id="a2a-p2p-needs-te",
    aliases=("R057",),
    area="cp",
    must="cp_comm_type a2a+p2p needs Transformer Engine 1.12 or newer",
    why="Older attention does not know it.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/extensions/transformer_engine.py, TEDotProductAttention",
    applies=lambda v: "a2a+p2p" in comm_types(v),
    holds=lambda v: v.release("te_version") >= (1, 12),
    message="cp_comm_type a2a+p2p with Transformer Engine {te_version}; it needs 1.12",
    fix="update Transformer Engine, or use cp_comm_type p2p",
    breaks=given(
        cp=16, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=[8, 2], te_version="1.11"
    ),
    passes=given(
        cp=16, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=[8, 2], te_version="1.12"
    ),
)

CP_NEEDS_TE = Rule(
    id="cp-needs-te",
    aliases=("R058",),
    area="cp",
    must="CP > 1 uses Transformer Engine's attention",
    why="The local attention works on whole sequences.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/dot_product_attention.py",
    applies=lambda v: v.cp > 1,
    holds=lambda v: v["transformer_impl"] != "local",
    message="cp={cp} with the local transformer implementation",
    fix="--transformer-impl transformer_engine, or cp 1",
    breaks=given(cp=2, seq=8192, transformer_impl="local"),
    passes=given(cp=2, seq=8192, transformer_impl="transformer_engine"),
)

TYPE_PER_LAYER = Rule(
    id="cp-comm-type-per-layer",
    aliases=("R059",),
    area="cp",
    must="a list of CP communication types has one entry a layer",
    why="Each layer takes its own.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.cp > 1 and _listed(v),
    holds=lambda v: len(v["cp_comm_type"]) == v.layers,
    message=lambda v: f"{len(v['cp_comm_type'])} CP communication types for {v.layers} layers",
    fix="give one type, or one for each layer",
    breaks=given(cp=2, seq=8192, layers=4, cp_comm_type=["p2p", "p2p", "p2p"]),
    passes=given(cp=2, seq=8192, layers=4, cp_comm_type=["p2p", "p2p", "p2p", "p2p"]),
)

LIST_INDEX = Rule(
    id="cp-comm-type-list-index",
    area="cp",
    must="in Megatron Core 0.16 with CP > 1, one CP communication type is given for all layers",
    why="Its list is read one place too far: the last layer finds no entry (IndexError). 0.17 counts right.",
    severity="error",
    enforced_by=CORE,
    until="2026-02-15",
    source="megatron/core/transformer/transformer_layer.py (0.16.1), TransformerLayer.__init__",
    applies=lambda v: v.cp > 1,
    holds=lambda v: not _listed(v),
    message="a list of CP communication types with cp={cp}: this version reads past its end at the last "
    "layer",
    fix="give one type for all layers, or update to Megatron Core 0.17",
    breaks=given(cp=2, seq=8192, layers=2, cp_comm_type=["p2p", "p2p"]),
    passes=given(cp=2, seq=8192, layers=2, cp_comm_type="p2p"),
)

DSA = Rule(
    id="dsa-cp-all-gather",
    aliases=("R061",),
    area="cp",
    must="sparse attention (DSA) with CP > 1 uses cp_comm_type all_gather",
    why="The indexer ranks keys of the whole sequence.",
    severity="error",
    enforced_by=CORE,
    since="2026-06-25",
    source=CONFIG,
    applies=lambda v: v.cp > 1 and v.get("experimental_attention_variant") == "dsa",
    holds=lambda v: all(kind in ("all_gather", "allgather") for kind in comm_types(v)),
    message="DSA with cp={cp} and cp_comm_type {cp_comm_type}",
    fix="--cp-comm-type all_gather",
    breaks=given(cp=2, seq=8192, experimental_attention_variant="dsa", cp_comm_type="p2p"),
    passes=given(cp=2, seq=8192, experimental_attention_variant="dsa", cp_comm_type="allgather"),
)


def _mamba_width(v: View) -> int:
    inner = v["mamba_num_heads"] * v["mamba_head_dim"]
    return int(2 * inner + 2 * v["mamba_num_groups"] * v["mamba_state_dim"] + v["mamba_num_heads"])


MAMBA_FP8 = Rule(
    id="mamba-fp8-width",
    aliases=("R067",),
    area="cp",
    must="with fp8, the input projection of a Mamba layer is a multiple of 16 wide",
    why="fp8 matrix products need multiples of 16.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_mixer.py",
    applies=lambda v: v.get("mamba_num_heads") is not None and bool(v.get("fp8")),
    holds=lambda v: _mamba_width(v) % 16 == 0,
    message=lambda v: (
        f"the Mamba input projection is {_mamba_width(v)} wide, no multiple of 16, which fp8 needs"
    ),
    fix="change the Mamba heads or the state, or train without fp8",
    breaks=given(
        mamba_num_heads=127, mamba_num_groups=1, mamba_head_dim=64, mamba_state_dim=128, fp8="hybrid"
    ),
    passes=given(
        mamba_num_heads=128, mamba_num_groups=8, mamba_head_dim=64, mamba_state_dim=128, fp8="hybrid"
    ),
)

SFT_LOSS = Rule(
    id="sft-cp-per-token-loss",
    aliases=("R068",),
    area="cp",
    must="fine-tuning with CP > 1 uses calculate_per_token_loss",
    why="CP ranks hold different numbers of answer tokens; averaging their means would weigh them wrongly.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v["task"] in ("sft", "lora") and v.cp > 1 and "calculate_per_token_loss" in v.said,
    holds=lambda v: v.on("calculate_per_token_loss"),
    message="fine-tuning with cp={cp} and calculate_per_token_loss off",
    fix="model.calculate_per_token_loss=true",
    breaks=given(task="sft", cp=2, seq=8192, calculate_per_token_loss=False),
    passes=given(task="sft", cp=2, seq=8192, calculate_per_token_loss=True),
)

SFT_AVERAGE = Rule(
    id="sft-cp-no-average-in-collective",
    aliases=("R069",),
    area="cp",
    must="fine-tuning with CP > 1 does not average in the collective",
    why="Per-token loss sums first and divides by all tokens.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v["task"] in ("sft", "lora") and v.cp > 1,
    holds=lambda v: not v.on("average_in_collective"),
    message="fine-tuning with cp={cp} and ddp.average_in_collective on",
    fix="ddp.average_in_collective=false",
    breaks=given(task="sft", cp=2, seq=8192, average_in_collective=True),
    passes=given(task="sft", cp=2, seq=8192, average_in_collective=False),
)


def _hybrid_fault(v: View) -> str:
    faults = {
        f"pp={v.pp}": v.pp > 1,
        "CUDA graphs": v["cuda_graph_impl"] != "none",
        "Megatron FSDP": v.on("use_megatron_fsdp"),
        f"dataloader {v.get('dataloader_type')}": v.get("dataloader_type", "single") != "single",
        "no per-token loss": not v.on("calculate_per_token_loss"),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


HYBRID = Rule(
    id="hybrid-cp-conditions",
    aliases=("R070",),
    area="cp",
    must="hybrid context parallelism has PP 1, no CUDA graphs, no Megatron FSDP, the single dataloader and "
    "per-token loss",
    why="Each sample gets its own CP size inside one data-parallel step.",
    severity="error",
    enforced_by=LM,
    since="2026-01-17",
    source=ARGUMENTS,
    applies=lambda v: v.on("hybrid_context_parallel"),
    holds=lambda v: not _hybrid_fault(v),
    message=lambda v: f"hybrid context parallelism does not work with {_hybrid_fault(v)}",
    fix="drop hybrid context parallelism, or what it does not work with",
    breaks=given(hybrid_context_parallel=True, pp=2, layers=32, calculate_per_token_loss=True),
    passes=given(hybrid_context_parallel=True, pp=1, layers=32, calculate_per_token_loss=True),
)

HYBRID_EVEN = Rule(
    id="hybrid-cp-even",
    aliases=("R071",),
    area="cp",
    must="hybrid context parallelism needs an even DP*CP",
    why="Its sub-groups have 2, 4, ... ranks.",
    severity="error",
    enforced_by=CORE,
    source=GROUPS,
    applies=lambda v: v.on("hybrid_context_parallel"),
    holds=lambda v: (v.dp * v.cp) % 2 == 0,
    message="hybrid context parallelism over dp*cp = {dp}*{cp}, which is odd",
    fix="use an even number of data-parallel times CP ranks",
    breaks=given(world=3, hybrid_context_parallel=True, calculate_per_token_loss=True),
    passes=given(world=4, hybrid_context_parallel=True, calculate_per_token_loss=True),
)

INVARIANT = Rule(
    id="batch-invariant-cp1",
    aliases=("R072",),
    area="cp",
    must="batch_invariant_mode is used with CP 1",
    why="Ring attention sums in an order that depends on the split.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("batch_invariant_mode"),
    holds=lambda v: v.cp == 1,
    message="batch_invariant_mode with cp={cp}",
    fix="use cp 1",
    breaks=given(batch_invariant_mode=True, cp=2, seq=8192),
    passes=given(batch_invariant_mode=True, cp=1, seq=8192),
)

RULES = (
    HIERARCHY,
    HIERARCHY_NEEDED,
    HIERARCHY_DECENTRALIZED,
    HIERARCHY_TE,
    CP_NEEDS_TE,
    TYPE_PER_LAYER,
    LIST_INDEX,
    DSA,
    MAMBA_FP8,
    SFT_LOSS,
    SFT_AVERAGE,
    HYBRID,
    HYBRID_EVEN,
    INVARIANT,
)
