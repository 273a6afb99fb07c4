"""Activations of feed-forward parts: dense MLP and mixture of experts.

Source: megatron/core/transformer/mlp.py and moe/ (experts.py, token_dispatcher.py, moe_utils.py, router.py):
the probabilities are applied inside the experts' activation, so that tokens are kept once, as the permuted
input of the first grouped GEMM; all-to-all and unpermute keep indices only.
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.attention_memory import Part
from meshwright.cost.sizes import BF16, BOOL, FP32, Sizes
from meshwright.layout.table import Bools, Floats
from meshwright.model.spec import Ffn, Mlp, Moe


def ffn_part(x: Sizes, ffn: Ffn) -> Part:
    """A feed-forward part, without the norm before it."""
    match ffn:
        case Mlp():
            plain = mlp_part(x, ffn.ffn, gated=ffn.gated)
            return _recomputed(plain, x.keys.recomputes("mlp"))
        case Moe():
            return _recomputed(_moe(x, ffn), x.keys.recomputes("moe"))


def _recomputed(plain: Part, where: Bools) -> Part:
    """The part where its inside is computed again: nothing is kept, all of it is needed at once."""
    return Part(
        kept=np.where(where, 0.0, plain.kept),
        working=plain.working + np.where(where, plain.kept, 0.0),
        hosted=np.where(where, 0.0, plain.hosted),
    )


def mlp_part(x: Sizes, ffn: float, *, gated: bool) -> Part:
    """fc1's output (the activation's input) and the activation's output (fc2's input).

    Backward peaks: fc2's gradient beside all that is kept, the activation's two gradients, or fc1's.
    """
    width = ffn / x.keys.tp
    before, after = BF16 * (2 if gated else 1) * width * x.full, x.saved * width * x.full
    unfused = BF16 * width * x.full * np.where(x.keys.flag(lambda e: not e.activation_fusion), gated, 0)
    hidden = x.model.hidden
    incoming = BF16 * hidden * x.sharded
    wgrad = BF16 * hidden * width * x.own_wgrad
    grad_after = BF16 * width * x.full
    second = incoming + BF16 * hidden * x.gathered + grad_after + wgrad
    activation = incoming + grad_after + before - after
    first = incoming + BF16 * hidden * (x.gathered + x.full) + wgrad * (2 if gated else 1) - after - unfused
    return Part(kept=before + after + unfused, working=np.maximum(np.maximum(second, activation), first))


def routed_tokens(x: Sizes, moe: Moe) -> Floats:
    """Rows that a rank's experts keep: each token top_k times, shared evenly times the imbalance. [Q]

    Static buffers (a rank capacity) are kept whole; a paged stash packs the rows that came into pages.
    """
    return moe.top_k * x.sharded * _load(x) * x.keys.etp


def _load(x: Sizes) -> Floats:
    capacity, stash = (x.keys.number(lambda e, name=name: getattr(e, name) or 0.0) for name in _BUFFERS)  # type: ignore[misc]
    load = np.where(capacity > 0, capacity, x.keys.expert_load())
    return np.asarray(np.where(stash > 0, stash, load))


_BUFFERS = ("rank_capacity", "paged_stash")


def _unpacked(x: Sizes, kept: Floats) -> Floats:
    """What a layer's experts hold beyond their pages while they run: buffers for the whole capacity. [Q]"""
    capacity = x.keys.number(lambda e: e.rank_capacity or 0.0 if e.paged_stash else 0.0)
    return np.where(capacity > 0, kept * np.maximum(capacity / _load(x), 1.0), 0.0)


def _router(moe: Moe) -> float:
    """Scores and routing map, bytes a token; sigmoid scores with a balancing bias are kept more often.

    As Megatron Core 0.16 saves them for softmax and for sigmoid scores.
    """
    scores = 3 * FP32 + BOOL if moe.expert_bias else FP32 + 2 * BOOL
    return scores * moe.experts + (2 * FP32 + 3 * FP32) * moe.top_k


def router_part(x: Sizes, moe: Moe) -> Part:
    """Scores and routing map of a rank's tokens, as CUDA graphs over the router hold them."""
    return Part(kept=_router(moe) * x.sharded, working=x.zeros)


def _clamped(moe: Moe, half: Floats, apart: Bools) -> Floats:
    """What a clamped activation keeps more, in halves of fc1's output. [Q]

    Before the fused kernel a clamped copy of fc1's output; without it both clamped halves, and the linear
    one once more with its offset. Source: megatron/core/fusions/fused_bias_geglu.py,
    weighted_bias_quick_geglu_impl; transformer/moe/experts.py, bias_act_func.
    """
    return np.where(apart, 3.0, 2.0) * half * moe.clamped


def _shared(x: Sizes, moe: Moe) -> Part:
    """Shared experts; their gate keeps its score and what it multiplies (moe/shared_experts.py, forward)."""
    plain = mlp_part(x, moe.shared_ffn, gated=moe.gated)
    gate = BF16 * (x.model.hidden + 1) * x.sharded * moe.shared_gate
    return Part(kept=plain.kept + gate, working=plain.working)


def _moe(x: Sizes, moe: Moe) -> Part:
    space = moe.latent or x.model.hidden
    rows = routed_tokens(x, moe)
    width = moe.ffn / x.keys.etp
    before = BF16 * (2 if moe.gated else 1) * width * rows
    # an activation that is no fused kernel keeps what it makes before the probabilities are applied
    half = BF16 * width * rows
    apart = x.keys.flag(lambda e: not e.activation_fusion) | (not moe.gated)
    unfused = np.where(apart, half * (2 if moe.gated else 1), 0.0) + _clamped(moe, half, apart)
    after = x.saved * width * rows
    act = x.keys.recomputes("moe_act")
    permuted = x.saved * space * rows
    router = _router(moe) * x.sharded
    shared = _recomputed(_shared(x, moe), x.keys.recomputes("shared_experts"))
    parallel = mlp_part(x, moe.parallel_ffn, gated=moe.gated)
    latent = (BF16 + x.saved) * (moe.latent or 0) * x.sharded
    experts = before + np.where(act, 0.0, after + unfused)
    again = np.where(act, after + unfused, 0.0)
    grad_rows, grad_after = BF16 * space * rows, BF16 * width * rows
    incoming = BF16 * x.model.hidden * x.sharded
    exchange = incoming + 2 * grad_rows
    second = incoming + grad_rows + grad_after + again
    activation = incoming + grad_after + before - np.where(act, 0.0, after)
    working = np.maximum(np.maximum(exchange, second), activation) + _unpacked(x, permuted + experts)
    part = Part(kept=permuted + experts + router + shared.kept + parallel.kept + latent, working=working)
    offloaded = part.offload(permuted, x.keys.offloads("expert_fc1"))
    return offloaded.offload(before, x.keys.offloads("moe_act"))
