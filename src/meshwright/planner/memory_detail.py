"""The memory of one layout beyond its totals: peaks told apart, host memory, one stage over a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from meshwright.cost.accounts import accounts
from meshwright.cost.host import HostMemory, host_memory
from meshwright.cost.memory import memory
from meshwright.cost.peaks import peaks
from meshwright.cost.question import Question
from meshwright.cost.rl import residency
from meshwright.cost.stages import StageView, all_stages
from meshwright.cost.timeline import MOST_PASSES, Timeline, timeline
from meshwright.job.spec import Execution, Rollout
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.table import LayoutTable
from meshwright.planner.again import one_row
from meshwright.planner.remedies import Remedy

SHOWN_PASSES = 512
"""Passes of a timeline that an answer carries; of more, the repeating middle is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePeaks:
    """Most bytes allocated on a stage's ranks in each phase of a run."""

    stage: int
    first_iteration_bytes: int
    later_iterations_bytes: int
    evaluation_bytes: int
    checkpoint_save_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Host memory of one rank of the fullest stage, by what it holds, and of a whole node [bytes]."""

    process_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    checkpoint_bytes: int
    rollout_bytes: int
    rank_bytes: int
    node_bytes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimeline:
    """Memory of one stage over a step, pass after pass [bytes].

    passes   all passes of the step; those between `head` and the last ones are left out where there are many
    head     passes before the gap (all of them where there is none)
    """

    stage: int
    floor_bytes: int
    update_bytes: int
    highest_bytes: int
    passes: int
    head: int
    forward: tuple[bool, ...]
    chunk: tuple[int, ...]
    microbatch: tuple[int, ...]
    phase: tuple[str, ...]
    held_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RlDetail:
    """Residency of trainer, reference and rollout engine: bytes of a GPU of each stage in each phase.

    phases           {phase: bytes a stage}
    engine_bytes     the engine's share of a card: its own, or one that it shares with the trainer
    weights_bytes    of it, the engine's weights; cache_bytes: what is left for the key-value cache
    offloaded_bytes  of a rank of the fullest stage, in host memory while the engine generates
    engine_fits      the engine's weights leave it a cache
    """

    colocated: bool
    phases: Mapping[str, tuple[int, ...]]
    engine_bytes: int
    weights_bytes: int
    cache_bytes: int
    offloaded_bytes: int
    usable_bytes: int

    @property
    def engine_fits(self) -> bool:
        return self.cache_bytes > 0

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        phases = [
            {"phase": name, "per_stage_bytes": list(values), "peak_bytes": max(values)}
            for name, values in self.phases.items()
        ]
        row = {item.name: getattr(self, item.name) for item in fields(self)}
        return row | {"phases": phases, "engine_fits": self.engine_fits}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDetail:
    """What `estimate --memory` shows; `remedies` are filled only where memory does not surely fit."""

    peaks: tuple[StagePeaks, ...]
    host: Host
    timeline: StageTimeline | None
    remedies: tuple[Remedy, ...] = ()
    rl: RlDetail | None = None
    """For the task `rl`."""

    def as_dict(self) -> dict[str, Any]:
        """The keys that an estimate gains in JSON."""
        return {
            "peaks": [asdict(one) for one in self.peaks],
            "host": asdict(self.host),
            "memory_timeline": None if self.timeline is None else asdict(self.timeline),
            "remedies": [remedy_dict(one) for one in self.remedies],
            **({"rl": self.rl.as_dict()} if self.rl else {}),
        }


def remedy_dict(one: Remedy) -> dict[str, Any]:
    """A remedy in JSON: options as they are typed."""
    return {
        "options": dict(one.options), "words": words(one.options), "why": one.why,
        "changes_numerics": one.numerics, "peak_bytes": round(one.peak), "saved_bytes": round(one.saved),
        "verdict": one.verdict, "step_time_change": one.slower,
    }  # fmt: skip


def words(options: tuple[tuple[str, str], ...]) -> str:
    """Options as they are typed on a command line.

    >>> words((("--fsdp", ""), ("--tp", "8")))
    '--fsdp --tp 8'
    """
    return " ".join(f"{option} {value}".strip() for option, value in options)


def memory_detail(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None,
    remedies: tuple[Remedy, ...] = (),
) -> MemoryDetail:  # fmt: skip
    """Peaks, host memory and the fullest stage's timeline of one layout that can start."""
    table = one_row(question, layout, execution, pipeline)
    view = all_stages(table.splits)
    found = peaks(question, table, view)
    columns = [np.asarray(values[0]) for values in (found.first, found.steady, found.evaluation, found.save)]
    each = [
        StagePeaks(
            stage=stage, first_iteration_bytes=row[0], later_iterations_bytes=row[1],
            evaluation_bytes=row[2], checkpoint_save_bytes=row[3],
        )
        for stage, row in enumerate([round(float(column[s])) for column in columns] for s in range(layout.pp))
    ]  # fmt: skip
    return MemoryDetail(
        peaks=tuple(each),
        host=_host(host_memory(question, table, view)),
        timeline=_timeline(question, table, view),
        remedies=remedies,
        rl=_rl(question, table, view) if question.job.rollout else None,
    )


