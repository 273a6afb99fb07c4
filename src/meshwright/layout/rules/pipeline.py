"""Rules of the pipeline split: how layers divide over stages and chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.layout.rules.numbers import divisors, divisors_around
from meshwright.layout.rules.rule import CORE, LM, Rule, given
from meshwright.layout.rules.view import View


def split_kind(v: View) -> str:
    """How layers are shared out: layout, hybrid, ends (first/last), account, automatic or even."""
    if v.get("pipeline_split") == "automatic":
        return "automatic"
    if v.get("pipeline_model_parallel_layout"):
        return "layout"
    if v.get("hybrid_layer_pattern"):
        return "hybrid"
    if v.get("num_layers_in_first_pipeline_stage") is not None:
        return "ends"
    if v.get("num_layers_in_last_pipeline_stage") is not None:
        return "ends"
    if v.on("account_for_embedding_in_pipeline_split") or v.on("account_for_loss_in_pipeline_split"):
        return "account"
    return "even"


def blocks(v: View) -> int:
    """Layers, and the embedding and loss where they count as layers of the split."""
    return (
        v.layers
        + v.on("account_for_embedding_in_pipeline_split")
        + v.on("account_for_loss_in_pipeline_split")
    )


def _even_message(v: View) -> str:
    counted = (
        ""
        if blocks(v) == v.layers
        else f" (with embedding and loss counted: {v.layers} + {blocks(v) - v.layers})"
    )
    return (
        f"{blocks(v)} layers{counted} do not divide over PP {v.pp} ({blocks(v)} % {v.pp} = "
        f"{blocks(v) % v.pp})"
    )


def legal_pp(v: View) -> tuple[int, ...]:
    """PP sizes that divide the layers evenly."""
    return divisors(blocks(v))


PP_DIVIDES = Rule(
    id="pp-divides-layers",
    aliases=("R073",),
    area="pp",
    must="without an uneven split, the layers (with embedding and loss where counted) are a multiple of PP",
    why="Every stage gets the same number of layers; old versions silently built fewer layers than asked "
    "for.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_block.py, get_num_layers_to_build; "
    "megatron/training/arguments.py, validate_args",
    applies=lambda v: split_kind(v) in ("even", "account") and not v.on("is_hybrid_model"),
    holds=lambda v: blocks(v) % v.pp == 0,
    message=_even_message,
    nearest=lambda v: [f"PP {pp}" for pp in divisors_around(blocks(v), v.pp)],
    fix=lambda v: (
        f"use a PP of {', '.join(map(str, legal_pp(v)))}, or an uneven split: first/last or layout "
        "(--decoder-first/last-pipeline-num-layers, --pipeline-model-parallel-layout)"
    ),
    mask=True,
    breaks=given(layers=61, pp=4),
    passes=given(layers=64, pp=4),
)


def _vpp_message(v: View) -> str:
    stage = blocks(v) // v.pp
    return (
        f"VPP {v.vpp} vs {stage} layers per stage: they do not divide ({stage} % {v.vpp} = {stage % v.vpp})"
    )


VPP_DIVIDES = Rule(
    id="vpp-divides-layers",
    aliases=("R089", "R090"),
    area="pp",
    must="the layers of a stage are a multiple of VPP",
    why="Every model chunk of a rank holds the same number of layers.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_block.py, get_num_layers_to_build; Megatron Bridge "
    "gpt_provider.py, provide",
    applies=lambda v: (
        (blocks(v) % v.pp == 0) & (split_kind(v) in ("even", "account")) & (not v.on("is_hybrid_model"))
    ),
    holds=lambda v: (blocks(v) // v.pp) % v.vpp == 0,
    message=_vpp_message,
    nearest=lambda v: [f"VPP {vpp}" for vpp in divisors_around(blocks(v) // v.pp, v.vpp)],
    fix=lambda v: (
        f"VPP must divide {blocks(v) // v.pp}: {', '.join(map(str, divisors(blocks(v) // v.pp)))}; or give "
        f"a layout"
    ),
    mask=True,
    breaks=given(layers=32, pp=4, vpp=3),
    passes=given(layers=32, pp=4, vpp=4),
)

ACCOUNT_DIVIDES = Rule(
    id="account-divides",
    aliases=("R087",),
    area="pp",
    must="with account_for_embedding/loss, layers plus the counted ends are a multiple of PP and VPP",
    why="Embedding and loss take the place of a layer each.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    applies=lambda v: split_kind(v) == "account" and not v.get("pipeline_model_parallel_layout"),
    holds=lambda v: blocks(v) % (v.pp * v.vpp) == 0,
    message=lambda v: (
        f"{v.layers} layers + {blocks(v) - v.layers} counted for embedding/loss = {blocks(v)} do not "
        f"divide over "
        f"pp {v.pp} x vpp {v.vpp}"
    ),
    fix="count embedding and loss so that the sum divides, or give a layout",
    breaks=given(layers=126, pp=8, vpp=8, account_for_embedding_in_pipeline_split=True),
    passes=given(
        layers=126,
        pp=8,
        vpp=8,
        account_for_embedding_in_pipeline_split=True,
        account_for_loss_in_pipeline_split=True,
    ),
)

ACCOUNT_LEAVES = Rule(
    id="account-leaves-layers",
    aliases=("R088",),
    area="pp",
    must="with account_for_embedding/loss, no chunk ends with fewer than 0 layers",
    why="The first and the last chunk each give up a layer; one layer a chunk leaves 0, which is legal. "
    "Once the sum divides, nothing breaks it.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_block.py, get_num_layers_to_build",
    applies=lambda v: split_kind(v) == "account" and blocks(v) % (v.pp * v.vpp) == 0,
    holds=lambda v: blocks(v) // (v.pp * v.vpp) - _given_up(v) >= 0,
    message=lambda v: f"a chunk of {blocks(v) // (v.pp * v.vpp)} cannot give up {_given_up(v)} layers",
    fix="lower PP or VPP",
    passes=given(
        layers=2,
        pp=2,
        vpp=2,
        account_for_embedding_in_pipeline_split=True,
        account_for_loss_in_pipeline_split=True,
    ),
)


def _given_up(v: View) -> int:
    """Layers that one chunk gives up: two where the first chunk is the last as well."""
    return blocks(v) - v.layers if v.pp * v.vpp == 1 else 1


CHUNKS_HOLD_BLOCKS = Rule(
    id="chunks-hold-blocks",
    area="pp",
    must="there are at least as many layers as model chunks (PP*VPP), counting embedding, loss and MTP",
    why="A chunk without any block only adds a step to the pipeline.",
    severity="warn",
    enforced_by=("advice",),
    effect="advises",
    source="megatron/core/transformer/pipeline_parallel_layer_layout.py (empty stages are legal)",
    holds=lambda v: v.pp * v.vpp <= v.layers + 2 + (v.get("mtp_num_layers") or 0),
    message=lambda v: (
        f"pp {v.pp} x vpp {v.vpp} = {v.pp * v.vpp} chunks are more than {v.layers} layers can fill"
    ),
    fix="lower PP or VPP",
    mask=True,
    breaks=given(layers=8, pp=8, vpp=2, layout="Et|t|t|t|t|t|t|t||||||||L"),
    passes=given(layers=8, pp=4, vpp=2),
)

VPP_NEEDS_PP = Rule(
    id="vpp-needs-pp",
    aliases=("R077",),
    area="pp",
    must="interleaving (VPP) is used with PP > 1",
    why="Chunks of one rank take turns with those of other stages.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/parallel_state.py, initialize_model_parallel",
    holds=lambda v: np.logical_not(v.interleaved) | (v.pp > 1),
    message="vpp={vpp} needs pipeline stages, and pp is {pp}",
    fix="use pp of at least 2, or drop the virtual size",
    mask=True,
    breaks=given(layers=32, pp=1, vpp=2),
    passes=given(layers=32, pp=2, vpp=2),
)

VPP_PP2 = Rule(
    id="vpp-pp2-needs-overlap",
    aliases=("R078",),
    area="pp",
    must="interleaving on PP 2 uses overlap of point-to-point communication; PP > 2 is free",
    why="With two stages the next and the previous rank are the same peer.",
    severity="error",
    enforced_by=LM,
    since="2024-05-31",
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.interleaved & (v.pp > 1),
    holds=lambda v: (v.pp > 2) | np.asarray(v["overlap_p2p_comm"], dtype=bool),
    message="PP2 with VPP {vpp} needs p2p overlap, which is off: sends to both neighbours go to the same "
    "rank",
    fix="drop --no-overlap-p2p-communication, or use PP of more than 2",
    mask=True,
    breaks=given(layers=32, pp=2, vpp=2, overlap_p2p_comm=False),
    passes=given(layers=32, pp=4, vpp=2, overlap_p2p_comm=False),
)


def _chunk(v: View) -> int:
    return int(v["num_layers_per_virtual_pipeline_stage"])


def _chunk_message(v: View) -> str:
    stage, chunk = blocks(v) // v.pp, _chunk(v)
    if split_kind(v) == "ends":
        return (
            f"{chunk} layers a chunk are given beside first/last stage layers, which set chunks by "
            f"their number"
        )
    return (
        f"{stage} layers per stage are not divisible by {chunk} layers a chunk ({stage} % {chunk} = "
        f"{stage % chunk})"
    )


def _chunk_fix(v: View) -> str:
    if split_kind(v) == "ends":
        return "--num-virtual-stages-per-pipeline-rank"
    return f"use {' or '.join(map(str, divisors_around(blocks(v) // v.pp, _chunk(v))))} layers a chunk"


LAYERS_PER_CHUNK = Rule(
    id="layers-per-chunk",
    aliases=("R080",),
    area="pp",
    must="layers a stage are a multiple of num_layers_per_virtual_pipeline_stage, with no first/last "
    "override",
    why="The number of chunks is their quotient; old versions silently lost the remainder's layers.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: (
        v.gave("num_layers_per_virtual_pipeline_stage")
        and split_kind(v) != "layout"
        and (split_kind(v) == "ends" or blocks(v) % v.pp == 0)
    ),
    holds=lambda v: split_kind(v) != "ends" and (blocks(v) // v.pp) % _chunk(v) == 0,
    message=_chunk_message,
    fix=_chunk_fix,
    breaks=given(layers=32, pp=4, num_layers_per_virtual_pipeline_stage=3),
    passes=given(layers=32, pp=4, num_layers_per_virtual_pipeline_stage=2),
)


def _group(v: View) -> Any:
    return v["microbatch_group_size_per_vp_stage"]


def _fewer_message(v: View) -> str:
    m, group = v.num_microbatches, _group(v)
    if m < v.pp:
        return (
            f"{m} microbatches < PP {v.pp}: interleaving needs at least PP of them, a global batch of "
            f"PP*MBS*DP = {v.pp}*{v.mbs}*{v.dp} (GBS {v.pp * v.mbs * v.dp})"
        )
    return f"microbatch group {group} is outside PP {v.pp} .. {m} microbatches"


ENOUGH_MICROBATCHES = Rule(
    id="interleaving-needs-microbatches",
    aliases=("R105",),
    area="interleave",
    must="with VPP, PP <= microbatch group size <= number of micro-batches",
    why="A group of micro-batches must fill the pipeline before the next chunk takes its turn.",
    severity="error",
    enforced_by=CORE,
    since="2024-11-01",
    source="megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving",
    applies=lambda v: v.interleaved & (v.pp > 1) & (v.gbs % (v.mbs * v.dp) == 0),
    holds=lambda v: (v.pp <= _group(v)) & (_group(v) <= v.num_microbatches),
    message=_fewer_message,
    fix=lambda v: (
        f"raise the global batch to at least {v.pp * v.mbs * v.dp}, lower PP or MBS, or drop VPP; "
        "microbatch_group_size_per_vp_stage lies between PP and the micro-batches"
    ),
    mask=True,
    per_execution=True,
    breaks=given(world=8, layers=32, pp=8, vpp=2, gbs=4),
    passes=given(world=8, layers=32, pp=8, vpp=2, gbs=8),
)


def legal_groups(v: View) -> tuple[int, ...]:
    """Microbatch group sizes that the interleaved schedule accepts."""
    m, pp = int(v.num_microbatches), int(v.pp)
    return tuple(n for n in range(pp, min(m, 4096) + 1) if m % n == 0 or m % n >= pp)


def _remainder_fix(v: View) -> str:
    groups = legal_groups(v)[:3]
    words = (
        f"set microbatch_group_size_per_vp_stage to {' or '.join(map(str, groups))}, or " if groups else ""
    )
    step = v.pp * v.mbs * v.dp
    return f"{words}use a global batch that is a multiple of PP*MBS*DP = {step}"


LAST_GROUP = Rule(
    id="interleaving-last-group",
    aliases=("R106",),
    area="interleave",
    must="with VPP, micro-batches modulo the group size are 0 or at least PP",
    why="A short last group leaves dependency bubbles; Megatron Core refuses it. Micro-batches that are no "
    "multiple of PP are legal with a fitting group size.",
    severity="error",
    enforced_by=CORE,
    since="2024-11-01",
    source="megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving",
    applies=lambda v: (
        v.interleaved & (v.pp > 1) & (_group(v) <= v.num_microbatches) & (v.gbs % (v.mbs * v.dp) == 0)
    ),
    holds=lambda v: (v.num_microbatches % _group(v) == 0) | (v.num_microbatches % _group(v) >= v.pp),
    message=lambda v: (
        f"{v.num_microbatches} microbatches in groups of {_group(v)} leave a last group of "
        f"{v.num_microbatches % _group(v)} < PP {v.pp}, a bubble that Megatron Core refuses; a number that "
        f"is no "
        "multiple of PP is not an error with another group size"
    ),
    fix=_remainder_fix,
    mask=True,
    per_execution=True,
    breaks=given(world=4, layers=32, pp=4, vpp=2, gbs=10),
    passes=given(world=4, layers=32, pp=4, vpp=2, gbs=12),
)

RULES = (
    PP_DIVIDES,
    VPP_DIVIDES,
    ACCOUNT_DIVIDES,
    ACCOUNT_LEAVES,
    CHUNKS_HOLD_BLOCKS,
    VPP_NEEDS_PP,
    VPP_PP2,
    LAYERS_PER_CHUNK,
    ENOUGH_MICROBATCHES,
    LAST_GROUP,
)
