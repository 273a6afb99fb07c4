"""Token mixers: attention with its context-parallel traffic, latent attention, linear recurrences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshwright.cost.machine import Machine, Operation
from meshwright.job.spec import Job
from meshwright.layout.table import Floats
from meshwright.model.spec import Attention, Layer, LinearAttention, Mamba2, Mla


def mixer_operations(x: Machine, layer: Layer) -> Iterator[Operation]:
    """Everything of a mixer but its linear layers and the tensor-parallel traffic around it."""
    match layer.mixer:
        case Attention():
            yield from _attention(x, layer.mixer)
        case Mla():
            yield from _mla(x, layer.mixer)
        case LinearAttention():
            yield from _linear_attention(x, layer.mixer)
        case Mamba2():
            yield from _mamba2(x, layer.mixer)


def _attention(x: Machine, a: Attention) -> Iterator[Operation]:
    """Rotary embedding and the layout of q, k, v: 8 bytes an element each way; q and k norms too."""
    width = (a.heads + max(a.kv_heads, 1)) * a.head_dim
    passes = 1.0 + (a.qk_norm is not None) + 0.5 * a.output_gate
    moved = 8.0 * width * passes * x.tok.full / x.keys.tp
    yield x.memory(moved, moved, launches=2.0 * passes)
    dims = (a.head_dim + (a.v_head_dim or a.head_dim)) / 2
    kv = a.kv_heads * 2 * dims
    yield from _core(x, a.heads, dims, a.head_dim, a.window, kv)


def _mla(x: Machine, a: Mla) -> Iterator[Operation]:
    qk = a.qk_nope + a.qk_rope
    moved = 6.0 * a.heads * (2 * qk + a.v_head) * x.tok.full / x.keys.tp
    yield x.memory(moved, moved, launches=4, modules=("mla_up_proj",))
    window = a.indexer.top_k if a.indexer else None
    kv = float(a.heads * (qk + a.v_head))
    yield from _core(x, a.heads, (qk + a.v_head) / 2, qk, window, kv, mla=True)


def _linear_attention(x: Machine, a: LinearAttention) -> Iterator[Operation]:
    """Short convolutions, gates and norms by bytes; the chunked recurrence by its products."""
    width = (2 * a.k_heads * a.k_dim + 3 * a.v_heads * a.v_dim) * x.tok.full / x.keys.tp
    yield x.memory(12.0 * width, 24.0 * width, launches=8)
    yield _scan(x, 4.0 * a.v_heads * a.v_dim * (a.k_dim + 64) * x.tok.full / x.keys.tp, 1.0)


def _mamba2(x: Machine, a: Mamba2) -> Iterator[Operation]:
    inner = a.heads * a.head_dim
    width = (3 * inner + 2 * a.groups * a.state) * x.tok.full / x.keys.tp
    yield x.memory(12.0 * width, 24.0 * width, launches=6)
    rate = x.kernels.table["scan"]["mamba2_rate"]
    yield _scan(x, 6.0 * inner * a.state * x.tok.full / x.keys.tp, rate)


def _scan(x: Machine, flops: Floats, speed: float) -> Operation:
    """A chunked linear recurrence at the measured rate of such kernels."""
    forward = flops / (x.kernels.scan_rate() * speed) * x.factor("scan")
    return Operation(
        term="attention", forward=forward, backward=x.kernels.table["scan"]["backward"] * forward
    )


def _core(
    x: Machine,
    heads: int,
    dims: float,
    qk_dim: int,
    window: int | None,
    kv_width: float,
    *,
    mla: bool = False,
) -> Iterator[Operation]:
    """Causal attention: 4*heads*dims*keys FLOPs a token over half the keys, or over the window."""
    form, job = x.kernels.table["attention"], x.question.job
    seq = float(job.seq_length)
    attended = attended_keys(job, window)
    flops = 4.0 * heads * dims * attended * x.tok.full / x.keys.tp
    length = np.full(len(x.keys), 2.0 * attended) / np.sqrt(x.keys.cp)
    rate = x.kernels.attention_rate(qk_dim, length, mla=mla)
    forward = flops / rate * x.factor("attention")
    backward = flops * form["backward_flops"] / (rate * x.kernels.backward_rate()) * x.factor("attention")
    flash = x.keys.flag(lambda e: e.attention_backend == "flash")
    shares = x.kernels.flash2_share()
    forward, backward = (
        np.where(flash, seconds / share, seconds)
        for seconds, share in zip((forward, backward), shares, strict=True)
    )
    forward, backward = _unfused(x, heads, dims, seq, forward, backward)
    yield Operation(term="attention", forward=forward, backward=backward, modules=("core_attn",))
    if (x.keys.cp > 1).any():
        yield context_parallel(x, kv_width, heads * dims, forward, backward)
        yield _ring_sums(x, kv_width, heads * dims)


def attended_keys(job: Job, window: int | None = None) -> float:
    """Keys that a token sees on average under a causal mask: half its sample, or its window.

    >>> attended_keys(Job(seq_length=4096, global_batch=1, packing=((1024, 1.0), (2048, 1.0))))
    768.0
    """
    samples = job.packing or ((job.seq_length, 1.0),)
    return sum(share * _seen(float(length), window) for length, share in samples)


def _seen(length: float, window: int | None) -> float:
    return length / 2 if window is None or window >= length else window * (1 - window / (2 * length))


def _unfused(
    x: Machine, heads: int, dims: float, seq: float, forward: Floats, backward: Floats
) -> tuple[Floats, Floats]:
    """Unfused attention multiplies the whole square of scores, writes it out and reads it back.

    Two batched GEMMs forward and four backward at `unfused_share` of the peak, and the passes over the
    scores that scale, mask, softmax and dropout take.
    """
    plain = x.keys.flag(lambda e: e.attention_backend == "unfused" or e.transformer_impl == "local")
    if not plain.any():
        return forward, backward
    gpu, form = x.question.cluster.gpu, x.kernels.table["attention"]
    scores = heads * seq * x.tok.full / x.keys.tp
    width = form["unfused_bytes"]
    dropout = width["dropout"] if x.question.job.attention_dropout > 0 else 0.0
    byte = x.factor("memory_bound") / (gpu.hbm * x.kernels.table["memory_bound"]["efficiency"])
    products = 4.0 * dims * scores / (form["unfused_share"] * gpu.peak["bf16"])
    there = products + (width["forward"] + dropout) * byte * scores
    back = 2.0 * products + (width["backward"] + dropout) * byte * scores
    return np.where(plain, there, forward), np.where(plain, back, backward)


def _ring_sums(x: Machine, kv_width: float, q_width: float) -> Operation:
    """Adding up the partial results of the ring's steps, in memory-bound kernels.

    Forward each step's output (2 bytes) is rescaled into an fp32 sum (read and written), which is cast at
    the end; backward the gradients of queries, keys and values are added in bf16. A step after the first
    sees all queries or half of them: three quarters on average.
    Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py
    """
    keys = x.keys
    share = np.select(
        [keys.flag(lambda e: e.cp_comm == "p2p"), keys.flag(lambda e: e.cp_comm == "a2a+p2p")],
        [1.0, 0.5],
        default=0.0,
    ) * (keys.cp > 1)
    steps = 1.0 + 0.75 * (np.asarray(keys.cp, dtype=float) - 1)
    queries, others = (width * x.tok.full / keys.tp for width in (q_width, kv_width))
    return x.memory(
        share * (10.0 * steps + 6.0) * queries,
        share * 6.0 * steps * (queries + others),
        launches=share * 3.0 * steps,
        modules=("core_attn",),
    )


def context_parallel(
    x: Machine, kv_width: float, q_width: float, forward: Floats, backward: Floats
) -> Operation:
    """Keys and values around the ring (p2p), or heads against sequence by all-to-all (a2a).

    p2p: (cp-1)/cp of all keys and values pass every rank forward, twice that backward, beside the
    attention of the step before. a2a: q, k, v, o change hands once each way, and nothing hides it.
    allgather: keys and values gathered at once, gradients scattered.
    """
    form, keys = x.network.table["overlap"]["cp"], x.keys
    cp = np.asarray(keys.cp, dtype=float)
    whole = 2.0 * np.maximum(kv_width / keys.tp, 1) * x.tok.full * cp
    gathered = x.network.gather(x.cp, whole)
    ring = gathered + (cp - 2).clip(0) * x.network.latency(x.cp)
    hide, floor = form["hidden"], form["floor"]
    ring_forward = np.maximum(floor * ring, ring - hide * forward)
    ring_backward = np.maximum(floor * 2 * ring, 2 * ring - hide * backward)
    moved = 2.0 * (2 * q_width + kv_width) * x.tok.full / keys.tp
    near = moved * (x.cp.inside - 1) / cp
    swap = 2 * x.network.alltoall(x.cp, near, moved * (cp - x.cp.inside) / cp)
    choice = [keys.flag(lambda e, kind=kind: e.cp_comm == kind) for kind in ("a2a", "a2a+p2p", "allgather")]  # type: ignore[misc]
    several = cp > 1
    pick_forward = np.select(choice, [swap, (swap + ring_forward) / 2, gathered], default=ring_forward)
    pick_backward = np.select(choice, [swap, (swap + ring_backward) / 2, 2 * gathered], default=ring_backward)
    factor = x.factor("cp")
    return Operation(
        term="cp",
        forward=np.where(several, pick_forward, 0.0) * factor,
        backward=np.where(several, pick_backward, 0.0) * factor,
        modules=("core_attn",),
    )
