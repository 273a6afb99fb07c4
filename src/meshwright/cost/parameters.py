"""Parameters that one rank holds, by block kind, exactly as Megatron Core builds them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Floats, Ints
from meshwright.model.spec import Model
from meshwright.model.weights import (
    Weight,
    embedding_weights,
    head_weights,
    layer_weights,
    mtp_weights,
    padded_vocab,
    vision_weights,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters of one block of each kind on one rank; arrays are [Q, K] counts.

    dense    of the attention grid: sharded by the optimizer over dp*cp
    expert   of the expert grid: sharded over edp
    linear   of dense, the part in linear layers that a low-precision recipe quantises
    """

    dense: Ints
    expert: Ints
    linear: Ints

    @property
    def total(self) -> Ints:
        return self.dense + self.expert


@lru_cache(maxsize=256)
def block_weights(model: Model, kind: BlockKind) -> tuple[Weight, ...]:
    """Weights of one block of the `kinds` axis of a split table."""
    match kind.role:
        case "layer":
            return layer_weights(model, model.kinds[kind.layer or 0])
        case "mtp":
            return mtp_weights(model, model.mtp.index(kind.layer or 0))
        case "embedding":
            return embedding_weights(model)
        case "vision":
            return vision_weights(model)
        case "head":
            return head_weights(model)


def rank_parameters(model: Model, tp: Ints, ep: Ints, etp: Ints) -> RankParameters:
    """Parameters on one rank for each key (tp, ep, etp) and block kind. Arrays [Q] -> [Q, K]."""
    kinds = describe_kinds(model)
    shape = (len(tp), len(kinds))
    dense, expert, linear = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for column, kind in enumerate(kinds):
        for weight in block_weights(model, kind):
            if not weight.trained:
                continue
            count = _on_rank(model, weight, tp, ep, etp)
            (expert if weight.grid == "expert" else dense)[:, column] += count
            if weight.gemm and weight.grid == "dense" and kind.role in ("layer", "mtp"):
                linear[:, column] += count
    return RankParameters(dense=dense, expert=expert, linear=linear)


def _on_rank(model: Model, weight: Weight, tp: Ints, ep: Ints, etp: Ints) -> Ints:
    size = math.prod(weight.shape)
    if weight.grid == "expert":
        divisor = etp if weight.split else np.ones_like(etp)
        return np.asarray(weight.copies // ep * (size // divisor))
    if weight.part in ("embedding", "head") and weight.shape[0] == model.vocab_size:
        rows = padded_vocab(model.vocab_size, tp) // tp
        return np.asarray(rows * math.prod(weight.shape[1:]))
    return np.asarray(size // tp if weight.split else np.full_like(tp, size)) * weight.copies


def embedding_copy(model: Model, tp: Ints) -> Floats:
    """Parameters of a further copy of the embedding matrix (tied head or MTP on another stage). [Q]"""
    return np.asarray(padded_vocab(model.vocab_size, tp) // tp * model.hidden, dtype=np.float64)


def adapter_parameters(model: Model, keys: Keys, rank: int) -> Ints:
    """LoRA adapters of one block of each kind on one rank: rank*(n + k) for every linear map. [Q, K]

    Both matrices of an adapter are divided over TP where its linear map is; grouped experts share one.
    Source: megatron/bridge/peft/utils.py, ParallelLinearAdapter (linear_in and linear_out are parallel).
    """
    kinds = describe_kinds(model)
    adapters = np.zeros((len(keys), len(kinds)), dtype=np.int64)
    for column, kind in enumerate(kinds):
        if kind.role != "layer":
            continue
        for weight in block_weights(model, kind):
            if weight.gemm and len(weight.shape) == 2 and "router" not in weight.name:
                degree = keys.etp if weight.grid == "expert" else keys.tp
                adapters[:, column] += rank * sum(weight.shape) // (degree if weight.split else 1)
    return adapters
