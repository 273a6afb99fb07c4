"""Floating-point operations of training, by the token.

The convention is that of Megatron Bridge (and of Megatron-LM's own throughput line): forward and
backward are three times the forward pass; a causal mask halves the attention core; of the experts the
chosen ones and the shared ones count; MTP modules and their logits count; embedding lookup, router,
norms of the residual stream, element-wise work and recomputation do not.

Source: megatron/training/training.py, num_floating_point_operations (megatron-core 0.19.0), and
megatron/bridge/training/utils/flop_utils.py (0.6.2) for sliding windows and DeepSeek-V4.
Differences: Mamba-2 layers count their real inner width, where Megatron assumes twice the hidden size
(Nemotron 3 Nano: 4,096 instead of 5,376); the vocabulary counts unpadded unless `vocab` says otherwise;
Kimi delta and lightning attention, which Megatron does not know, count their state as the delta net does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from meshwright.errors import QuestionError
from meshwright.model.spec import Attention, Layer, LinearAttention, Mamba2, Mla, Model
from meshwright.model.weights import Weight, layer_weights

FMA = 2
"""Operations of one multiply-add."""

FORWARD_AND_BACKWARD = 3
"""Forward, gradient of the input, gradient of the weight."""

UNCOUNTED = frozenset({"router", "shared_experts.gate", "head_gate"})
"""Matrices that the convention leaves out."""

COUNTED_NORMS = frozenset({"q_layernorm", "kv_layernorm", "q_down_norm"})
"""Norms of latent attention, which the convention counts like one more column."""

LINEAR_STATE_PRODUCTS: Mapping[str, int] = {"gdn": 4, "kda": 4, "lightning": 2}
"""Products with the state a token: decay-and-correct, write, read (delta rules); write, read (lightning)."""


def flops_per_token(model: Model, seq_length: int, causal: bool = True, *, vocab: int | None = None) -> float:
    """Forward and backward of one token in a sequence of `seq_length` [FLOP].

    causal  count half of the attention core, as the mask leaves it
    vocab   rows of the output projection, where padded

    >>> from meshwright.model.catalog import find
    >>> round(flops_per_token(find("llama-3-70b"), 8192) / 1e9, 1)
    449.2
    """
    return sum(flops_by_part(model, seq_length, causal, vocab=vocab).values())


def flops_by_part(
    model: Model, seq_length: int, causal: bool = True, *, vocab: int | None = None
) -> dict[str, float]:
    """The same by part: attn, linear, mamba, mlp, moe (matrices), core (attention scores and values,
    scans, states), head (logits), mtp (whole modules with their logits) [FLOP]."""
    if seq_length < 1:
        raise QuestionError(f"sequence length is {seq_length}; it must be a whole number of at least 1")
    parts: dict[str, float] = defaultdict(float)
    for index, kind in enumerate(model.kinds):
        for part, flops in _layer(model, kind, seq_length, causal).items():
            parts[part] += model.layers_of(index) * flops
    logits = model.hidden * (model.vocab_size if vocab is None else vocab)
    parts["head"] += logits
    for kind_index in model.mtp:
        layer = sum(_layer(model, model.kinds[kind_index], seq_length, causal).values())
        parts["mtp"] += layer + logits + 2 * model.hidden**2 + 3 * model.hidden
    return {part: FORWARD_AND_BACKWARD * FMA * macs for part, macs in parts.items() if macs}


def attended(attention: Attention, seq_length: int, causal: bool = True) -> float:
    """Keys that a query looks at, on average over the sequence.

    Full: s/2 (s without causal halving). Window W < s: W - W(W-1)/2s. DeepSeek-V4: its window, and the
    pooled keys: half of s/128, or the top-k of s/4.
    """
    s, window = seq_length, attention.window
    if attention.o_rank and window:
        return window + _pooled(attention, s)
    if window is not None and window < s:
        return window - window * (window - 1) / (2 * s) if causal else float(window)
    return s / 2 if causal else float(s)


def _pooled(attention: Attention, s: int) -> float:
    pool = attention.compressor
    if pool is None:
        return 0.0
    if pool.indexer is None:
        return (s // pool.ratio) / 2
    chosen = min(pool.indexer.top_k, s // pool.ratio)
    return chosen * (1 - chosen * pool.ratio / (2 * s))


def _layer(model: Model, layer: Layer, s: int, causal: bool) -> dict[str, float]:
    """Multiply-adds of the forward pass of one layer, a token, by part."""
    sparse_mla = isinstance(layer.mixer, Mla)
    parts = _matrices(layer_weights(model, layer), without_indexer=sparse_mla)
    parts["core"] += _core(layer, s, causal)
    return parts


def _matrices(weights: Iterable[Weight], *, without_indexer: bool) -> dict[str, float]:
    parts: dict[str, float] = defaultdict(float)
    for weight in weights:
        skipped = weight.name in UNCOUNTED or (without_indexer and weight.name.startswith("indexer."))
        if (weight.gemm and not skipped) or weight.name in COUNTED_NORMS:
            parts[weight.part] += weight.active_count
    return parts


def _core(layer: Layer, s: int, causal: bool) -> float:
    """Multiply-adds a token beside the matrices of a layer."""
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        width = mixer.head_dim + (mixer.v_head_dim or mixer.head_dim)
        return mixer.heads * width * attended(mixer, s, causal) + _index_scores(mixer, s)
    if isinstance(mixer, Mla):
        return mixer.heads * (mixer.qk_nope + mixer.qk_rope + mixer.v_head) * (s / 2 if causal else s)
    if isinstance(mixer, LinearAttention):
        key, value = mixer.k_heads * mixer.k_dim, mixer.v_heads * mixer.v_dim
        state = LINEAR_STATE_PRODUCTS[mixer.kind] * value * mixer.v_dim
        return mixer.conv * (2 * key + value) + state
    if isinstance(mixer, Mamba2):
        scan = 7  # operations a channel and state element: megatron's estimate of the selective scan
        return scan * mixer.heads * mixer.head_dim * mixer.state / FMA
    return 0.0


def _index_scores(attention: Attention, s: int) -> float:
    pool = attention.compressor
    if pool is None or pool.indexer is None:
        return 0.0
    return pool.indexer.heads * pool.indexer.head_dim * (s // pool.ratio)
