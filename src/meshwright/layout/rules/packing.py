"""Rules of data: sequence lengths that must agree, packing, fine-tuning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshwright.layout.rules.numbers import multiples_around
from meshwright.layout.rules.rule import ADVICE, ARGUMENTS, BRIDGE, BRIDGE_CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

FP8_BLOCK = {"delayed": 16, "tensorwise": 16, "mxfp8": 32, "blockwise": 128}
"""Rows that a matrix product of each fp8 recipe needs a multiple of (Transformer Engine)."""


def tuned(v: View) -> bool:
    return v["task"] in ("sft", "lora")


def packed(v: View) -> bool:
    return v.on("packed_sequence") or v.gave("packed_sequence_size")


def _offline_fault(v: View) -> str:
    if v.mbs != 1:
        return f"a micro-batch of {v.mbs}; it needs 1"
    if v.get("packed_sequence_size", 1) <= 0:
        return f"a packed size of {v['packed_sequence_size']}"
    return "in-batch packing" if v.on("pack_sequences_in_batch") else ""


OFFLINE = Rule(
    id="offline-packing-mbs",
    aliases=("R248",),
    area="packing",
    must="offline packing has a micro-batch of 1, a packed size above 0, and no in-batch packing",
    why="A pack is a batch already.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: tuned(v) and v.gave("packed_sequence_size"),
    holds=lambda v: not _offline_fault(v),
    message=lambda v: f"offline packing with {_offline_fault(v)}",
    fix="train.micro_batch_size=1",
    breaks=given(task="sft", packed_sequence_size=4096, mbs=2),
    passes=given(task="sft", packed_sequence_size=4096, mbs=1),
)

IN_BATCH = Rule(
    id="in-batch-packing-mbs",
    aliases=("R249",),
    area="packing",
    must="in-batch packing has a micro-batch above 1",
    why="It joins the samples of a micro-batch.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v.on("pack_sequences_in_batch"),
    holds=lambda v: v.mbs > 1,
    message="in-batch packing with a micro-batch of {mbs}",
    fix="train.micro_batch_size=2 or more",
    breaks=given(task="sft", pack_sequences_in_batch=True, mbs=1),
    passes=given(task="sft", pack_sequences_in_batch=True, mbs=2),
)


def _padding_fault(v: View) -> str:
    to_max = v.on("pad_to_max_length")
    if v.on("pad_cu_seqlens") and not to_max:
        return "pad_cu_seqlens without pad_to_max_length"
    if v.gave("packed_sequence_size") and v["cuda_graph_impl"] != "none":
        if not to_max:
            return "packed sequences and CUDA graphs without pad_to_max_length"
        if "attn" in v.listed("cuda_graph_modules") and not v.on("pad_cu_seqlens"):
            return "captured attention on packs without pad_cu_seqlens"
    return ""


PADDING = Rule(
    id="packing-padding",
    aliases=("R250",),
    area="packing",
    must="pad_cu_seqlens and CUDA graphs on packs come with pad_to_max_length (and pad_cu_seqlens for "
    "attention)",
    why="A graph repeats fixed shapes.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    holds=lambda v: not _padding_fault(v),
    message=_padding_fault,
    fix="dataset_kwargs.pad_to_max_length=true",
    breaks=given(task="sft", pad_cu_seqlens=True),
    passes=given(task="sft", pad_cu_seqlens=True, pad_to_max_length=True),
)

PAD_TO_MAX = Rule(
    id="sft-pads-to-max",
    aliases=("R251",),
    area="packing",
    must="fine-tuning on padded samples with PP or EP pads to the full length",
    why="Stages must know the shape they receive; Bridge turns it on.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source=BRIDGE_CONFIG,
    applies=lambda v: tuned(v) and not packed(v) and (v.pp > 1 or v.ep > 1),
    holds=lambda v: v.said.get("pad_to_max_length") is not False,
    message="pad_to_max_length=False is set to True (pp {pp}, ep {ep})",
    fix="pad_to_max_length=true",
    breaks=given(task="sft", layers=32, pp=2, pad_to_max_length=False),
    passes=given(task="sft", layers=32, pp=2, pad_to_max_length=True),
)


def sft_step(v: View) -> int:
    """lcm(2*CP where CP > 1, CP*TP with SP): what a fine-tuning sequence must be a multiple of."""
    return math.lcm(2 * v.cp if v.cp > 1 else 1, v.cp * v.tp if v.on("sequence_parallel") else 1)


SFT_LENGTH = Rule(
    id="sft-sequence-multiple",
    aliases=("R252",),
    area="packing",
    must="a fine-tuning sequence is a multiple of lcm(2*CP, CP*TP with SP)",
    why="Samples and packs are cut over CP and TP.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=tuned,
    holds=lambda v: v["seq_length"] % sft_step(v) == 0,
    message=lambda v: (
        f"a fine-tuning sequence of {v['seq_length']} is no multiple of {sft_step(v)} "
        f"({v['seq_length']} % {sft_step(v)} = {v['seq_length'] % sft_step(v)})"
    ),
    nearest=lambda v: multiples_around(sft_step(v), v["seq_length"]),
    fix="pad the sequence",
    breaks=given(task="sft", seq=4100, tp=8, sp=True),
    passes=given(task="sft", seq=4096, tp=8, sp=True),
)

DYNAMIC_PADDING = Rule(
    id="dynamic-padding-multiple",
    area="packing",
    must="samples that are padded to the longest of a batch are padded to a multiple of CP*lcm(2,TP)",
    why="With PP a length that does not divide reaches the next stage one token short.",
    severity="warn",
    enforced_by=ADVICE,
    effect="advises",
    source="megatron/core/tensor_parallel/mappings.py; Megatron Bridge training/config.py (fine-tuning "
    "lengths)",
    applies=lambda v: (
        v.said.get("pad_to_max_length") is False
        and sft_step(v) > 1
        and (v.cp > 1 or v.on("sequence_parallel"))
    ),
    holds=lambda v: (v.get("pad_to_multiple_of") or 1) % sft_step(v) == 0,
    message=lambda v: (
        f"samples are padded to the longest of a batch with cp={v.cp}, tp={v.tp}, pp={v.pp}: they need a pad "
        f"multiple {sft_step(v)}"
    ),
    fix=lambda v: f"pad to a multiple of {sft_step(v)}, or pad_to_max_length",
    breaks=given(seq=131072, tp=4, cp=4, sp=True, pp=2, layers=64, pad_to_max_length=False),
    passes=given(
        seq=131072, tp=4, cp=4, sp=True, pp=2, layers=64, pad_to_max_length=False, pad_to_multiple_of=16
    ),
)


def fp8_rows(v: View) -> Any:
    """Tokens of a sequence that a rank works on: a number, or one a row of a table."""
    return v["seq_length"] // (v.cp * np.where(v.get("sequence_parallel", False), v.tp, 1))


FP8_LENGTH = Rule(
    id="fp8-sequence-multiple",
    area="packing",
    must="in fp8 the tokens of a rank are a multiple of the recipe's block (16; mxfp8 32; blockwise 128)",
    why="Matrix products in fp8 need whole blocks; with SP the block counts after the split by TP.",
    severity="error",
    enforced_by=CORE,
    source="Transformer Engine quantization (block sizes); Megatron Bridge packing notes",
    applies=lambda v: bool(v.get("fp8")) and v["fp8_recipe"] in FP8_BLOCK,
    mask=True,
    holds=lambda v: (v.mbs * fp8_rows(v)) % FP8_BLOCK[v["fp8_recipe"]] == 0,
    message=lambda v: (
        f"{v['fp8_recipe']} needs multiples of {FP8_BLOCK[v['fp8_recipe']]} tokens on a rank: "
        f"{v['seq_length']}/{v['seq_length'] // fp8_rows(v)} = {fp8_rows(v)} ({fp8_rows(v)} % "
        f"{FP8_BLOCK[v['fp8_recipe']]} = {fp8_rows(v) % FP8_BLOCK[v['fp8_recipe']]})"
    ),
    nearest=lambda v: multiples_around(
        FP8_BLOCK[v["fp8_recipe"]] * (v["seq_length"] // fp8_rows(v)), v["seq_length"]
    ),
    fix="pad packs to a multiple of block * TP * CP",
    breaks=given(seq=31936, tp=4, sp=True, mbs=1, fp8="e4m3", fp8_recipe="mxfp8"),
    passes=given(seq=32768, tp=4, sp=True, mbs=1, fp8="e4m3", fp8_recipe="mxfp8"),
)

VARIABLE = Rule(
    id="in-batch-packing-variable",
    aliases=("R253",),
    area="packing",
    must="in-batch packing with PP exchanges sequences of varying length",
    why="Bridge turns variable_seq_lengths on.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="fills",
    source="Megatron Bridge models/transformer_config.py, finalize",
    applies=lambda v: v.on("pack_sequences_in_batch") and v.pp > 1,
    holds=lambda v: v.on("variable_seq_lengths"),
    message="variable_seq_lengths is turned on",
    fix="nothing to do",
    breaks=given(task="sft", pack_sequences_in_batch=True, mbs=2, layers=32, pp=2),
    passes=given(task="sft", pack_sequences_in_batch=True, mbs=2, layers=32, pp=2, variable_seq_lengths=True),
)


def _energon_fault(v: View) -> str:
    faults = {
        f"a micro-batch of {v.mbs}": v.mbs != 1,
        "no per-token loss": not v.on("calculate_per_token_loss"),
        "average_in_collective": v.on("average_in_collective"),
        "MTP": bool(v.get("mtp_num_layers")),
        "CUDA graphs": v["cuda_graph_impl"] != "none",
        f"pp={v.pp}": v.pp > 1,
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


ENERGON = Rule(
    id="energon-packing-conditions",
    aliases=("R254",),
    area="packing",
    must="Energon packing has a micro-batch of 1, per-token loss, no average in collective, no MTP, no "
    "graphs, PP 1",
    why="Its packs differ from rank to rank.",
    severity="error",
    enforced_by=BRIDGE,
    since="2026-08-10",
    source="Megatron Bridge training/config.py",
    applies=lambda v: v.on("energon_packing"),
    holds=lambda v: not _energon_fault(v),
    message=lambda v: f"Energon packing does not work with {_energon_fault(v)}",
    fix="drop what it does not work with",
    breaks=given(energon_packing=True, mbs=1, calculate_per_token_loss=True, layers=32, pp=2),
    passes=given(energon_packing=True, mbs=1, calculate_per_token_loss=True, layers=32, pp=1),
)

SAME_LENGTH = Rule(
    id="model-and-data-length",
    aliases=("R255",),
    area="packing",
    must="the model's and the dataset's sequence lengths are the same",
    why="Bridge has a field for each and asserts that they must match.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v.gave("dataset_seq_length"),
    holds=lambda v: v["dataset_seq_length"] == v["seq_length"],
    message="model.seq_length {seq_length} and dataset.seq_length {dataset_seq_length} must match",
    fix=lambda v: f"dataset.seq_length={v['seq_length']}, or lower model.seq_length",
    breaks=given(seq=4096, dataset_seq_length=8192),
    passes=given(seq=4096, dataset_seq_length=4096),
)

LOCAL_THD = Rule(
    id="packing-needs-te",
    aliases=("R256",),
    area="packing",
    must="packed sequences need Transformer Engine's attention",
    why="The local attention sees one sequence.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/dot_product_attention.py",
    applies=packed,
    holds=lambda v: v["transformer_impl"] != "local",
    message="packed sequences with the local transformer implementation",
    fix="--transformer-impl transformer_engine",
    breaks=given(packed_sequence=True, transformer_impl="local"),
    passes=given(packed_sequence=True, transformer_impl="transformer_engine"),
)

PEFT = Rule(
    id="peft-needs-checkpoint",
    aliases=("R257",),
    area="packing",
    must="adapters are trained on a pretrained checkpoint",
    why="Frozen random weights learn nothing.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: v["task"] == "lora" and "pretrained_checkpoint" in v.said,
    holds=lambda v: v.gave("pretrained_checkpoint"),
    message="LoRA without a pretrained checkpoint",
    fix="checkpoint.pretrained_checkpoint=PATH",
    breaks=given(task="lora", pretrained_checkpoint=None),
    passes=given(task="lora", pretrained_checkpoint="/checkpoints/base"),
)

POSITIONS = Rule(
    id="positions-cover-sequence",
    aliases=("R258",),
    area="model",
    must="the model has at least as many positions as the sequence has tokens",
    why="A position beyond the table has no embedding.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    mask=True,
    applies=lambda v: v.get("max_position_embeddings") is not None,
    holds=lambda v: v["max_position_embeddings"] >= v["seq_length"],
    message="max_position_embeddings {max_position_embeddings} < sequence length {seq_length}",
    fix=lambda v: f"--max-position-embeddings {v['seq_length']}",
    breaks=given(max_position_embeddings=2048, seq=4096),
    passes=given(max_position_embeddings=8192, seq=4096),
)

RULES = (
    OFFLINE,
    IN_BATCH,
    PADDING,
    PAD_TO_MAX,
    SFT_LENGTH,
    DYNAMIC_PADDING,
    FP8_LENGTH,
    VARIABLE,
    ENERGON,
    SAME_LENGTH,
    LOCAL_THD,
    PEFT,
    POSITIONS,
)
