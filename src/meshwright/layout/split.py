"""The automatic pipeline split: the layers of every chunk so that the slowest rank is fastest.

Whoever calls supplies what each kind of block costs (seconds, bytes) and what each rank can hold;
nothing here knows how those were found. With one chunk a rank the split is optimal (dynamic
programming over layer boundaries). With several, a rank holds chunks from all over the depth, and
what is minimised is the load of the busiest *rank*, not of the busiest chunk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.job.spec import Recompute
from meshwright.layout.split_interleaved import interleaved
from meshwright.layout.split_problem import Problem, Split, SplitCosts, StageLimits, prepare
from meshwright.layout.split_search import TOLERANCE, equal_layers, one_chunk_a_rank
from meshwright.layout.stages import describe_kinds
from meshwright.model.spec import Layer, Model
from meshwright.model.weights import layer_weights, mtp_weights

__all__ = ["Split", "SplitCosts", "StageLimits", "best_split", "default_costs"]

MOST_BOUNDARIES = 1 << 22
"""Pairs of layer boundaries times ranks above which boundaries are searched, not enumerated."""


def best_split(
    model: Model,
    pp: int,
    vpp: int,
    costs: SplitCosts,
    limits: StageLimits | None = None,
    recompute: Recompute | None = None,
) -> Split | None:
    """The split with the fastest slowest rank that fits; None where no legal split does.

    Every chunk holds something: embedding first, loss and MTP modules last, at least one layer on the
    chunks between. Optimal for vpp = 1, and for any vpp where all layers cost the same. Where they do
    not, chunks hold between half and twice an equal share of layers (a first or last one with a heavy
    embedding or loss may hold fewer), and the split is within `Split.gap` of a lower bound.

    With `costs.mtp_apart_bytes`, MTP modules may sit on a chunk before the loss where that is faster.
    """
    if pp == 1 and vpp > 1:
        return None
    chosen = _solved(prepare(model, pp, vpp, costs, limits, recompute or Recompute()))
    if model.mtp and pp > 2 and costs.mtp_apart_bytes is not None:
        apart = _solved(prepare(model, pp, vpp, costs, limits, recompute or Recompute(), mtp_apart=True))
        if apart is not None and (chosen is None or apart.slowest < chosen.slowest * (1 - TOLERANCE)):
            return replace(apart, mtp_apart=True)
    return chosen


def _solved(problem: Problem) -> Split | None:
    if int(problem.low.sum()) > problem.num_layers:
        return None
    if problem.uniform:
        return equal_layers(problem)
    if problem.vpp == 1 and problem.pp * problem.num_layers**2 <= MOST_BOUNDARIES:
        return one_chunk_a_rank(problem)
    return interleaved(problem)


def default_costs(model: Model) -> SplitCosts:
    """Weights for when nobody measured: a decoder layer is 1, the embedding 0, the head its GEMM.

    The head's weight is its multiply-adds a token over those of the model's mean layer; an MTP module
    is a layer, its projection, and a head of its own.
    """
    per_kind = [_multiply_adds(model, layer) for layer in model.kinds]
    mean = sum(per_kind[kind] for kind in model.pattern) / model.num_layers
    head = model.vocab_size * model.hidden / mean
    weight = {"layer": 1.0, "mtp": 1.0 + head, "embedding": 0.0, "vision": 0.0, "head": head}
    if model.mtp:
        projection = sum(w.active_count for w in mtp_weights(model, 0) if w.name == "mtp.eh_proj")
        weight["mtp"] += projection / mean
    seconds = np.array([weight[kind.role] for kind in describe_kinds(model)])
    nothing = np.zeros_like(seconds)
    return SplitCosts(seconds=seconds, static_bytes=nothing, activation_bytes=nothing)


def _multiply_adds(model: Model, layer: Layer) -> float:
    """Weights that one token is multiplied with in a layer."""
    return float(sum(weight.active_count for weight in layer_weights(model, layer) if weight.gemm))
