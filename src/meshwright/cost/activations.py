"""Activations that one block keeps from its forward to its backward pass, on one rank, a micro-batch.

Counted by the tensors each operation saves in Megatron Core with Transformer Engine: the input of each
norm, the input of each GEMM (in the number format of the GEMM), q, k, v and the output of attention,
the pre-activation of a gated MLP, the router's scores, the permuted tokens of a MoE layer.

Symbols: tok = mbs*seq/cp tokens a rank; ts = tok/tp with sequence parallelism, else tok.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.cost.precision import Recipe
from meshwright.job.spec import Job
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Bools, Floats
from meshwright.model.spec import Attention, Ffn, Layer, LinearAttention, Mamba2, Mixer, Mla, Mlp, Model, Moe
from meshwright.model.weights import padded_vocab

BF16 = 2.0
FP32 = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts of each key. [Q]

    full     a rank's share of the sequence, all of it: mbs*seq/cp
    sharded  what it holds between the TP regions: full/tp with sequence parallelism
    """

    full: Floats
    sharded: Floats


def tokens(job: Job, keys: Keys) -> Tokens:
    full = keys.mbs * job.seq_length / keys.cp
    return Tokens(full=full, sharded=np.where(keys.sp, full / keys.tp, full))


def saved_bytes(model: Model, job: Job, recipe: Recipe, keys: Keys) -> Floats:
    """Bytes kept by one block of each kind for one micro-batch. [Q, K]"""
    toks = tokens(job, keys)
    columns = [_block(model, kind, recipe, keys, toks) for kind in describe_kinds(model)]
    return np.stack(columns, axis=1)


