"""Which stages of a pipeline split need scoring, and how many micro-batches each keeps in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.table import Bools, Ints, LayoutTable, SplitTable


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """The stages that are scored, for each of U splits.

    counts        [U, D, C, K]  blocks of each kind in each chunk of the stage
    position      [U, D]        index of the stage in its pipeline
    multiplicity  [U, D]        how many stages hold the same (0 where the entry is padding)
    """

    counts: NDArray[np.int16]
    position: Ints
    multiplicity: Ints
    kinds: tuple[str, ...]

    @property
    def exists(self) -> Bools:
        return self.multiplicity > 0

    def kind(self, name: str) -> int:
        return self.kinds.index(name)


def all_stages(splits: SplitTable) -> StageView:
    """Every stage, each for itself (for the layouts that are shown)."""
    mask = splits.stage_mask
    position = np.broadcast_to(np.arange(mask.shape[1]), mask.shape).astype(np.int64)
    return StageView(
        counts=splits.counts, position=position, multiplicity=mask.astype(np.int64), kinds=splits.kinds
    )


def distinct_stages(splits: SplitTable) -> StageView:
    """The first stage of each distinct content (for the search).

    Memory is highest there, since micro-batches in flight never rise with the stage; times of equal
    stages are equal.
    """
    picked: list[tuple[list[int], list[int]]] = []
    for counts, mask in zip(splits.counts, splits.stage_mask, strict=True):
        real = counts[: int(mask.sum())].reshape(int(mask.sum()), -1)
        _, first, times = np.unique(real, axis=0, return_index=True, return_counts=True)
        order = np.argsort(first)
        picked.append((first[order].tolist(), times[order].tolist()))
    depth = max((len(first) for first, _ in picked), default=0)
    size = len(picked)
    position = np.zeros((size, depth), dtype=np.int64)
    multiplicity = np.zeros((size, depth), dtype=np.int64)
    counts = np.zeros((size, depth, *splits.counts.shape[2:]), dtype=np.int16)
    for u, (first, times) in enumerate(picked):
        n = len(first)
        position[u, :n], multiplicity[u, :n] = first, times
        counts[u, :n] = splits.counts[u, first]
    return StageView(counts=counts, position=position, multiplicity=multiplicity, kinds=splits.kinds)


def in_flight(table: LayoutTable, view: StageView) -> Ints:
    """Micro-batches whose activations each chunk holds at the stage's peak. [N, D, C]

    1F1B: min(M, pp - stage). Interleaved: min(M*vpp, 2(pp-stage-1) + (vpp-1)*pp + 1) chunk passes, which
    run in groups of pp micro-batches, chunk after chunk.
    Source: megatron/core/pipeline_parallel/schedules.py (num_warmup_microbatches).
    """
    position = view.position[table.split]  # [N, D]
    pp, vpp, micro = (x[:, None] for x in (table.pp, table.vpp, table.num_microbatches))
    plain = np.minimum(micro, pp - position)
    passes = np.minimum(micro * vpp, 2 * (pp - position - 1) + (vpp - 1) * pp + 1)
    passes = np.where(vpp > 1, passes, plain)[:, :, None]  # [N, D, 1]
    group, chunks = pp[:, :, None], vpp[:, :, None]
    chunk = np.arange(view.counts.shape[2])
    round_size = group * chunks
    whole, rest = passes // round_size, passes % round_size
    held = whole * group + np.clip(rest - chunk * group, 0, group)
    held = np.where(chunks > 1, held, passes)
    result: Ints = np.where(chunk < chunks, np.maximum(held, 0), 0)
    return result
