"""A question and a layout from the JSON of an answer: what makes every answer reproducible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshwright.cluster.spec import Cluster, Gpu
from meshwright.cost.calibration import Calibration, default_calibration
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job, Recompute, Rollout, Stack
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import PipelineLayout, split_table
from meshwright.layout.table import LayoutTable
from meshwright.model.serial import from_dict


def read_again(data: Mapping[str, Any]) -> tuple[Question, Layout, Execution, PipelineLayout | None]:
    """Question, layout, flags and pipeline layout of an answer; QuestionError where the JSON lacks any."""
    try:
        layout = Layout(**{name: data["layout"][name] for name in DEGREES}, sp=data["layout"]["sp"])
        row = dict(data["execution"])
        text = row.pop("pipeline_layout")
        row.setdefault("expert_imbalance", row.pop("imbalance", 1.0))
        recompute = Recompute(
            **{**row.pop("recompute"), "modules": tuple(data["execution"]["recompute"]["modules"])}
        )
        sets = {
            "overlaps": frozenset(row["overlaps"]),
            "offload_modules": tuple(row.get("offload_modules", ())),
        }
        execution = Execution(**{**row, **sets, "recompute": recompute})
        pipeline = PipelineLayout.parse(text, layout.pp) if text else None
        return question_from(data), layout, execution, pipeline
    except (KeyError, TypeError) as error:
        raise QuestionError(f"the JSON of the answer lacks or misnames {error}") from None


def question_from(data: Mapping[str, Any]) -> Question:
    """The question of an answer."""
    job = dict(data["job"])
    stack = Stack(
        release=job.pop("stack"),
        framework=job.pop("framework"),
        framework_version=job.pop("framework_version", None),
    )
    row = data["cluster"]
    gpu = dict(row["gpu_description"])
    gpu |= {name: tuple(gpu[name]) for name in ("sources", "aliases")}
    cluster = Cluster(
        gpu=Gpu(**gpu), nodes=row["nodes"], gpus_per_node=row["gpus_per_node"],
        nvlink_domain=row["nvlink_domain"], network=row["network_gbps"] * 1e9 / 8,
    )  # fmt: skip
    learned = data.get("calibration")
    calibration = default_calibration()
    if learned:
        calibration = Calibration(**{**learned, "time_band": tuple(learned["time_band"])})
    if job.get("rollout"):
        job["rollout"] = Rollout(**job["rollout"])
    return Question(
        model=from_dict(data["model"]["description"]), cluster=cluster, job=Job(**job), stack=stack,
        calibration=calibration,
    )  # fmt: skip


def one_row(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None
) -> LayoutTable:
    """A table of the one layout."""
    splits, codes = split_table(question.model, [(layout.pp, layout.vpp, pipeline, execution.recompute)])
    degrees = {name: np.array([getattr(layout, name)], dtype=np.int64) for name in DEGREES}
    return LayoutTable(
        world=np.array([question.cluster.world]), gbs=np.array([question.job.global_batch]), **degrees,
        sp=np.array([layout.sp]), execution=np.zeros(1, dtype=np.int64), executions=(execution,),
        split=codes, splits=splits,
    )  # fmt: skip
