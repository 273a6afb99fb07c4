"""The layout of a run whose row states none: the one that a plan for its job would put first."""

from __future__ import annotations

from meshwright.cost.question import Question
from meshwright.errors import LayoutError
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.planner.search import search
from meshwright.planner.space import Axes

Chosen = tuple[Layout, Execution, PipelineLayout | None]


def chosen_layout(question: Question, execution: Execution, micro_batch: int | None) -> Chosen:
    """The fastest layout that fits, the micro-batch [samples] held where it is stated; LayoutError: none."""
    axes = Axes(execution=execution, mbs=(micro_batch,) if micro_batch else None)
    found = search(question, axes)
    if not found.fitting:
        raise LayoutError(
            f"the row states no layout, and none of the {found.searched:,} that {question.model.name} has on "
            f"{question.cluster.world:,} GPUs fits"
        )
    table = found.table
    layout = table.layout(0)
    pipeline = table.splits.layouts[int(table.split[0])]
    return layout, table.executions[int(table.execution[0])], PipelineLayout.parse(pipeline, layout.pp)
