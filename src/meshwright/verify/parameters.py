"""Our own count of the parameters of every model chunk, and its comparison with what the engine built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.parameters import embedding_copy, rank_parameters
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.stages import describe_kinds
from meshwright.model.weights import norm_elements
from meshwright.verify.subject import Subject


@dataclass(frozen=True, slots=True)
class ChunkCount:
    """Trained parameters of one model chunk on one rank."""

    dense: int
    expert: int


def own_counts(subject: Subject, pipeline: PipelineLayout) -> tuple[tuple[ChunkCount, ...], ...]:
    """By pipeline stage and chunk, [pp][vpp]; equal on all ranks of a stage.

    A stage without the embedding holds a copy of its matrix where it has the tied head or MTP modules.
    A model with MTP modules has its final norm beside the last decoder layer, not beside the head.
    Source: megatron/core/models/gpt/gpt_model.py (pre_process, post_process, mtp_process);
    transformer/transformer_block.py, has_final_layernorm_in_this_stage.
    """
    model, layout = subject.model, subject.layout
    tp, ep, etp = (np.array([degree]) for degree in (layout.tp, layout.ep, layout.etp))
    held = rank_parameters(model, tp, ep, etp)
    copy = int(embedding_copy(model, tp)[0])
    roles = [kind.role for kind in describe_kinds(model)]
    counts = pipeline.counts(model).astype(np.int64)  # [pp, vpp, kinds]
    norm = norm_elements(model.normalization, model.hidden) if model.mtp and model.final_norm else 0
    last_decoder = max(index for index, chunk in enumerate(pipeline.chunks) if "t" in chunk)
    stages = []
    for rank, stage in enumerate(counts):
        chunks = []
        for number, chunk in enumerate(stage):
            has = {role for role, count in zip(roles, chunk, strict=True) if count}
            copies = "embedding" not in has and ((model.tied and "head" in has) or "mtp" in has)
            moved = (number * layout.pp + rank == last_decoder) - ("head" in has)
            dense = int(chunk @ held.dense[0]) + copies * copy + moved * norm
            chunks.append(ChunkCount(dense, int(chunk @ held.expert[0])))
        stages.append(tuple(chunks))
    return tuple(stages)


def differences(own: Sequence[ChunkCount], engine: Mapping[str, Any]) -> list[str]:
    """Sentences on the chunks of one engine rank that we count differently; [] when all are equal."""
    found = []
    for number, (ours, theirs) in enumerate(zip(own, engine["chunks"], strict=True)):
        for what in ("dense", "expert"):
            mine, built = getattr(ours, what), theirs[what]
            if mine != built:
                place = f"rank {engine['rank']} (stage {engine['pp']}, chunk {number})"
                found.append(
                    f"{place}: {built:,} {what} parameters built, {mine:,} counted ({mine - built:+,})"
                )
    return found
