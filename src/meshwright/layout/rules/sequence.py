"""Rules of sequence and context parallelism: what the sequence length must be a multiple of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshwright.layout.rules.numbers import multiples_around
from meshwright.layout.rules.rule import BRIDGE, CORE, CORE_LM_BRIDGE, LM, LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View


def sequence_step(cp: int, tp: int, sp: bool) -> int:
    """What a sequence length must be a multiple of: cp*lcm(2, tp) with SP, 2*cp with CP alone.

    CP cuts the sequence into 2*cp pieces (each rank takes one from either end, so that the causal mask
    costs all the same); SP then cuts a rank's part by tp.

    >>> sequence_step(4, 8, True), sequence_step(4, 3, True), sequence_step(4, 1, False)
    (32, 24, 8)
    """
    if not sp:
        return 2 * cp if cp > 1 else 1
    return cp * math.lcm(2, tp) if cp > 1 else tp


SP_NEEDS_TP = Rule(
    id="sp-needs-tp",
    aliases=("R041",),
    area="sp",
    must="sequence parallelism is used with TP > 1",
    why="SP splits the activations over the TP group; a group of one has nothing to split.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/model_parallel_config.py, __post_init__",
    holds=lambda v: np.logical_not(v.sp) | (v.tp > 1),
    message="sequence parallelism is on with tp={tp}; Megatron Core raises (Megatron-LM and Bridge switch "
    "it off)",
    fix="switch sequence_parallel off, or use tp of at least 2",
    mask=True,
    breaks=given(sp=True, tp=1),
    passes=given(sp=True, tp=2),
)

SP_OFF = Rule(
    id="sp-off-at-tp1",
    aliases=("R042", "R043"),
    area="sp",
    must="sequence parallelism is asked for only with TP > 1",
    why="With one TP rank it does nothing.",
    severity="warn",
    enforced_by=LM_BRIDGE,
    effect="changes",
    source="megatron/training/arguments.py, validate_args; Megatron Bridge transformer_config.py, finalize",
    applies=lambda v: v.said.get("sequence_parallel") is True,
    holds=lambda v: v.tp > 1,
    message="SP ignored at TP1: sequence parallelism is switched off because tp is 1",
    fix="drop --sequence-parallel, or use tp of at least 2",
    breaks=given(sp=True, tp=1),
    passes=given(sp=True, tp=2),
)

MOE_NEEDS_SP = Rule(
    id="moe-tp-needs-sp",
    aliases=("R044", "R045"),
    area="sp",
    must="a mixture of experts trained with TP > 1 uses sequence parallelism",
    why="Without it every TP rank holds the same tokens and would send each of them to the experts TP times.",
    severity="error",
    enforced_by=CORE,
    since="2024-05-30",
    source="megatron/core/transformer/moe/moe_layer.py, MoELayer.forward; a warning already in "
    "model_parallel_config.py, __post_init__",
    applies=lambda v: v.is_moe,
    holds=lambda v: np.logical_not(v.tp > 1) | v.sp,
    message="{num_moe_experts} experts with tp={tp} and no sequence parallelism: training stops at the "
    "first forward",
    fix="add --sequence-parallel (sequence_parallel=True), or use tp 1",
    mask=True,
    breaks=given(experts=8, tp=2, sp=False),
    passes=given(experts=8, tp=2, sp=True),
)

TP_OVERLAP_NEEDS_SP = Rule(
    id="tp-overlap-needs-sp",
    aliases=("R046",),
    area="sp",
    must="overlap of TP communication is used with sequence parallelism",
    why="It overlaps the gathers and scatters that SP makes.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    mask=True,
    per_execution=True,
    applies=lambda v: v.on("tp_comm_overlap"),
    holds=lambda v: v.get("sequence_parallel", False),
    message="tp_comm_overlap is on without sequence parallelism (tp {tp})",
    fix="add --sequence-parallel, or drop --tp-comm-overlap",
    breaks=given(tp=4, tp_comm_overlap=True, sp=False),
    passes=given(tp=4, tp_comm_overlap=True, sp=True),
)

TP_OVERLAP_OFF = Rule(
    id="tp-overlap-off",
    aliases=("R047",),
    area="sp",
    must="overlap of TP communication is asked for with TP > 1, SP and Transformer Engine",
    why="Bridge switches it off otherwise.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge comm_overlap.py, _get_model_comm_overlap_cfgs",
    applies=lambda v: v.on("tp_comm_overlap"),
    holds=lambda v: v.tp > 1 and v.on("sequence_parallel") and v["transformer_impl"] == "transformer_engine",
    message="tp_comm_overlap is switched off: tp {tp}, sequence parallelism {sequence_parallel}, "
    "{transformer_impl}",
    fix="use tp of at least 2 with sequence parallelism, or drop the overlap",
    breaks=given(tp=1, tp_comm_overlap=True),
    passes=given(tp=4, tp_comm_overlap=True, sp=True),
)

SAVED_ACTIVATIONS = Rule(
    id="saved-activations-without-sp",
    aliases=("R048",),
    area="sp",
    must="distribute_saved_activations is not used with sequence parallelism",
    why="With SP the saved activations are split already.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: v.on("distribute_saved_activations") and v.gave("recompute_granularity"),
    holds=lambda v: not v.on("sequence_parallel"),
    message="distribute_saved_activations and sequence parallelism are both on",
    fix="drop distribute_saved_activations",
    breaks=given(
        tp=2,
        sp=True,
        distribute_saved_activations=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    passes=given(
        tp=2,
        distribute_saved_activations=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
)

SAVED_ACTIVATIONS_FULL = Rule(
    id="saved-activations-need-full-recompute",
    aliases=("R049",),
    area="sp",
    must="distribute_saved_activations needs TP > 1 and full recompute with a method",
    why="It spreads the inputs that full recompute keeps over the TP ranks.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.on("distribute_saved_activations"),
    holds=lambda v: (
        v.tp > 1 and v.get("recompute_granularity") == "full" and v.get("recompute_method") is not None
    ),
    message="distribute_saved_activations with tp {tp} and recompute {recompute_granularity}",
    fix="use tp of at least 2 and full recompute with --recompute-method",
    breaks=given(
        tp=1,
        distribute_saved_activations=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
    passes=given(
        tp=2,
        distribute_saved_activations=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ),
)


def _sp_message(v: View) -> str:
    local = v["seq_length"] // v.cp
    cut = f" (after cp={v.cp})" if v.cp > 1 else ""
    return (
        f"a sequence of {v['seq_length']} leaves {local} tokens{cut}, which tp={v.tp} does not divide with "
        f"sequence parallelism ({local} % {v.tp} = {local % v.tp})"
    )


SP_DIVIDES = Rule(
    id="sp-divides-sequence",
    aliases=("R050",),
    area="sp",
    must="with SP, the sequence of a CP rank is a multiple of TP",
    why="The reduce-scatter after each block splits the sequence over TP.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/tensor_parallel/mappings.py, first dimension of the scatter",
    applies=lambda v: v.sp & (v["seq_length"] % v.cp == 0),
    holds=lambda v: (v["seq_length"] // v.cp) % v.tp == 0,
    message=_sp_message,
    nearest=lambda v: multiples_around(sequence_step(int(v.cp), int(v.tp), True), v["seq_length"]),
    fix="pad the sequence (packs as well) to a multiple of CP*lcm(2,TP)",
    mask=True,
    breaks=given(seq=4098, tp=4, sp=True),
    passes=given(seq=4096, tp=4, sp=True),
)

CP_DIVIDES = Rule(
    id="cp-divides-sequence",
    aliases=("R051", "R052"),
    area="cp",
    must="with CP > 1, the sequence length is a multiple of 2*CP",
    why="Each CP rank takes one piece from either end, so that all have the same share of the causal mask.",
    severity="error",
    enforced_by=CORE_LM_BRIDGE,
    source="megatron/training/arguments.py, validate_args; Megatron Bridge config.py, "
    "ConfigContainer.validate; "
    "Transformer Engine's attention asserts it where neither is used",
    holds=lambda v: (v.cp == 1) | (v["seq_length"] % (2 * v.cp) == 0),
    message=lambda v: (
        f"a sequence of {v['seq_length']} is not a multiple of 2*cp = {2 * v.cp} "
        f"({v['seq_length']} % {2 * v.cp} = {v['seq_length'] % (2 * v.cp)})"
    ),
    nearest=lambda v: multiples_around(sequence_step(int(v.cp), int(v.tp), bool(v.sp)), v["seq_length"]),
    fix="pad the sequence, or use a cp that 2*cp divides",
    mask=True,
    breaks=given(seq=4096, cp=3),
    passes=given(seq=4096, cp=4),
)


def cp_levels(v: View) -> Any:
    """CP at the level that exchanges heads: all of it for a2a, the inner size for a2a+p2p."""
    kinds = v.get("cp_comm_type") or "p2p"
    kinds = kinds if isinstance(kinds, (list, tuple)) else [kinds]
    if "a2a" in kinds:
        return v.cp
    sizes = v.get("hierarchical_context_parallel_sizes")
    return int(sizes[0]) if "a2a+p2p" in kinds and sizes else 1


A2A_HEADS = Rule(
    id="a2a-divides-heads",
    aliases=("R060",),
    area="cp",
    must="with cp_comm_type a2a, the heads (and key-value heads) of a TP rank are a multiple of CP",
    why="The all-to-all gives each CP rank whole heads over the whole sequence.",
    severity="error",
    enforced_by=CORE,
    source="Transformer Engine context parallelism (cp_comm_type a2a); Megatron Bridge performance guide, "
    "long sequences",
    applies=lambda v: (v.cp > 1) & np.greater(cp_levels(v), 1),
    holds=lambda v: np.logical_and.reduce(
        np.broadcast_arrays(*[(n // v.tp) % cp_levels(v) == 0 for pair in v.attention_heads for n in pair])
    ),
    message=lambda v: (
        f"cp_comm_type a2a: {v.attention_heads[0][0]} heads ({v.attention_heads[0][1]} key-value) over "
        f"tp={v.tp} "
        f"cannot be shared evenly by cp={cp_levels(v)}"
    ),
    fix="lower CP or TP, or use cp_comm_type p2p or all_gather (a2a+p2p limits only its inner size)",
    mask=True,
    per_execution=True,
    breaks=given(heads=32, kv_heads=32, tp=8, cp=8, seq=8192, cp_comm_type="a2a"),
    passes=given(heads=64, kv_heads=64, tp=4, cp=8, seq=8192, cp_comm_type="a2a"),
)

RULES = (
    SP_NEEDS_TP,
    SP_OFF,
    MOE_NEEDS_SP,
    TP_OVERLAP_NEEDS_SP,
    TP_OVERLAP_OFF,
    SAVED_ACTIVATIONS,
    SAVED_ACTIVATIONS_FULL,
    SP_DIVIDES,
    CP_DIVIDES,
    A2A_HEADS,
)
