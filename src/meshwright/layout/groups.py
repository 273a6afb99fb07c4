"""Process groups as integer arrays [groups, members], in Megatron Core's order of both.

A grid numbers its ranks axis by axis: the first axis of the order string is the fastest. A group runs
over some of the axes; its members, and the groups among themselves, follow the order string again.

Source: megatron/core/parallel_state.py (generate_masked_orthogonal_rank_groups,
create_hierarchical_groups, create_hybrid_dp_cp_groups, initialize_model_parallel).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meshwright.layout.table import Ints

GridName = Literal["decoder", "expert"]
ABSENT = -1
"""Fills the places that a shorter group leaves empty (hybrid context parallelism only)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind:
    """One kind of group: its short name, what Megatron calls it, the axes it runs over, its traffic."""

    name: str
    megatron: str
    grid: GridName
    axes: tuple[str, ...]
    carries: str


ORTHOGONAL = (
    GroupKind(name="tp", megatron="TENSOR_MODEL_PARALLEL_GROUP", grid="decoder", axes=("tp",),
              carries="activations of every layer: all-reduce, or all-gather and reduce-scatter with SP"),
    GroupKind(name="cp", megatron="CONTEXT_PARALLEL_GROUP", grid="decoder", axes=("cp",),
              carries="keys and values of attention"),
    GroupKind(name="dp", megatron="DATA_PARALLEL_GROUP", grid="decoder", axes=("dp",),
              carries="which samples a rank reads"),
    GroupKind(name="dp-cp", megatron="DATA_PARALLEL_GROUP_WITH_CP", grid="decoder", axes=("dp", "cp"),
              carries="gradients and parameters of the dense part"),
    GroupKind(name="pp", megatron="PIPELINE_MODEL_PARALLEL_GROUP", grid="decoder", axes=("pp",),
              carries="activations and their gradients between stages"),
    GroupKind(name="tp-cp", megatron="TENSOR_AND_CONTEXT_PARALLEL_GROUP", grid="decoder", axes=("tp", "cp"),
              carries="auxiliary loss of the router"),
    GroupKind(name="tp-dp", megatron="TENSOR_AND_DATA_PARALLEL_GROUP", grid="decoder", axes=("tp", "dp"),
              carries="FP8 scaling factors without CP"),
    GroupKind(name="tp-dp-cp", megatron="TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", grid="decoder",
              axes=("tp", "dp", "cp"), carries="FP8 scaling factors, load statistics of the router"),
    GroupKind(name="tp-pp", megatron="MODEL_PARALLEL_GROUP", grid="decoder", axes=("tp", "pp"),
              carries="gradient norm without the distributed optimizer"),
    GroupKind(name="ep", megatron="EXPERT_MODEL_PARALLEL_GROUP", grid="expert", axes=("ep",),
              carries="tokens to their experts and back"),
    GroupKind(name="etp", megatron="EXPERT_TENSOR_PARALLEL_GROUP", grid="expert", axes=("tp",),
              carries="activations of divided experts"),
    GroupKind(name="tp-ep", megatron="EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", grid="expert",
              axes=("tp", "ep"), carries="tokens, with the flex dispatchers (DeepEP, HybridEP)"),
    GroupKind(name="tp-ep-pp", megatron="EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", grid="expert",
              axes=("tp", "ep", "pp"), carries="reductions over a whole copy of the experts"),
    GroupKind(name="edp", megatron="EXPERT_DATA_PARALLEL_GROUP", grid="expert", axes=("dp",),
              carries="gradients and parameters of the experts"),
)  # fmt: skip
"""Groups that run over whole axes of a grid; "tp" of the expert grid is ETP, its "dp" is EDP."""

GTP = (
    GroupKind(name="gtp", megatron="GTP_REMAT group", grid="decoder", axes=("gtp",),
              carries="weight shards of the dense part"),
    GroupKind(name="egtp", megatron="expert GTP_REMAT group", grid="expert", axes=("gtp",),
              carries="weight shards of the experts"),
)  # fmt: skip
"""Groups of the weight-sharding axis; they exist only where it is longer than 1."""


