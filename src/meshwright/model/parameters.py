"""How many parameters a model has, in total and at work on one token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshwright.model.spec import Model
from meshwright.model.weights import (
    Weight,
    embedding_weights,
    head_weights,
    layer_weights,
    mtp_weights,
    vision_weights,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Counts of elements. The first six leave out MTP modules and the vision tower.

    total                      all of them
    active                     those that work on one token, both embedding matrices included
    active_without_embeddings  without input embedding and output projection
    active_with_head           with the output projection (the shared matrix when tied) only
    embedding, head            input embedding; output projection (0 when tied)
    by_part                    the rest by part: attn, linear, mamba, mlp, moe, norm, other
    mtp                        multi-token-prediction modules, without their copies of embedding and head
    vision                     vision tower and projector
    """

    total: int
    active: int
    active_without_embeddings: int
    active_with_head: int
    embedding: int
    head: int
    by_part: Mapping[str, int]
    mtp: int
    vision: int

    @property
    def everything(self) -> int:
        """With MTP modules and vision tower: what a training job holds."""
        return self.total + self.mtp + self.vision


def count_parameters(model: Model) -> Parameters:
    """Count every weight of `weights.py`, vocabulary unpadded."""
    parts: Counter[str] = Counter()
    active = 0
    for index, kind in enumerate(model.kinds):
        layers = model.layers_of(index)
        if layers:
            weights = layer_weights(model, kind)
            active += layers * sum(weight.active_count for weight in weights)
            _add(parts, weights, layers)
    ends = (*embedding_weights(model), *head_weights(model))
    active += sum(weight.count for weight in ends)
    _add(parts, ends)
    embedding, head = parts.pop("embedding", 0), parts.pop("head", 0)
    bare = active - embedding - head
    return Parameters(
        total=sum(parts.values()) + embedding + head,
        active=active,
        active_without_embeddings=bare,
        active_with_head=bare + (embedding if model.tied else head),
        embedding=embedding,
        head=head,
        by_part=dict(parts),
        mtp=sum(weight.count for index in range(len(model.mtp)) for weight in mtp_weights(model, index)),
        vision=sum(weight.count for weight in vision_weights(model)),
    )


def _add(parts: Counter[str], weights: Iterable[Weight], times: int = 1) -> None:
    for weight in weights:
        parts[weight.part] += times * weight.count
