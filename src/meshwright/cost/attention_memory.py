"""Activations of token mixers: what they keep for the backward pass, and what that pass needs beside it.

Each function returns a `Part`: bytes kept by one micro-batch, and the most bytes alive beyond them while
the part runs backward. F is tokens of a rank (mbs*seq/cp), S those it holds between TP regions.

Source: megatron/core/transformer/attention.py and multi_latent_attention.py; transformer_engine/pytorch/
attention/dot_product_attention (backends.py, utils.py get_qkv_layout: q, k and v are copied where the
projection's output cannot be used as it is; context_parallel.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.recurrent_memory import recurrent_bytes
from meshwright.cost.sizes import BF16, BOOL, FP32, Sizes
from meshwright.layout.table import Bools, Floats
from meshwright.model.spec import Attention, LinearAttention, Mamba2, Mixer, Mla


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Memory of one part of a layer for one micro-batch. [Q] bytes

    kept     held on the GPU from the forward to the backward pass
    working  most bytes beyond `kept` while the part runs backward (gradients, gathers, recomputed tensors)
    hosted   held in host memory instead (fine-grained offloading)
    """

    kept: Floats
    working: Floats
    hosted: Floats | float = 0.0

    def offload(self, size: Floats, where: Bools) -> Part:
        """The part with `size` bytes moved to host memory; they come back for the backward pass."""
        moved = np.where(where, size, 0.0)
        return Part(kept=self.kept - moved, working=self.working + moved, hosted=self.hosted + moved)


def mixer_part(x: Sizes, mixer: Mixer) -> Part:
    """Attention or its substitute, from the projection's output to the input of the output projection."""
    match mixer:
        case Attention():
            return _attention(x, mixer)
        case Mla():
            return _mla(x, mixer)
        case LinearAttention() if mixer.kind != "gdn":
            return _linear(x, mixer)
        case LinearAttention() | Mamba2():
            return _recurrent(x, mixer)


def _recurrent(x: Sizes, mixer: LinearAttention | Mamba2) -> Part:
    """Mamba-2 and the gated delta net, by the table of what their kernels save.

    Beside their own gradients: that of the residual, and before and after the scan gathered activations.
    """
    kept, working = recurrent_bytes(x, mixer)
    gathers = BF16 * x.model.hidden * 2 * x.gathered
    return Part(kept=kept, working=np.maximum(working, gathers) + BF16 * x.model.hidden * x.sharded)


def _linear(x: Sizes, mixer: LinearAttention) -> Part:
    """Kimi delta and lightning attention, which Megatron Core does not run: by their widths alone."""
    width = mixer.k_heads * mixer.k_dim * 2 + mixer.v_heads * mixer.v_dim
    gate = mixer.v_heads * (mixer.v_dim + 2)
    out = mixer.v_heads * mixer.v_dim
    kept = (BF16 * (2 * width + gate + out) + x.saved * out) * x.full / x.keys.tp
    return Part(kept=kept, working=kept + BF16 * x.model.hidden * x.sharded)


def _attention(x: Sizes, a: Attention) -> Part:
    heads = a.heads / x.keys.tp
    kv_heads = np.maximum(a.kv_heads / x.keys.tp, 1.0) * (not a.shares_kv)
    v_dim = a.v_head_dim or a.head_dim
    q, k, v = heads * a.head_dim, kv_heads * a.head_dim, kv_heads * v_dim
    core = _core(x, q, k, v, heads, heads * v_dim)
    # recomputed, attention keeps values as a view, and with it all that the projection made
    whole = x.keys.recomputes("core_attn") & (not x.model.learned_positions)
    more = np.where(whole, BF16 * (q + k) * x.full, 0.0)
    if a.output_gate:
        more = more + _output_gate(x, heads * v_dim, q + k + v, kv_heads, whole)
    if a.qk_norm is not None:
        more = more + (BF16 * (q + k) + FP32 * (heads + kv_heads)) * x.full
    repeated = (heads - kv_heads) * (a.head_dim + v_dim) * BF16 * x.full
    more = more + np.where(x.unfused, repeated, 0.0)
    return Part(kept=core.kept + more, working=core.working, hosted=core.hosted)


def _output_gate(x: Sizes, width: Floats, rest: Floats, groups: Floats, whole: Bools) -> Floats:
    """The gate of an attention's output and the output before it, which torch's compiler keeps as they come.

    With one group of queries on a rank the gate is a view, and with it stays all that the projection made
    (`rest` of it; where attention is recomputed that stays anyway, and the gate in it). With several groups
    it is a copy. Source: megatron/core/transformer/attention.py, get_query_key_value_tensors and
    _apply_output_gate.
    """
    alone = np.asarray(groups) <= 1
    held = np.where(alone & ~whole, rest, 0.0) + np.where(~alone & whole, width, 0.0)
    return np.asarray(BF16 * (2 * width + held) * x.full)


def _mla(x: Sizes, a: Mla) -> Part:
    heads = a.heads / x.keys.tp
    qk = heads * (a.qk_nope + a.qk_rope)
    v = heads * a.v_head
    core = _core(x, qk, qk, v, heads, v)
    up = x.keys.recomputes("mla_up_proj")
    discarded = BF16 * (2 * qk + v) * x.full
    latent = (a.q_lora or 0) + a.kv_lora
    normed = np.where(up, 0.0, x.saved) * latent
    compressed = (BF16 * latent + normed + BF16 * a.qk_rope) * x.sharded
    discarded = np.where(up & ~x.keys.offloads("core_attn"), discarded, 0.0)
    return Part(kept=core.kept - discarded + compressed, working=core.working + discarded, hosted=core.hosted)


def _core(x: Sizes, q: Floats, k: Floats, v: Floats, heads: Floats, out: Floats) -> Part:
    """Core attention on widths of a token: q, k, v, heads and output of the rank.

    Fused kernels keep q, k, v, the output and its log-sum-exp; the output is the projection's input too,
    unless that is quantised, or the kernel's own output is another tensor (flash attention with several
    samples, heads exchanged over context-parallel ranks). Unfused attention keeps scores [heads, F, seq].
    """
    keys = x.keys
    recomputed = keys.recomputes("core_attn")
    exchanged = keys.flag(lambda e: e.cp_comm.startswith("a2a")) & (keys.cp > 1)
    own = exchanged | (x.flash & (keys.mbs > 1)) | np.asarray(x.recipe.quantised)
    score = heads * x.full * x.job.seq_length
    dropout = x.job.attention_dropout > 0
    probabilities = (2 * BF16 + BOOL if dropout else BF16) * score
    inner = np.where(
        x.unfused, probabilities, FP32 * heads * x.full + np.where(own, BF16 * out, 0.0) * x.full
    )
    inputs, output = BF16 * (q + k + v) * x.full, x.saved * out * x.full
    inside = np.where(recomputed, 0.0, inner)
    gradients = BF16 * (q + k + v + out) * x.full
    gathers = BF16 * x.model.hidden * (x.sharded + 2 * x.gathered)
    working = np.where(
        x.unfused,
        (2 if dropout else 1) * BF16 * score + gradients,
        gradients + np.where(x.flash, FP32 * q, BF16 * out) * x.full,
    )
    projection = BF16 * x.model.hidden * x.model.hidden / keys.tp * x.own_wgrad
    working = np.maximum(working, gathers + projection) + np.where(recomputed, inner, 0.0)
    part = Part(kept=inputs + output + inside, working=working)
    return part.offload(inputs + inside, keys.offloads("core_attn")).offload(
        output, keys.offloads("attn_proj")
    )
