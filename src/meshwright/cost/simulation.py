"""Step times whose pipeline is simulated event by event: for the layouts that are shown.

The terms are those of the closed form; only `pp` and `bubble` change, since both are differences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.blocks import block_costs
from meshwright.cost.gradients import flags
from meshwright.cost.keys import distinct_keys
from meshwright.cost.machine import machine_for
from meshwright.cost.question import Question
from meshwright.cost.schedule import PipelineCosts, Timeline, pipeline_seconds, simulate
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TERMS, TimeTable, boundary_message, step_time
from meshwright.layout.table import Floats, LayoutTable

STEP_ONLY = ("dp", "optimizer", "fixed")
"""Terms that are not part of the pipeline (FSDP's share of `dp` is spread over the passes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """Costs of the passes of every row of a table, and how its schedule runs.

    costs     one a row
    micro     micro-batches; group  micro-batches a chunk's turn takes; combined  EP overlap
    """

    costs: tuple[PipelineCosts, ...]
    micro: tuple[int, ...]
    group: tuple[int, ...]
    combined: tuple[bool, ...]


def simulated_step(question: Question, table: LayoutTable) -> TimeTable:
    """Step time of the rows of a small table, pipelines simulated; the same terms, which sum to the step."""
    timed = step_time(question, table, all_stages(table.splits))
    run = pipelines(question, table, timed)
    lengths = np.array(
        [
            pipeline_seconds(costs, micro, group=group, combined=combined)
            for costs, micro, group, combined in zip(
                run.costs, run.micro, run.group, run.combined, strict=True
            )
        ]
    )
    lengths = lengths * question.calibration.factor("all")
    terms = dict(timed.terms)
    busy = sum(terms[name] for name in TERMS if name not in (*STEP_ONLY, "pp", "bubble"))
    left = lengths - (busy + timed.sharding - timed.waits)
    terms["pp"] = np.clip(terms["pp"], 0.0, np.maximum(left, 0.0))
    terms["bubble"] = left - terms["pp"]
    return replace(timed, terms=terms)


def timeline(question: Question, table: LayoutTable, row: int = 0, *, most: int = 64) -> Timeline:
    """Every pass of a step of one row, of at most `most` micro-batches."""
    run = pipelines(question, table.rows(np.array([row])), None)
    micro = run.micro[0]
    if micro > most:
        micro = max(most // run.group[0], 1) * run.group[0]
    return simulate(run.costs[0], micro, group=run.group[0], combined=run.combined[0])


def pipelines(question: Question, table: LayoutTable, timed: TimeTable | None) -> Pipelines:
    """What the simulation of each row needs."""
    timed = timed or step_time(question, table, all_stages(table.splits))
    steady = _chunk_costs(question, table)
    apart = replace(
        table, executions=tuple(replace(e, overlaps=e.overlaps - {"ep"}) for e in table.executions)
    )
    overlapped = flags(table, lambda e: "ep" in e.overlaps) & question.model.is_moe
    alone = _chunk_costs(question, apart) if overlapped.any() else steady
    message, blocking = boundary_message(question, table)
    micro = table.num_microbatches
    groups = [e.vp_group or 0 for e in table.executions]
    whole = question.calibration.factor("all")
    costs = []
    for row in range(len(table)):
        pp, vpp = int(table.pp[row]), int(table.vpp[row])
        shard = timed.sharding[row] / whole / micro[row] / vpp
        costs.append(
            PipelineCosts(
                forward=steady[0][row, :pp, :vpp] + shard / 3,
                backward=steady[1][row, :pp, :vpp] + shard * 2 / 3,
                alone_forward=alone[0][row, :pp, :vpp] + shard / 3,
                alone_backward=alone[1][row, :pp, :vpp] + shard * 2 / 3,
                message=float(message[row]),
                blocking=float(blocking[row]),
            )
        )
    return Pipelines(
        costs=tuple(costs),
        micro=tuple(int(m) for m in micro),
        group=tuple(int(groups[int(e)] or pp) for e, pp in zip(table.execution, table.pp, strict=True)),
        combined=tuple(bool(c) for c in overlapped),
    )


def _chunk_costs(question: Question, table: LayoutTable) -> tuple[Floats, Floats]:
    """Seconds of a forward and of a backward pass of each chunk of each stage. Each [N, S, C]"""
    keys = distinct_keys(table)
    counts = table.splits.counts[table.split].astype(np.float64)  # [N, S, C, K]
    held = np.asarray((counts > 0).any(axis=(0, 1, 2)))
    costs = block_costs(machine_for(question, keys), held)
    forward, backward = (
        np.asarray(np.einsum("nsck,nk->nsc", counts, side.sum(axis=2)[keys.of_row]))
        for side in (costs.forward, costs.backward)
    )
    return forward, backward
