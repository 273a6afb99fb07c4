"""Mixture of experts: router, permutation, dispatch and combine, the experts' activation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshwright.cost.machine import Machine, Operation
from meshwright.cost.network import Group
from meshwright.layout.table import Floats
from meshwright.model.spec import Moe


def routed_tokens(x: Machine, moe: Moe) -> Floats:
    """Token copies that the fullest rank's experts take, a micro-batch: balanced, or by the flags. [Q]"""
    copies = moe.top_k * x.tok.sharded * x.keys.expert_load()
    return np.asarray(copies)


def moe_operations(x: Machine, moe: Moe) -> Iterator[Operation]:
    """Everything of a MoE feed-forward but its GEMMs and the shared expert's tensor-parallel traffic.

    Low-precision GEMMs need every expert's tokens padded: a copy in and a copy out, unless fused.
    Source: megatron/core/transformer/moe/experts.py, quantization_padding and quantization_unpadding.
    """
    space = moe.latent or x.model.hidden
    routed = routed_tokens(x, moe)
    router = 24.0 * moe.experts * x.tok.sharded
    yield x.memory(router, router, launches=16, modules=("moe",))
    saved = x.network.table["dispatcher"]
    permute = 8.0 * space * routed * x.keys.number(lambda e: saved[e.dispatcher]["permute"])
    yield x.memory(permute, permute, launches=4, modules=("moe",))
    if x.recipe.quantised:
        padded = 8.0 * space * routed * np.where(x.keys.flag(lambda e: e.grouped_mlp_fusion), 0.0, 1.0)
        yield x.memory(padded, padded, launches=2, modules=("moe",))
    act = moe.ffn * routed * np.where(x.keys.flag(lambda e: e.grouped_mlp_fusion), 0.0, 1.0)
    width = 3.0 if moe.gated else 2.0
    yield x.memory(2.0 * width * act, (2.0 * width + 4.0) * act, launches=1, modules=("moe", "moe_act"))
    if moe.bias:
        form = x.kernels.table["expert_bias_bytes"]
        moved = space * routed * np.where(x.keys.flag(lambda e: e.grouped_mlp_fusion), 0.2, 1.0)
        launches = form["launches"] * moe.experts / x.keys.ep
        yield x.memory(form["forward"] * moved, form["backward"] * moved, launches=launches, modules=("moe",))
    if moe.shared_ffn or moe.parallel_ffn:
        wide = (moe.shared_ffn + moe.parallel_ffn) * x.tok.full / x.keys.tp
        yield x.memory(
            2.0 * width * wide, (2.0 * width + 4.0) * wide, launches=1, modules=("moe", "shared_experts")
        )
    yield _exchange(x, moe, space)
    if not (x.keys.etp > 1).any():
        return
    message = 2.0 * space * routed * x.keys.etp
    etp = np.where(x.keys.etp > 1, 2 * x.network.gather(x.etp, message), 0.0)
    yield Operation(term="ep", forward=etp, backward=etp, modules=("moe",))


def copies_sent(ep: Floats, top_k: int) -> Floats:
    """Copies of a token that leave a rank when equal destinations are merged. [Q]

    ep*(1-(1-1/ep)^k) ranks are hit by k balanced choices, all but one of ep of them elsewhere.
    """
    return np.asarray(ep * (1 - (1 - 1 / ep) ** top_k) * (ep - 1) / ep)


def _exchange(x: Machine, moe: Moe, space: int) -> Operation:
    """Dispatch and combine over the EP group: the same bytes forward and backward. Overlap comes later."""
    keys = x.keys
    token = 2.0 * space * x.tok.sharded * keys.expert_imbalance
    one_way = np.zeros(len(keys))
    for name in sorted({e.dispatcher for e in keys.executions}):
        chosen = keys.flag(lambda e, name=name: e.dispatcher == name)  # type: ignore[misc]
        one_way = np.where(chosen, _one_way(x, x.ep, token, moe.top_k, name), one_way)
    both = np.where(keys.ep > 1, 2 * one_way, 0.0)
    return Operation(term="ep", forward=both, backward=both, modules=("moe",))


def _one_way(x: Machine, group: Group, token: Floats, top_k: int, dispatcher: str) -> Floats:
    """Seconds of one dispatch (or combine) of `token` bytes a rank. [Q]

    allgather: every rank takes all tokens. alltoall: k copies of each token, wherever they go.
    deepep, hybridep: one copy for every rank that needs the token, one for every node beyond the own.
    """
    ep = group.size
    form = x.network.table["dispatcher"][dispatcher]
    factor = x.factor("ep", dispatcher)
    if dispatcher == "allgather":
        return np.asarray((x.network.gather(group, token * ep) + form["latency"]) * factor)
    if dispatcher == "alltoall":
        near = token * top_k * (group.inside - 1) / ep
        crossing = token * top_k * (ep - group.inside) / ep
        return np.asarray((x.network.alltoall(group, near, crossing) + form["latency"]) * factor)
    nodes = group.domains
    share = form["nvlink"]
    if dispatcher == "deepep" and x.architecture.startswith("Blackwell"):
        share = x.network.table["dispatcher"]["deepep_blackwell"]
    inside = token * copies_sent(ep, top_k) / (x.question.cluster.gpu.nvlink * share)
    away = token * (nodes - 1) * (1 - (1 - 1 / nodes) ** top_k)
    wire = x.question.cluster.network * form["network"] * x.network.net_scale
    across = away / wire + x.network.table["network"]["latency"]
    beside = x.network.table["dispatcher"]["nvlink_beside_network"]
    seconds = np.where(nodes > 1, np.maximum(across + beside * inside, inside), inside)
    return np.asarray((seconds + form["latency"]) * factor)
