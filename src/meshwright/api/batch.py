"""`estimate --batch`: a prediction for every run of a table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from meshwright.api.planning import findings_of
from meshwright.cluster.spec import GIB
from meshwright.cost.memory import memory
from meshwright.cost.simulation import simulated_step
from meshwright.cost.stages import all_stages
from meshwright.errors import MeshwrightError, QuestionError
from meshwright.planner.batch import Run, Unreadable, read_batch

COLUMNS = (
    "id", "valid", "why_not", "peak_gib", "verdict", "step_seconds", "low_seconds", "high_seconds",
    "tokens_per_second_per_gpu", "peak_allocated_gib", "last_stage_allocated_gib", "assumed",
)  # fmt: skip


def estimate_batch(
    runs: Path, settings: Path | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, object]]:
    """One predicted row for each run of a CSV table with the columns of published throughput or memory rows.

    settings  a table of execution settings, joined by `id`
    A run whose layout breaks a rule is not valid and says why; it is priced all the same where it can be.
    A run that states no layout, or no interleaving where its framework interleaves, takes what a plan would
    choose, and says so under `assumed`.
    """
    for number, run in enumerate(read_batch(runs, settings, choose=True), 1):
        if isinstance(run, Unreadable):
            yield {"id": run.id, "valid": False, "why_not": run.why}
        else:
            yield _row(run)
        if progress is not None:
            progress(number)


def _row(run: Run) -> dict[str, object]:
    try:
        run.layout.check_world(run.question.cluster.world)  # what cannot be divided cannot be priced
        table = run.table()
        uneven = run.question.model.num_layers % (run.layout.pp * run.layout.vpp) != 0
        pipeline = table.splits.layouts[0] if uneven or run.pipeline is not None else ""
        found = findings_of(run.question, run.layout, run.execution, pipeline)
        broken = [finding.message for finding in found if finding.severity == "error"]
        view = all_stages(table.splits)
        used = memory(run.question, table, view)
        timed = simulated_step(run.question, table)
    except MeshwrightError as error:
        return {"id": run.id, "valid": False, "why_not": str(error)}
    step = float(timed.step[0])
    stages = int(used.exists[0].sum())
    return {
        "id": run.id,
        "valid": not broken,
        "why_not": "; ".join(broken),
        "peak_gib": float(used.peak[0]) / GIB,
        "verdict": str(used.verdicts()[0]),
        "step_seconds": step,
        "low_seconds": step / (1 + timed.band),
        "high_seconds": step * (1 + timed.band),
        "tokens_per_second_per_gpu": run.question.job.tokens_per_step / step / run.question.cluster.world,
        "peak_allocated_gib": float(used.allocated[0, :stages].max()) / GIB,
        "last_stage_allocated_gib": float(used.allocated[0, stages - 1]) / GIB,
        "assumed": f"layout {_short(run)}: not stated by the row" if run.chosen else "",
    }


def _short(run: Run) -> str:
    degrees = {name: getattr(run.layout, name) for name in run.chosen}
    return " ".join(f"{name}={value}" for name, value in degrees.items() if value > 1 or name == "mbs")


def write_batch(
    runs: Path, out: Path, settings: Path | None = None, progress: Callable[[int], None] | None = None
) -> int:
    """Write the predictions of `estimate_batch` as CSV; the number of rows."""
    number = 0
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for row in estimate_batch(runs, settings, progress):
                writer.writerow(row)
                number += 1
    except OSError as error:
        raise QuestionError(f"{out} cannot be written: {error.strerror}") from None
    return number
