"""Asking for the memory of one layout in a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.memory import MemoryTable, memory
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView, all_stages
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.table import LayoutTable
from meshwright.model.catalog import find
from meshwright.model.spec import Model
from meshwright.planner.again import one_row


@dataclass(frozen=True)
class Asked:
    question: Question
    table: LayoutTable
    view: StageView
    memory: MemoryTable

    def state(self, stage: int = 0) -> float:
        return sum(float(self.memory.terms[name][0, stage]) for name in ("weights", "gradients", "optimizer"))


Ask = Callable[..., Asked]


@pytest.fixture(scope="session")
def ask() -> Ask:
    def answer(
        model: str | Model,
        gpus: str,
        layout: Layout,
        *,
        seq: int = 4096,
        batch: int = 64,
        execution: Execution | None = None,
        pipeline: PipelineLayout | None = None,
        **job: object,
    ) -> Asked:
        described = find(model) if isinstance(model, str) else model
        question = Question(
            model=described,
            cluster=parse_cluster(gpus),
            job=Job(seq_length=seq, global_batch=batch, **job),
        )
        table = one_row(question, layout, execution or Execution(), pipeline)
        view = all_stages(table.splits)
        return Asked(question, table, view, memory(question, table, view))

    return answer
