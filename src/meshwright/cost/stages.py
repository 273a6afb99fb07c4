"""Which stages of a pipeline split need scoring, and how many micro-batches each keeps in flight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.keys import Keys, distinct_rows
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable, SplitTable


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
    for counts, number in zip(splits.counts, splits.stage_mask.sum(axis=1).tolist(), strict=True):
        first: dict[bytes, int] = {}
        contents = [stage.tobytes() for stage in counts[:number]]
        for stage, content in enumerate(contents):
            first.setdefault(content, stage)
        equal = Counter(contents)
        picked.append((list(first.values()), [equal[content] for content in first]))
    depth = max((len(first) for first, _ in picked), default=0)
    size = len(picked)
    position = np.zeros((size, depth), dtype=np.int64)
    multiplicity = np.zeros((size, depth), dtype=np.int64)
    counts = np.zeros((size, depth, *splits.counts.shape[2:]), dtype=np.int16)
    for u, (stages, times) in enumerate(picked):
        n = len(stages)
        position[u, :n], multiplicity[u, :n] = stages, times
        counts[u, :n] = splits.counts[u, stages]
    return StageView(counts=counts, position=position, multiplicity=multiplicity, kinds=splits.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Blocks of the stages of N layouts, and how many micro-batches keep activations of each.

    Rows with the same split and schedule share one of F entries; `of_row` [N] says which.

    held    blocks of each kind that a stage holds                          [F, D, K]
    passes  blocks times micro-batches in flight, at the fullest moment     [F, D, K]
    first   blocks of the first chunk                                       [F, D, K]
    last    whether the stage holds the last decoder layer                  [F, D]
    """

    held: Floats
    passes: Floats
    first: Floats
    last: Bools
    of_row: Ints
    kinds: tuple[str, ...]

    def spread(self, values: Floats | Bools) -> Floats:
        """One value a stage from [F, D] to [N, D]."""
        return np.asarray(values[self.of_row], dtype=np.float64)

    def total(self, counts: Floats, per_block: Floats | Ints, keys: Keys) -> Floats:
        """Sum over the blocks of a stage. [F, D, K] x [Q, K] -> [N, D]"""
        found = np.zeros((len(self.of_row), counts.shape[1]))
        for kind in np.flatnonzero(counts.any(axis=(0, 1)) & per_block.any(axis=0)).tolist():
            value = per_block[keys.of_row, kind][:, None]
            found += counts[self.of_row, :, kind] * value
        return found

    def largest(self, where: Bools, per_block: Floats, keys: Keys) -> Floats:
        """Largest value among the kinds that are there. [F, D, K], [Q, K] -> [N, D]; 0 where there is none"""
        found = np.zeros((len(self.of_row), where.shape[1]))
        for kind in np.flatnonzero(where.any(axis=(0, 1))).tolist():
            value = per_block[keys.of_row, kind][:, None]
            np.maximum(found, where[self.of_row, :, kind] * value, out=found)
        return found


def flight(table: LayoutTable, view: StageView) -> Flight:
    """Blocks held and in flight of every row; equal splits and schedules are worked out once."""
    group = vp_group(table)
    most = 4 * table.pp + group  # more micro-batches than this change nothing
    columns = [table.split, table.pp, table.vpp, group, np.minimum(table.num_microbatches, most)]
    first, of_row = distinct_rows(columns)
    few = table.rows(first)
    counts = view.counts[few.split].astype(np.float64)  # [F, D, C, K]
    passes = in_flight(few, view).astype(np.float64)  # [F, D, C]
    return Flight(
        held=counts.sum(axis=2),
        passes=np.einsum("fdck,fdc->fdk", counts, passes),
        first=counts[:, :, 0],
        last=view.position[few.split] == last_decoder_stage(table.splits, few.split)[:, None],
        of_row=of_row,
        kinds=view.kinds,
    )


def last_decoder_stage(splits: SplitTable, rows: Ints) -> Ints:
    """The stage that holds the last decoder layer of each of these splits. [F]

    Chunks follow each other stage by stage, then round by round.
    """
    layers = [name.startswith("layer") for name in splits.kinds]
    filled = np.asarray(splits.counts[rows][..., layers].any(axis=3))  # [F, stages, chunks]
    stages, chunks = filled.shape[1:]
    order = np.arange(chunks) * stages + np.arange(stages)[:, None]
    last = np.where(filled, order, -1).reshape(len(filled), -1).max(axis=1)
    return np.asarray(last % stages, dtype=np.int64)


def vp_group(table: LayoutTable) -> Ints:
    """Micro-batches that pass a chunk before the next chunk's turn (pp unless said otherwise). [N]"""
    said = table.flag([e.vp_group or 0 for e in table.executions]).astype(np.int64)
    group: Ints = np.where(said > 0, np.maximum(said, 1), table.pp)
    return group


def in_flight(table: LayoutTable, view: StageView) -> Ints:
    """Micro-batches whose activations each chunk holds at the stage's peak. [N, D, C]

    1F1B: min(M, pp - stage). Interleaved: min(M*vpp, 2(pp-stage-1) + (vpp-1)*group + 1) chunk passes, which
    run in groups of `group` micro-batches (pp unless said otherwise), chunk after chunk. Where the expert
    exchange overlaps with another micro-batch the warm-up is one pass longer, and forward and backward then
    run side by side, so that the fullest moment is the same but for a layer.
    Source: megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
    """
    position = view.position[table.split]  # [N, D]
    pp, vpp, micro = (x[:, None] for x in (table.pp, table.vpp, table.num_microbatches))
    size = vp_group(table)[:, None]
    plain = np.minimum(micro, pp - position)
    warmup = 2 * (pp - position - 1) + (vpp - 1) * size + 1
    passes = np.where(vpp > 1, np.minimum(micro * vpp, warmup), plain)[:, :, None]  # [N, D, 1]
    group, chunks = size[:, :, None], vpp[:, :, None]
    chunk = np.arange(view.counts.shape[2])
    round_size = group * chunks
    whole, rest = passes // round_size, passes % round_size
    held = whole * group + np.clip(rest - chunk * group, 0, group)
    held = np.where(chunks > 1, held, passes)
    result: Ints = np.where(chunk < chunks, np.maximum(held, 0), 0)
    return result