def _block(model: Model, kind: BlockKind, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    if kind.role == "head":
        return head_bytes(model, keys, toks)
    if kind.layer is None:  # embedding and vision tower: their output is the first layer's input
        return np.zeros(len(keys))
    kept = BF16 * model.hidden * toks.sharded  # the input alone: full recompute
    if not kind.recomputed:
        kept = layer_bytes(model, model.kinds[kind.layer], recipe, keys, toks)
    if kind.role == "mtp":
        # two normed inputs, their concatenation and the logits of the extra prediction
        kept = kept + 6 * BF16 * model.hidden * toks.sharded + head_bytes(model, keys, toks)
    return kept


def layer_bytes(model: Model, layer: Layer, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    """Bytes kept by one decoder layer, with the key's selective recompute. [Q]"""
    kept = np.zeros(len(keys))
    norm = _norm_bytes(model, recipe, keys, toks)
    if layer.mixer is not None:
        kept = kept + norm + mixer_bytes(layer.mixer, recipe, keys, toks)
    if layer.ffn is not None:
        kept = kept + norm + ffn_bytes(model, layer.ffn, recipe, keys, toks)
    extra_norms = layer.norms - (layer.mixer is not None) - (layer.ffn is not None)
    return kept + max(extra_norms, 0) * BF16 * model.hidden * toks.sharded


def _norm_bytes(model: Model, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    """Input of a norm, and its output as the input of the next GEMM."""
    output = np.where(keys.recomputes("layernorm"), 0.0, recipe.saved_input)
    return (BF16 + output) * model.hidden * toks.sharded


def mixer_bytes(mixer: Mixer, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    """Bytes kept by the token mixer, beyond the norm before it. [Q]"""
    match mixer:
        case Attention():
            return _attention(mixer, recipe, keys, toks)
        case Mla():
            return _mla(mixer, recipe, keys, toks)
        case LinearAttention():
            width = mixer.k_heads * mixer.k_dim * 2 + mixer.v_heads * mixer.v_dim
            gate = mixer.v_heads * (mixer.v_dim + 2)
            out = mixer.v_heads * mixer.v_dim
            per_token = BF16 * (2 * width + gate + out) + recipe.saved_input * out
            return per_token * toks.full / keys.tp
        case Mamba2():
            inner = mixer.heads * mixer.head_dim
            conv = inner + 2 * mixer.groups * mixer.state
            per_token = BF16 * (inner + 2 * conv + mixer.heads + inner) + recipe.saved_input * inner
            return per_token * toks.full / keys.tp


def _core(q: Floats, k: Floats, v: Floats, out: Floats, heads: Floats, recipe: Recipe, keys: Keys) -> Floats:
    """q, k, v, output and log-sum-exp of fused attention; the output is also the projection's input."""
    drop = keys.recomputes("core_attn")
    own_copy = np.where(drop | ~np.asarray(recipe.quantised), 0.0, BF16 * out)
    projection_input = recipe.saved_input * out
    return BF16 * (q + k + v) + projection_input + own_copy + np.where(drop, 0.0, FP32 * heads)


def _attention(a: Attention, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    value_dim = a.v_head_dim or a.head_dim
    kv_heads = np.maximum(a.kv_heads / keys.tp, 1.0) * (not a.shares_kv)
    heads = a.heads / keys.tp
    q = heads * a.head_dim
    kept = _core(q, kv_heads * a.head_dim, kv_heads * value_dim, heads * value_dim, heads, recipe, keys)
    if a.output_gate:
        kept = kept + BF16 * 2 * heads * value_dim
    if a.qk_norm is not None:
        kept = kept + BF16 * (q + kv_heads * a.head_dim)
    return kept * toks.full


def _mla(a: Mla, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    heads = a.heads / keys.tp
    qk = heads * (a.qk_nope + a.qk_rope)
    out = heads * a.v_head
    core = _core(qk, qk, out, out, heads, recipe, keys)
    up_outputs = np.where(keys.recomputes("mla_up_proj"), BF16 * (2 * qk + out), 0.0)
    latent = (a.q_lora or 0) + a.kv_lora
    compressed = (BF16 + recipe.saved_input) * latent + BF16 * a.qk_rope
    return (core - up_outputs) * toks.full + compressed * toks.sharded


def ffn_bytes(model: Model, ffn: Ffn, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    """Bytes kept by the feed-forward part, beyond the norm before it. [Q]"""
    match ffn:
        case Mlp():
            kept = _mlp(ffn.ffn, ffn.gated, recipe) * toks.full / keys.tp
            return np.where(keys.recomputes("mlp"), 0.0, kept)
        case Moe():
            return np.where(keys.recomputes("moe"), 0.0, _moe(model, ffn, recipe, keys, toks))


def _mlp(width: int, gated: bool, recipe: Recipe) -> float:
    return (BF16 * (2 if gated else 1) + recipe.saved_input) * width


def _moe(model: Model, moe: Moe, recipe: Recipe, keys: Keys, toks: Tokens) -> Floats:
    space = moe.latent or model.hidden
    routed = moe.top_k * toks.sharded * keys.number(lambda e: e.capacity_factor or 1.0)
    permuted = recipe.saved_input * space * keys.etp
    second_copy = np.where(keys.flag(lambda e: e.dispatcher in ("alltoall", "allgather")), BF16 * space, 0.0)
    up = BF16 * (2 if moe.gated else 1) * moe.ffn
    down = np.where(keys.recomputes("moe_act"), 0.0, recipe.saved_input * moe.ffn)
    router = 2 * FP32 * moe.experts * toks.sharded
    dense = moe.shared_ffn * (~keys.recomputes("shared_experts")) + moe.parallel_ffn
    shared = _mlp(1, moe.gated, recipe) * dense * toks.full / keys.tp
    latent = (BF16 + recipe.saved_input) * (moe.latent or 0) * toks.sharded
    return routed * (permuted + second_copy + up + down) + router + shared + latent


def head_bytes(model: Model, keys: Keys, toks: Tokens) -> Floats:
    """Final norm, and logits kept by the cross entropy: bf16 where fused, fp32 as well where not. [Q]"""
    vocab = padded_vocab(model.vocab_size, keys.tp) / keys.tp
    fused: Bools = keys.flag(lambda e: e.cross_entropy_fusion)
    logits = np.where(fused, BF16, BF16 + FP32) * vocab * toks.full
    return 2 * BF16 * model.hidden * toks.sharded + logits


def transient_bytes(model: Model, job: Job, keys: Keys) -> Floats:
    """Largest short-lived buffer of one block: gradient of logits, or of a layer being recomputed. [Q, K]"""
    toks = tokens(job, keys)
    vocab = padded_vocab(model.vocab_size, keys.tp) / keys.tp
    columns = []
    fused = keys.flag(lambda e: e.cross_entropy_fusion)
    for kind in describe_kinds(model):
        if kind.role in ("head", "mtp"):
            columns.append(np.where(fused, BF16, FP32) * vocab * toks.full)
        elif kind.layer is None:
            columns.append(np.zeros(len(keys)))
        else:
            columns.append(_widest(model, model.kinds[kind.layer], keys, toks))
    return np.stack(columns, axis=1)


def _widest(model: Model, layer: Layer, keys: Keys, toks: Tokens) -> Floats:
    """Gradients alive while the feed-forward part runs backward: its widest tensor and its input."""
    gathered = BF16 * model.hidden * toks.full
    match layer.ffn:
        case Mlp():
            return gathered + BF16 * 2 * layer.ffn.ffn * toks.full / keys.tp
        case Moe():
            return gathered + BF16 * layer.ffn.top_k * (model.hidden + 2 * layer.ffn.ffn) * toks.sharded
        case None:
            return gathered * 2
