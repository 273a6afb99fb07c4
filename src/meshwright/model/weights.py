"""Every weight of a model, with its shape and the way Megatron Core divides it.

This list is the one source of parameter totals, parameters per rank, weight bytes and GEMM shapes.
A linear map y = x Wᵀ has shape (n, k): n outputs, k inputs. `split` says which side tensor
parallelism divides: "n" (column parallel), "k" (row parallel) or None (whole on every rank).

Source: megatron/core/transformer (attention.py, multi_latent_attention.py, mlp.py, moe/), with the
Transformer Engine layer spec, in which MLA's down projections are duplicated on every TP rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, overload

from meshwright.model.spec import (
    Attention,
    Compressor,
    Ffn,
    Indexer,
    Layer,
    LinearAttention,
    Mamba2,
    Mixer,
    Mla,
    Mlp,
    Model,
    Moe,
    Normalization,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Part = Literal["attn", "linear", "mamba", "mlp", "moe", "norm", "embedding", "head", "mtp", "vision", "other"]
Grid = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight (or `copies` equal ones: routed experts)."""

    name: str
    shape: tuple[int, ...]
    """(n, k) of a linear map, or the plain shape of a vector."""
    part: Part
    split: Literal["n", "k"] | None = None
    grid: Grid = "dense"
    """dense: divided by TP; expert: copies divided by EP, each divided by ETP."""
    copies: int = 1
    active: int = 1
    """How many of the copies one token uses."""
    gemm: bool = False
    """It is multiplied with every token's activations."""
    trained: bool = True
    """False for buffers that a checkpoint holds and the optimizer does not (expert bias)."""

    @property
    def count(self) -> int:
        """Elements of all copies."""
        return math.prod(self.shape) * self.copies

    @property
    def active_count(self) -> int:
        """Elements that work on one token."""
        return math.prod(self.shape) * self.active


def norm_elements(normalization: Normalization, width: int) -> int:
    """Parameters of one norm over `width` elements."""
    return {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}[normalization] * width


