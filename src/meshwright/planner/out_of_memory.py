"""An out-of-memory error beside what was predicted for the run that it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.cost.oom import OutOfMemory
from meshwright.planner.answer import Estimate, StageMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an error says, and what the layout was predicted to hold on the pipeline stage that failed.

    plan     the run's own estimate with its memory in detail, where the layout is known
    stage    memory of the stage on which the failed rank is (of the fullest, where the log names no rank)
    """

    error: OutOfMemory
    plan: Estimate | None = None
    stage: StageMemory | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        row: dict[str, Any] = self.error.as_dict()
        row["predicted"] = None if self.stage is None else self._predicted(self.stage)
        detail = None if self.plan is None or self.plan.detail is None else self.plan.detail.as_dict()
        row["changes"] = [] if detail is None else detail["remedies"]
        return row

    def _predicted(self, stage: StageMemory) -> Mapping[str, Any]:
        memory = None if self.plan is None else self.plan.memory
        if memory is None:
            return asdict(stage)
        return {**asdict(stage), "verdict": memory.verdict, "usable_bytes": memory.usable_bytes}

    @property
    def unlike(self) -> float | None:
        """Bytes that torch had allocated beyond what was predicted; None where either is unknown."""
        if self.stage is None or self.error.allocated is None:
            return None
        return self.error.allocated - self.stage.allocated_bytes


def stage_of(rank: int | None, plan: Estimate) -> StageMemory | None:
    """Memory of the stage of a global rank (order tp-cp-ep-dp-pp); without a rank, of the fullest."""
    if plan.memory is None:
        return None
    stages = plan.memory.per_stage
    world = plan.question.cluster.world
    if rank is None or not 0 <= rank < world:
        return max(stages, key=lambda stage: stage.total_bytes)
    return stages[rank // (world // plan.layout.pp)]
