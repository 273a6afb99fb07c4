"""Step times of runs from the cost model: the same function that every plan uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshwright.cost.calibration import Calibration
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TimeTable, step_time
from meshwright.planner.again import one_row
from rows import Run


def time_of(run: Run, calibration: Calibration | None = None) -> TimeTable:
    """The time table of one run."""
    question = run.question if calibration is None else replace(run.question, calibration=calibration)
    table = one_row(question, run.layout, run.execution, run.pipeline)
    return step_time(question, table, all_stages(table.splits))


def predict(runs: Sequence[Run], calibration: Calibration | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and relative band of each run. [N], [N]"""
    tables = [time_of(run, calibration) for run in runs]
    return np.array([t.step[0] for t in tables]), np.array([t.band for t in tables])