@overload
def padded_vocab(vocab: int, tp: int, divisible_by: int = 128) -> int: ...
@overload
def padded_vocab(vocab: int, tp: NDArray[np.int64], divisible_by: int = 128) -> NDArray[np.int64]: ...
def padded_vocab(vocab: int, tp: int | NDArray[np.int64], divisible_by: int = 128) -> int | NDArray[np.int64]:
    """Rows of the embedding as it is built: the next multiple of `divisible_by` * `tp`.

    Source: megatron/training, `make_vocab_size_divisible_by` (128 unless said otherwise).

    >>> padded_vocab(50257, tp=8)
    51200
    """
    step = divisible_by * tp
    return -(-vocab // step) * step


def layer_weights(model: Model, layer: Layer) -> tuple[Weight, ...]:
    """All weights of one decoder layer of this kind, in the order of the forward pass."""
    return tuple(_layer(model, layer))


def embedding_weights(model: Model, vocab: int | None = None) -> tuple[Weight, ...]:
    """Token embedding, learned positions and embedding norm; `vocab` overrides the number of rows."""
    rows = model.vocab_size if vocab is None else vocab
    found = [Weight(name="word_embeddings", shape=(rows, model.hidden), part="embedding", split="n")]
    if model.learned_positions:
        positions = (model.learned_positions, model.hidden)
        found.append(Weight(name="position_embeddings", shape=positions, part="embedding"))
    if model.embedding_norm:
        found += _norm("embedding_norm", model.normalization, model.hidden, part="embedding")
    return tuple(found)


def head_weights(model: Model, vocab: int | None = None) -> tuple[Weight, ...]:
    """Final norm and output projection; a tied projection is the embedding and is not listed again.

    Under pipeline parallelism the last stage holds its own copy of a tied embedding; whoever counts
    bytes a stage adds it there.
    """
    rows = model.vocab_size if vocab is None else vocab
    found = _norm("final_norm", model.normalization, model.hidden) if model.final_norm else []
    if not model.tied:
        found.append(_gemm("output_layer", rows, model.hidden, "head", "n"))
    if model.head_bias:
        found.append(Weight(name="output_layer.bias", shape=(rows,), part="head", split="n"))
    if model.other_parameters:
        found.append(Weight(name="other", shape=(model.other_parameters,), part="other"))
    return tuple(found)


def mtp_weights(model: Model, index: int) -> tuple[Weight, ...]:
    """One whole multi-token-prediction module; it shares embedding and output projection with the model.

    Source: megatron/core/transformer/multi_token_prediction.py (enorm, hnorm, eh_proj, layer, final norm).
    """
    h, norm = model.hidden, model.normalization
    return (
        *_norm("mtp.enorm", norm, h),
        *_norm("mtp.hnorm", norm, h),
        _gemm("mtp.eh_proj", h, 2 * h, "mtp", "n"),
        *_layer(model, model.kinds[model.mtp[index]]),
        *_norm("mtp.final_norm", norm, h),
    )


def vision_weights(model: Model) -> tuple[Weight, ...]:
    """Tower and projector of a multimodal model; `copies` counts the tower's layers.

    What the four matrices of a tower layer do not account for (patch embedding, positions, norms,
    biases) is one replicated entry, so that the total is the one the model states.
    """
    vision = model.vision
    if vision is None:
        return ()
    h, fc1 = vision.hidden, vision.ffn * (2 if vision.gated else 1)
    matrices: tuple[tuple[str, int, int, Literal["n", "k"]], ...] = (
        ("vision.qkv", 3 * h, h, "n"),
        ("vision.proj", h, h, "k"),
        ("vision.fc1", fc1, h, "n"),
        ("vision.fc2", h, vision.ffn, "k"),
    )
    trained = not vision.frozen
    found = [
        Weight(
            name=name, shape=(n, k), part="vision", split=split, gemm=True,
            copies=vision.layers, active=vision.layers, trained=trained,
        )
        for name, n, k, split in matrices
    ]  # fmt: skip
    rest = vision.parameters - sum(weight.count for weight in found) - vision.projector_parameters
    for name, size in (("vision.projector", vision.projector_parameters), ("vision.other", rest)):
        if size > 0:
            found.append(Weight(name=name, shape=(size,), part="vision", trained=trained))
    return tuple(found)


def _gemm(name: str, n: int, k: int, part: Part, split: Literal["n", "k"] | None) -> Weight:
    return Weight(name=name, shape=(n, k), part=part, split=split, gemm=True)


def _vector(name: str, size: int, part: Part, split: Literal["n"] | None = None) -> Weight:
    return Weight(name=name, shape=(size,), part=part, split=split)


def _norm(
    name: str, normalization: Normalization, width: int, part: Part = "norm", copies: int = 1
) -> list[Weight]:
    elements = norm_elements(normalization, width)
    if not elements or not copies:
        return []
    return [Weight(name=name, shape=(elements,), part=part, copies=copies, active=copies)]


def _layer(model: Model, layer: Layer) -> Iterator[Weight]:
    yield from _norm("layer_norms", model.normalization, model.hidden, copies=layer.norms)
    if layer.scales:
        yield _vector("scales", layer.scales, "norm")
    if layer.mixer is not None:
        yield from _mixer(model, layer.mixer)
    if layer.ffn is not None:
        yield from _ffn(model, layer.ffn)
    if layer.other_parameters:
        yield _vector("other", layer.other_parameters, "other")


def _mixer(model: Model, mixer: Mixer) -> Iterator[Weight]:
    if isinstance(mixer, Attention):
        return _attention(model, mixer)
    if isinstance(mixer, Mla):
        return _mla(model, mixer)
    if isinstance(mixer, LinearAttention):
        return _linear_attention(model, mixer)
    return _mamba2(model, mixer)


def _attention(model: Model, a: Attention) -> Iterator[Weight]:
    """Source: megatron/core/transformer/attention.py, SelfAttention (one fused linear_qkv)."""
    h, v_head = model.hidden, a.v_head_dim or a.head_dim
    query, key, value = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * v_head
    if a.k_is_v:
        value = 0
    if a.shares_kv:
        key = value = 0
    gate = a.heads * v_head if a.output_gate else 0
    if a.q_rank is not None:
        yield _gemm("linear_q_down", a.q_rank, h, "attn", None)
        yield from _norm("q_down_norm", "rms", a.q_rank, part="attn")
        yield _gemm("linear_q_up", query, a.q_rank, "attn", "n")
        query = 0
    fused = query + key + value + gate
    yield _gemm("linear_qkv", fused, h, "attn", "n")
    if a.qkv_bias:
        yield _vector("linear_qkv.bias", fused, "attn", "n")
    if a.qk_norm == "head":
        copies = 1 if a.shares_kv else 2
        yield from _norm("qk_norm", model.normalization, a.head_dim, part="attn", copies=copies)
    elif a.qk_norm == "full":
        width = a.heads * a.head_dim + key
        yield _vector("qk_norm", norm_elements(model.normalization, width), "attn", "n")
    if a.head_gate:
        yield _gemm("head_gate", a.heads, h, "attn", "n")
    if a.sinks:
        yield _vector("softmax_offset", a.heads, "attn", "n")
    if a.compressor is not None:
        yield from _compressor(model, a.compressor, a)
    out = a.heads * v_head
    if a.o_rank:
        yield _gemm("linear_proj_down", a.o_groups * a.o_rank, out // a.o_groups, "attn", "n")
        out = a.o_groups * a.o_rank
    yield _gemm("linear_proj", h, out, "attn", "k")
    if a.out_bias:
        yield _vector("linear_proj.bias", h, "attn")
    if a.other_parameters:
        yield _vector("attention.other", a.other_parameters, "attn")


def _compressor(model: Model, c: Compressor, a: Attention) -> Iterator[Weight]:
    """Source: transformers deepseek_v4 (pooled keys with a position bias; its indexer pools as well)."""
    yield from _pool(model, "compressor", c.width, c.ratio, a.head_dim)
    if c.indexer is not None:
        x, overlap = c.indexer, c.width // a.head_dim
        yield from _pool(model, "indexer", overlap * x.head_dim, c.ratio, x.head_dim)
        yield _gemm("indexer.linear_wq_b", x.heads * x.head_dim, a.q_rank or model.hidden, "attn", None)
        yield _gemm("indexer.linear_weights_proj", x.heads, model.hidden, "attn", None)


def _pool(model: Model, name: str, width: int, ratio: int, head_dim: int) -> Iterator[Weight]:
    yield _gemm(f"{name}.kv_proj", width, model.hidden, "attn", None)
    yield _gemm(f"{name}.gate_proj", width, model.hidden, "attn", None)
    yield Weight(name=f"{name}.position_bias", shape=(ratio, width), part="attn")
    yield from _norm(f"{name}.kv_norm", "rms", head_dim, part="attn")


def _mla(model: Model, m: Mla) -> Iterator[Weight]:
    """Source: megatron/core/transformer/multi_latent_attention.py with Transformer Engine linears."""
    h, qk_head = model.hidden, m.qk_nope + m.qk_rope
    if m.q_lora is None:
        yield _gemm("linear_q_proj", m.heads * qk_head, h, "attn", "n")
    else:
        yield _gemm("linear_q_down_proj", m.q_lora, h, "attn", None)
        yield from _norm("q_layernorm", model.normalization, m.q_lora, part="attn")
        yield _gemm("linear_q_up_proj", m.heads * qk_head, m.q_lora, "attn", "n")
    yield _gemm("linear_kv_down_proj", m.kv_lora + m.qk_rope, h, "attn", None)
    yield from _norm("kv_layernorm", model.normalization, m.kv_lora, part="attn")
    yield _gemm("linear_kv_up_proj", m.heads * (m.qk_nope + m.v_head), m.kv_lora, "attn", "n")
    if m.indexer is not None:
        yield from _indexer(model, m.indexer, m.q_lora or h)
    yield _gemm("linear_proj", h, m.heads * m.v_head, "attn", "k")
    if m.other_parameters:
        yield _vector("attention.other", m.other_parameters, "attn")


def _indexer(model: Model, x: Indexer, q_width: int) -> Iterator[Weight]:
    """Source: megatron/core/transformer/experimental_attention_variant/dsa.py (whole on every TP rank)."""
    yield _gemm("indexer.linear_wq_b", x.heads * x.head_dim, q_width, "attn", None)
    yield _gemm("indexer.linear_wk", x.head_dim, model.hidden, "attn", None)
    yield from _norm("indexer.k_norm", "layer", x.head_dim, part="attn")
    yield _gemm("indexer.linear_weights_proj", x.heads, model.hidden, "attn", None)


def _linear_attention(model: Model, a: LinearAttention) -> Iterator[Weight]:
    """Source: megatron/core/ssm/gated_delta_net.py for gdn; the published modules for kda and lightning."""
    h, key, value = model.hidden, a.k_heads * a.k_dim, a.v_heads * a.v_dim
    if a.kind == "gdn":
        yield _gemm("in_proj", 2 * key + 2 * value + 2 * a.v_heads, h, "linear", "n")
        yield _vector("dt_bias", a.v_heads, "linear", "n")
        yield _vector("A_log", a.v_heads, "linear", "n")
        yield from _norm("out_norm", "rms", a.v_dim, part="linear")
    elif a.kind == "kda":
        yield _gemm("in_proj", 2 * key + value + a.v_heads, h, "linear", "n")
        yield _gemm("decay_down", a.v_dim, h, "linear", None)
        yield _gemm("decay_up", key, a.v_dim, "linear", "n")
        yield _vector("dt_bias", key, "linear", "n")
        yield _vector("A_log", a.v_heads, "linear", "n")
        yield _gemm("gate_down", a.v_dim, h, "linear", None)
        yield _gemm("gate_up", value, a.v_dim, "linear", "n")
        yield from _norm("out_norm", "rms", a.v_dim, part="linear")
    else:
        yield _gemm("in_proj", 2 * key + 2 * value, h, "linear", "n")
        yield _vector("out_norm", value, "linear", "n")
    if a.conv:
        yield Weight(name="conv1d", shape=(2 * key + value, a.conv), part="linear", split="n")
    yield _gemm("out_proj", h, value, "linear", "k")
    if a.other_parameters:
        yield _vector("linear_attention.other", a.other_parameters, "linear")


def _mamba2(model: Model, m: Mamba2) -> Iterator[Weight]:
    """Source: megatron/core/ssm/mamba_mixer.py (gated norm over the local channels)."""
    inner, groups = m.heads * m.head_dim, m.groups * m.state
    yield _gemm("in_proj", 2 * inner + 2 * groups + m.heads, model.hidden, "mamba", "n")
    yield Weight(name="conv1d", shape=(inner + 2 * groups, m.conv), part="mamba", split="n")
    yield _vector("conv1d.bias", inner + 2 * groups, "mamba", "n")
    for name in ("dt_bias", "A_log", "D"):
        yield _vector(name, m.heads, "mamba", "n")
    yield _vector("norm", inner, "mamba", "n")
    yield _gemm("out_proj", model.hidden, inner, "mamba", "k")


def _ffn(model: Model, ffn: Ffn) -> Iterator[Weight]:
    if isinstance(ffn, Moe):
        return _moe(model, ffn)
    return _mlp(model.hidden, ffn, "mlp")


def _mlp(h: int, mlp: Mlp, part: Part, name: str = "") -> Iterator[Weight]:
    """Source: megatron/core/transformer/mlp.py (gate and up are one linear_fc1)."""
    fc1 = mlp.ffn * (2 if mlp.gated else 1)
    yield _gemm(f"{name}linear_fc1", fc1, h, part, "n")
    if mlp.bias:
        yield _vector(f"{name}linear_fc1.bias", fc1, part, "n")
    yield _gemm(f"{name}linear_fc2", h, mlp.ffn, part, "k")
    if mlp.bias:
        yield _vector(f"{name}linear_fc2.bias", h, part)


def _moe(model: Model, m: Moe) -> Iterator[Weight]:
    """Source: megatron/core/transformer/moe/ (router.py, experts.py, shared_experts.py, moe_layer.py)."""
    h = model.hidden
    yield _gemm("router", m.experts, h, "moe", None)
    if m.router_bias:
        yield _vector("router.bias", m.experts, "moe")
    if m.expert_bias:
        yield Weight(name="router.expert_bias", shape=(m.experts,), part="moe", trained=False)
    if m.latent is not None:
        yield _gemm("fc1_latent_proj", m.latent, h, "moe", None)
    yield from _experts(m.latent or h, m)
    if m.latent is not None:
        yield _gemm("fc2_latent_proj", h, m.latent, "moe", None)
    if m.shared_ffn:
        yield from _mlp(h, Mlp(ffn=m.shared_ffn, gated=m.gated), "moe", "shared_experts.")
    if m.shared_gate:
        yield _gemm("shared_experts.gate", 1, h, "moe", None)
    if m.parallel_ffn:
        yield from _mlp(h, Mlp(ffn=m.parallel_ffn, gated=m.gated), "mlp")
    if m.other_parameters:
        yield _vector("moe.other", m.other_parameters, "moe")


def _experts(width: int, m: Moe) -> Iterator[Weight]:
    for weight in _mlp(width, Mlp(ffn=m.ffn, gated=m.gated, bias=m.bias), "moe", "experts."):
        yield replace(weight, grid="expert", copies=m.experts, active=m.top_k)
