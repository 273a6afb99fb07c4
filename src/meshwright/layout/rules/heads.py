"""Rules of tensor parallelism: what TP and ETP must divide."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from meshwright.layout.rules.numbers import around, divisors, divisors_around
from meshwright.layout.rules.rule import CORE, LM, LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View

RELAXED_KV = "2025-12-07"
"""Since then TP may be a multiple of the key-value heads, which are then replicated."""


def every(tests: list[Any]) -> Any:
    """All of several answers, each a bool or an array."""
    return reduce(np.logical_and, tests, True)


def _kv_ok(kv: int, tp: Any) -> Any:
    return (kv % tp == 0) | (tp % kv == 0)


def legal_tp(v: View) -> tuple[int, ...]:
    """TP sizes that heads and key-value heads of every layer allow."""
    heads = v.attention_heads
    common = divisors(int(np.gcd.reduce([h for h, _ in heads])))
    return tuple(tp for tp in common if all(_kv_ok(kv, tp) for _, kv in heads))


def _heads_message(v: View) -> str:
    wrong = next(h for h, _ in v.attention_heads if h % v.tp)
    return f"{wrong} attention heads cannot be shared evenly by tp={v.tp} ({wrong} % {v.tp} = {wrong % v.tp})"


def _kv_message(v: View) -> str:
    wrong = next(kv for _, kv in v.attention_heads if not _kv_ok(kv, v.tp))
    return f"{wrong} key-value heads are not a multiple or divisor of tp={v.tp}"


HEADS = Rule(
    id="tp-divides-heads",
    aliases=("R030",),
    area="tp",
    must="the number of attention heads is a multiple of TP",
    why="Every TP rank computes the same whole number of heads.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    holds=lambda v: every([heads % v.tp == 0 for heads, _ in v.attention_heads]),
    message=_heads_message,
    nearest=lambda v: around(legal_tp(v), v.tp),
    fix=lambda v: f"use a tp that divides the heads: {', '.join(map(str, legal_tp(v)))}",
    mask=True,
    breaks=given(heads=14, kv_heads=2, hidden=896, tp=4),
    passes=given(heads=14, kv_heads=2, hidden=896, tp=2),
)

KV_HEADS = Rule(
    id="tp-fits-kv-heads",
    aliases=("R031", "R032"),
    area="tp",
    must="the key-value heads are a multiple of TP, or TP is a multiple of them",
    why="Each TP rank holds whole key-value heads, or a copy of one.",
    severity="error",
    enforced_by=CORE,
    since=RELAXED_KV,
    source="megatron/core/transformer/transformer_config.py, __post_init__",
    holds=lambda v: every([_kv_ok(kv, v.tp) for _, kv in v.attention_heads]),
    message=_kv_message,
    nearest=lambda v: around(legal_tp(v), v.tp),
    fix=lambda v: f"use a tp that fits heads and key-value heads: {', '.join(map(str, legal_tp(v)))}",
    mask=True,
    breaks=given(heads=48, kv_heads=6, tp=4),
    passes=given(heads=32, kv_heads=2, tp=4),
)

KV_HEADS_STRICT = Rule(
    id="tp-divides-kv-heads",
    area="tp",
    must="the key-value heads are a multiple of TP (before December 2025)",
    why="Older Megatron Core cannot replicate key-value heads.",
    severity="error",
    enforced_by=CORE,
    until=RELAXED_KV,
    source="megatron/core/transformer/transformer_config.py, __post_init__ (0.15 and before)",
    holds=lambda v: every([kv % v.tp == 0 for _, kv in v.attention_heads]),
    message=lambda v: (
        f"{min(kv for _, kv in v.attention_heads)} key-value heads are not a multiple of tp={v.tp}, "
        "which this version of Megatron Core needs"
    ),
    nearest=lambda v: around(divisors(int(np.gcd.reduce([kv for _, kv in v.attention_heads]))), v.tp),
    fix="lower tp, or update Megatron Core (a tp that is a multiple of the key-value heads is legal since "
    "0.16)",
    mask=True,
    breaks=given(heads=32, kv_heads=2, tp=4),
    passes=given(heads=32, kv_heads=8, tp=4),
)


def _widths(v: View) -> tuple[int, ...]:
    """Inner widths of the dense feed-forward blocks (and shared experts), which TP divides."""
    widths = v.get("ffn_widths")
    if widths is None:
        only_moe = v.is_moe and v.get("moe_layer_freq") in (None, 1)
        widths = () if only_moe else (int(v.value("ffn_hidden_size")),)
    shared = v.get("moe_shared_expert_intermediate_size") if v.is_moe else None
    return (*widths, int(shared)) if shared else tuple(widths)


def _ffn_message(v: View) -> str:
    wrong = next(width for width in _widths(v) if width % v.tp)
    return f"a feed-forward width of {wrong} cannot be shared evenly by tp={v.tp}"


FFN = Rule(
    id="tp-divides-ffn",
    aliases=("R033",),
    area="tp",
    must="the width of the feed-forward block is a multiple of TP",
    why="Its first matrix is split by columns, its second by rows.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/tensor_parallel/layers.py; extensions/transformer_engine.py (divide)",
    holds=lambda v: every([width % v.tp == 0 for width in _widths(v)]),
    message=_ffn_message,
    nearest=lambda v: divisors_around(int(np.gcd.reduce(_widths(v))), v.tp),
    fix="use a tp that divides the width, or pad the width",
    mask=True,
    breaks=given(heads=30, kv_heads=30, hidden=3840, ffn=11008, tp=3),
    passes=given(heads=32, kv_heads=32, hidden=4096, ffn=11008, tp=8),
)

EXPERT_FFN = Rule(
    id="etp-divides-expert-ffn",
    aliases=("R034",),
    area="tp",
    must="the width of an expert is a multiple of ETP",
    why="Expert tensor parallelism splits each expert's matrices.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/extensions/transformer_engine.py (divide)",
    applies=lambda v: v.is_moe,
    holds=lambda v: v["moe_ffn_hidden_size"] % v.etp == 0,
    message="an expert width of {moe_ffn_hidden_size} cannot be shared evenly by etp={etp}",
    nearest=lambda v: divisors_around(v["moe_ffn_hidden_size"], v.etp),
    fix="use an etp that divides the width; 1 is the usual choice",
    mask=True,
    breaks=given(experts=8, moe_ffn_hidden_size=1407, etp=2, world=2, tp=2, sp=True),
    passes=given(experts=8, moe_ffn_hidden_size=1408, etp=2, world=2, tp=2, sp=True),
)

HIDDEN = Rule(
    id="heads-divide-hidden",
    aliases=("R260",),
    area="model",
    must="where the width of a head is not given, the hidden size is a multiple of the heads",
    why="The width of a head is then hidden / heads.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.get("kv_channels") is None and v.model is None and not v.on("multi_latent_attention"),
    holds=lambda v: every([v["hidden_size"] % heads == 0 for heads, _ in v.attention_heads]),
    message=lambda v: (
        f"a hidden size of {v['hidden_size']} is not a multiple of {v.attention_heads[0][0]} heads"
    ),
    fix="give --kv-channels (the width of a head), or a hidden size that the heads divide",
    breaks=given(hidden=4097, heads=32),
    passes=given(hidden=4096, heads=32),
)

MTP_HIDDEN = Rule(
    id="tp-divides-mtp-hidden",
    area="mtp",
    must="with multi-token prediction, the hidden size is a multiple of TP",
    why="A module first projects the hidden state and the next embedding to the hidden size, split by TP.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionLayer (eh_proj); "
    "extensions/transformer_engine.py (divide)",
    applies=lambda v: bool(v.get("mtp_num_layers")) and v.get("hidden_size") is not None,
    holds=lambda v: v["hidden_size"] % v.tp == 0,
    message="a hidden size of {hidden_size} cannot be shared evenly by tp={tp} in the MTP projection",
    nearest=lambda v: divisors_around(v["hidden_size"], v.tp),
    fix="use a tp that divides the hidden size",
    mask=True,
    breaks=given(hidden=104, heads=6, kv_heads=6, kv_channels=16, tp=3, mtp_num_layers=1),
    passes=given(hidden=96, heads=6, kv_heads=6, kv_channels=16, tp=3, mtp_num_layers=1),
)

VOCAB = Rule(
    id="tp-divides-vocab",
    aliases=("R035",),
    area="tp",
    must="the padded vocabulary is a multiple of TP",
    why="Embedding and output projection are split by rows of the vocabulary.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/tensor_parallel/utils.py, VocabUtility",
    applies=lambda v: v.get("padded_vocab_size") is not None,
    holds=lambda v: v["padded_vocab_size"] % v.tp == 0,
    message="a vocabulary of {padded_vocab_size} (odd vocab, unpadded) cannot be shared evenly by tp={tp}",
    nearest=lambda v: (-(-v["padded_vocab_size"] // (128 * v.tp)) * 128 * v.tp,),
    fix="pad the vocabulary to a multiple of 128*TP",
    mask=True,
    breaks=given(vocab_size=49155, tp=2),
    passes=given(vocab_size=49408, tp=2),
)

PADDED_VOCAB = Rule(
    id="vocab-padded",
    aliases=("R036", "R037"),
    area="tp",
    must="the vocabulary is a multiple of make_vocab_size_divisible_by * TP",
    why="It is padded otherwise: checkpoints hold the padded rows, and exports must cut them off.",
    severity="warn",
    enforced_by=LM_BRIDGE,
    effect="fills",
    source="megatron/training/vocab_utils.py; Megatron Bridge gpt_provider.py, provide",
    applies=lambda v: v.get("vocab_size") is not None and v.get("padded_vocab_size") is not None,
    holds=lambda v: v["padded_vocab_size"] == v["vocab_size"],
    message=lambda v: (
        f"the vocabulary of {v['vocab_size']} is padded to {v['padded_vocab_size']}, the next "
        f"{v['make_vocab_size_divisible_by'] * v.tp} multiple"
        + (
            f"; odd vocab: {v['vocab_size']} % {v.tp} != 0, exports cut the padding off again"
            if v["vocab_size"] % v.tp
            else ""
        )
    ),
    fix="nothing to do; load checkpoints with the same TP or let the loader cut the padding",
    breaks=given(vocab_size=128256, tp=8),
    passes=given(vocab_size=129024, tp=8),
    example_framework="megatron-lm",
)

MLA_FUSION_DIVIDES = Rule(
    id="mla-fusion-divides",
    aliases=("R038",),
    area="tp",
    must="with mla_down_proj_fusion, q_lora_rank and kv_lora_rank + rope width are multiples of TP",
    why="The fused down projection is split by TP.",
    severity="error",
    enforced_by=CORE,
    since="2026-02-01",
    source="megatron/core/transformer/multi_latent_attention.py",
    applies=lambda v: v.on("mla_down_proj_fusion") and v.on("multi_latent_attention"),
    holds=lambda v: (
        (v.get("q_lora_rank") or 0) % v.tp == 0 and (v["kv_lora_rank"] + v["qk_pos_emb_head_dim"]) % v.tp == 0
    ),
    message="the fused MLA projection (q rank {q_lora_rank}, kv rank {kv_lora_rank} + {qk_pos_emb_head_dim}) "
    "cannot be shared evenly by tp={tp}",
    fix="use a tp that divides both, or switch mla_down_proj_fusion off",
    breaks=given(
        multi_latent_attention=True,
        mla_down_proj_fusion=True,
        heads=126,
        hidden=4032,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_pos_emb_head_dim=64,
        tp=7,
    ),
    passes=given(
        multi_latent_attention=True,
        mla_down_proj_fusion=True,
        heads=128,
        hidden=4096,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_pos_emb_head_dim=64,
        tp=8,
    ),
)

MLA_FUSION_NEEDS_MLA = Rule(
    id="mla-fusion-needs-mla",
    aliases=("R039",),
    area="tp",
    must="mla_down_proj_fusion is for multi-latent attention",
    why="Other attention has no down projections to fuse.",
    severity="error",
    enforced_by=LM,
    since="2026-02-01",
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.on("mla_down_proj_fusion"),
    holds=lambda v: v.on("multi_latent_attention"),
    message="mla_down_proj_fusion is on and the model has no multi-latent attention",
    fix="drop --mla-down-proj-fusion",
    breaks=given(mla_down_proj_fusion=True),
    passes=given(mla_down_proj_fusion=True, multi_latent_attention=True),
)

MLA_OR_GQA = Rule(
    id="mla-or-gqa",
    aliases=("R040",),
    area="tp",
    must="multi-latent attention and group-query attention are not asked for together",
    why="They are two different attentions.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.on("multi_latent_attention"),
    holds=lambda v: not v.on("group_query_attention"),
    message="both multi-latent attention and group-query attention are on",
    fix="drop --group-query-attention",
    breaks=given(multi_latent_attention=True, group_query_attention=True),
    passes=given(multi_latent_attention=True),
)

OUTPUT_GATE = Rule(
    id="output-gate-fits-kv-heads",
    area="tp",
    must="attention with an output gate has at least TP key-value heads (before March 2026)",
    why="Where TP exceeds the key-value heads, each rank gathers a whole group and keeps its share of the "
    "queries, but not of the gate: the first forward pass ends with `shape ... is invalid for input of "
    "size`.",
    severity="error",
    enforced_by=CORE,
    until="2026-03-20",
    source="megatron/core/transformer/attention.py, get_query_key_value_tensors and _apply_output_gate "
    "(0.16); 0.17 cuts the gate as well",
    applies=lambda v: v.on("attention_output_gate"),
    holds=lambda v: every([kv >= v.tp for _, kv in v.attention_heads]),
    message=lambda v: (
        f"tp={v.tp} exceeds the {min(kv for _, kv in v.attention_heads)} key-value heads, and this version "
        "of Megatron Core does not cut the attention output gate for that"
    ),
    nearest=lambda v: divisors(int(np.gcd.reduce([kv for _, kv in v.attention_heads])))[-1:],
    fix="a tp of at most the key-value heads, or Megatron Core 0.17",
    mask=True,
    breaks=given(heads=16, kv_heads=2, tp=4, attention_output_gate=True),
    passes=given(heads=16, kv_heads=2, tp=2, attention_output_gate=True),
)

RULES = (
    HEADS,
    KV_HEADS,
    KV_HEADS_STRICT,
    OUTPUT_GATE,
    FFN,
    EXPERT_FFN,
    HIDDEN,
    MTP_HIDDEN,
    VOCAB,
    PADDED_VOCAB,
    MLA_FUSION_DIVIDES,
    MLA_FUSION_NEEDS_MLA,
    MLA_OR_GQA,
)