def _host(found: HostMemory) -> Host:
    fullest = int(np.argmax(found.total[0]))
    parts: Mapping[str, float] = {
        "process_bytes": found.process,
        "optimizer_bytes": float(found.optimizer[0, fullest]),
        "activations_bytes": float(found.activations[0, fullest]),
        "checkpoint_bytes": float(found.checkpoint[0, fullest]),
        "rollout_bytes": float(found.rollout[0, fullest]),
        "rank_bytes": float(found.total[0, fullest]),
        "node_bytes": float(found.node[0]),
    }
    return Host(gpus_per_node=found.gpus_per_node, **{name: round(value) for name, value in parts.items()})


def _timeline(question: Question, table: LayoutTable, view: StageView) -> StageTimeline | None:
    """The fullest stage over a step; None where a step has more passes than are worth following."""
    if 2 * int(table.num_microbatches[0]) * int(table.vpp[0]) > MOST_PASSES:
        return None
    stage = int(np.argmax(memory(question, table, view).total[0]))
    return shortened(timeline(question, table, view, stage=stage), stage)


def shortened(full: Timeline, stage: int) -> StageTimeline:
    """A timeline with the middle of its steady phase, which repeats, left out where it is long."""
    count = len(full)
    half = SHOWN_PASSES // 2
    warm = sum(phase == "warm-up" for phase in full.phase)
    head = count if count <= SHOWN_PASSES else min(max(half, warm + 16), count)
    kept = [*range(head), *range(max(head, count - half), count)]
    return StageTimeline(
        stage=stage, floor_bytes=round(full.floor), update_bytes=round(full.update),
        highest_bytes=round(full.highest), passes=count, head=head,
        forward=tuple(bool(full.forward[i]) for i in kept),
        chunk=tuple(int(full.chunk[i]) for i in kept),
        microbatch=tuple(int(full.microbatch[i]) for i in kept),
        phase=tuple(full.phase[i] for i in kept),
        held_bytes=tuple(round(float(full.held[i])) for i in kept),
        peak_bytes=tuple(round(float(full.peak[i])) for i in kept),
    )  # fmt: skip


def _rl(question: Question, table: LayoutTable, view: StageView) -> RlDetail:
    rollout = question.job.rollout or Rollout()
    used = memory(question, table, view)
    found = residency(question, table, accounts(question, table, view), rollout, used.fragmentation)
    return RlDetail(
        colocated=rollout.colocated,
        phases={
            name: tuple(round(float(value)) for value in values[0]) for name, values in found.phases.items()
        },
        engine_bytes=round(found.engine),
        weights_bytes=round(found.weights),
        cache_bytes=round(found.cache),
        offloaded_bytes=round(float(found.offloaded[0].max())),
        usable_bytes=round(found.usable),
    )
