"""Memory of one stage over a training step: after every forward and backward pass, and during it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.cost.accounts import accounts
from meshwright.cost.question import Question
from meshwright.cost.schedule import passes_of_stage
from meshwright.cost.stages import StageView, vp_group
from meshwright.errors import QuestionError
from meshwright.layout.table import Floats, Ints, LayoutTable

MOST_PASSES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The passes of one stage in their order, P of them.

    forward      True for a forward pass, False for a backward pass
    chunk        model chunk of the pass (0 unless interleaved)
    microbatch   number of the micro-batch
    phase        warm-up, steady or cool-down
    held         allocated after the pass [bytes]
    peak         most allocated while it ran [bytes]
    floor        allocated between steps [bytes]
    update       allocated during the optimizer step [bytes]
    """

    forward: np.ndarray
    chunk: Ints
    microbatch: Ints
    phase: tuple[str, ...]
    held: Floats
    peak: Floats
    floor: float
    update: float

    def __len__(self) -> int:
        return len(self.held)

    @property
    def highest(self) -> float:
        """The peak of the step [bytes]."""
        return max(float(self.peak.max(initial=self.floor)), self.update)


def timeline(
    question: Question, table: LayoutTable, view: StageView, *, row: int = 0, stage: int = 0
) -> Timeline:
    """Memory of one stage of one layout over a step; `view` must show every stage (`all_stages`)."""
    one = table.rows(np.array([row]))
    if not 0 <= stage < int(one.pp[0]):
        raise QuestionError(f"stage {stage} does not exist; the layout has stages 0 to {int(one.pp[0]) - 1}")
    parts = accounts(question, one, view)
    counts = view.counts[int(one.split[0]), stage].astype(float)  # [C, K]
    # what graphs hold is never given back
    kept, working = _chunk_bytes(
        parts.flying.kinds, counts, parts.blocks.kept[0] - parts.blocks.graphed[0], parts.blocks.working[0],
        parts.blocks.logits[0],
    )  # fmt: skip
    floor = float(parts.between[0, stage] + parts.state.unsharded[0, stage])
    passes = list(schedule(one, stage))
    if len(passes) > MOST_PASSES:
        raise QuestionError(f"a step has {len(passes):,} passes; the timeline shows at most {MOST_PASSES:,}")
    forward = np.array([kind for kind, *_ in passes])
    chunk = np.array([number for _, number, *_ in passes], dtype=np.int64)
    change = np.where(forward, kept[chunk], -kept[chunk])
    held = floor + np.cumsum(change)
    peak = np.where(forward, held, held - change + working[chunk])
    return Timeline(
        forward=forward,
        chunk=chunk,
        microbatch=np.array([number for _, _, number, _ in passes], dtype=np.int64),
        phase=tuple(phase for *_, phase in passes),
        held=held,
        peak=peak,
        floor=float(parts.between[0, stage]),
        update=float(parts.update[0, stage]),
    )


def _chunk_bytes(
    kinds: tuple[str, ...], counts: Floats, kept: Floats, working: Floats, logits: Floats
) -> tuple[Floats, Floats]:
    """Bytes that a pass of each chunk keeps, and most bytes beyond them in its backward pass. [C], [C]"""
    there = counts > 0
    ends = np.array([name == "head" or name.startswith("mtp") for name in kinds])
    first = np.array([name == "embedding" for name in kinds])
    whole = counts @ kept
    loss = np.where(there & ends, working, 0.0).max(axis=1)
    layer = np.where(there & ~ends & ~first, working, 0.0).max(axis=1) - (counts * ends) @ logits
    embedding = np.where(there & first, working, 0.0).max(axis=1) - whole
    return whole, np.maximum(loss, np.maximum(layer, embedding))


def schedule(one: LayoutTable, stage: int) -> Iterator[tuple[bool, int, int, str]]:
    """Passes of a stage in Megatron's order: (forward, chunk, micro-batch, phase).

    Where the expert exchange overlaps with another micro-batch, forward and backward run side by side; here
    they are told one after the other, since they hold what the plain schedule holds but for a layer.
    """
    pp, vpp, micro = int(one.pp[0]), int(one.vpp[0]), int(one.num_microbatches[0])
    passes, warmup = passes_of_stage(stage, pp, vpp, micro, int(vp_group(one)[0]))
    for index, one_pass in enumerate(passes):
        steady = warmup <= index < len(passes) - warmup
        phase = "steady" if steady else "warm-up" if index < warmup else "cool-down"
        yield one_pass.kind == "forward", one_pass.chunk, one_pass.micro, phase
