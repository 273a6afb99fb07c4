"""Asking for the time of one layout in a line."""

from __future__ import annotations

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.calibration import Calibration, default_calibration
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TimeTable, step_time
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.table import LayoutTable
from meshwright.model.catalog import find
from meshwright.model.spec import Model
from meshwright.planner.again import one_row

PLAIN = Calibration()
"""No factor: the physics and the tables alone."""


def ask(
    model: str | Model, gpus: str, layout: Layout, *, seq: int = 4096, batch: int = 64,
    execution: Execution | None = None, pipeline: PipelineLayout | None = None,
    calibration: Calibration | None = None, **job: object,
) -> tuple[Question, LayoutTable]:  # fmt: skip
    described = find(model) if isinstance(model, str) else model
    question = Question(
        model=described, cluster=parse_cluster(gpus),
        job=Job(seq_length=seq, global_batch=batch, **job),  # type: ignore[arg-type]
        calibration=calibration or default_calibration(),
    )  # fmt: skip
    return question, one_row(question, layout, execution or Execution(), pipeline)


def times(*args: object, **kwargs: object) -> TimeTable:
    question, table = ask(*args, **kwargs)  # type: ignore[arg-type]
    return step_time(question, table, all_stages(table.splits))


def seconds(*args: object, **kwargs: object) -> float:
    return float(times(*args, **kwargs).step[0])