DERIVED = (
    GroupKind(name="embd", megatron="EMBEDDING_GROUP", grid="decoder", axes=("pp",),
              carries="gradient of a tied embedding: first and last stage"),
    GroupKind(name="pos-embd", megatron="POSITION_EMBEDDING_GROUP", grid="decoder", axes=("pp",),
              carries="learned positions: first stage"),
    GroupKind(name="hcp", megatron="HIERARCHICAL_CONTEXT_PARALLEL_GROUPS", grid="decoder", axes=("cp",),
              carries="attention: all-to-all on the first level, ring on the next"),
    GroupKind(name="hybrid", megatron="HYBRID_DP_CP_GROUPS", grid="decoder", axes=("dp", "cp"),
              carries="attention over as many ranks as a sample is long"),
    GroupKind(name="intra-dp-cp", megatron="INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", grid="decoder",
              axes=("dp", "cp"), carries="shards of one instance of the optimizer, dense part"),
    GroupKind(name="intra-edp", megatron="INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", grid="expert",
              axes=("dp",), carries="shards of one instance of the optimizer, experts"),
    GroupKind(name="inter-edp", megatron="INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", grid="expert",
              axes=("dp",), carries="gradients between instances of the optimizer"),
    GroupKind(name="dist-opt", megatron="INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", grid="expert",
              axes=("tp", "ep", "pp", "dp"), carries="gradient norm of one instance of the optimizer"),
)  # fmt: skip
"""Groups made from the others; "hcp" stands for hcp-0, hcp-1, ..., "hybrid" for hybrid-2, hybrid-4, ..."""


def kind_of(name: str) -> GroupKind:
    """What a group name stands for.

    >>> kind_of("hcp-1").megatron
    'HIERARCHICAL_CONTEXT_PARALLEL_GROUPS'
    """
    stem = name.rsplit("-", 1)[0] if name[-1].isdigit() else name
    return next(kind for kind in ORTHOGONAL + GTP + DERIVED if kind.name == stem)


def orthogonal_groups(sizes: Mapping[str, int], order: Sequence[str], axes: Sequence[str]) -> Ints:
    """Groups that run over `axes` of a grid whose ranks are numbered in `order`, [groups, members].

    >>> orthogonal_groups({"tp": 2, "dp": 3}, ("tp", "dp"), ("dp",)).tolist()
    [[0, 2, 4], [1, 3, 5]]
    """
    slowest_first = list(reversed(order))
    grid = np.arange(math.prod(sizes[axis] for axis in order)).reshape([sizes[a] for a in slowest_first])
    outside = [i for i, axis in enumerate(slowest_first) if axis not in axes]
    inside = [i for i, axis in enumerate(slowest_first) if axis in axes]
    members = math.prod(sizes[axis] for axis in axes)
    return grid.transpose(outside + inside).reshape(-1, members)


def coordinates(sizes: Mapping[str, int], order: Sequence[str]) -> dict[str, Ints]:
    """Index of every rank along each axis; each array is [world]."""
    ranks = np.arange(math.prod(sizes[axis] for axis in order))
    found, stride = {}, 1
    for axis in order:
        found[axis] = ranks // stride % sizes[axis]
        stride *= sizes[axis]
    return found


def hierarchical_groups(groups: Ints, sizes: Sequence[int]) -> tuple[Ints, ...]:
    """Each group divided into levels: level k joins members that are prod(sizes[:k]) apart.

    >>> [level.tolist() for level in hierarchical_groups(np.array([[0, 2, 4, 6]]), (2, 2))]
    [[[0, 2], [4, 6]], [[0, 4], [2, 6]]]
    """
    levels = []
    for level, size in enumerate(sizes):
        inner, outer = math.prod(sizes[:level]), math.prod(sizes[level + 1 :])
        apart = groups.reshape(len(groups), outer, size, inner)
        levels.append(apart.swapaxes(2, 3).reshape(-1, size))
    return tuple(levels)


def joined_groups(groups: Ints, count: int) -> Ints:
    """Every `count` consecutive groups as one."""
    return groups.reshape(len(groups) // count, -1)


def sliced_groups(groups: Ints, count: int) -> Ints:
    """Every group cut into `count` consecutive pieces."""
    return groups.reshape(len(groups) * count, -1)


def hybrid_groups(groups: Ints) -> dict[int, Ints]:
    """Consecutive pieces of 2, 4, ... members, below the largest power of two in a group.

    The last piece of a group may be shorter; its empty places hold `ABSENT`.
    """
    members = groups.shape[1]
    found = {}
    size = 2
    while size * 2 <= members:
        short = -members % size
        padded = np.pad(groups, ((0, 0), (0, short)), constant_values=ABSENT)
        found[size] = padded.reshape(-1, size)
        size *= 2
    return found
