"""The layout of a run whose row states none: the one that a plan for its job would put first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import LayoutError
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout, split_table
from meshwright.planner.again import one_row
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


def chosen_vpp(question: Question, layout: Layout, execution: Execution) -> int:
    """The model chunks a pipeline rank with which a layout is fastest; 1 where nothing else is even."""
    layers, world, batch = question.model.num_layers, question.cluster.world, question.job.global_batch
    if layout.num_microbatches(world, batch) % layout.pp:
        return 1  # interleaving takes micro-batches by the pipeline's width
    even = [vpp for vpp in range(1, layers // layout.pp + 1) if layers % (layout.pp * vpp) == 0]
    if not even:
        return 1
    splits = [(layout.pp, vpp, None, execution.recompute) for vpp in even]
    table = one_row(question, layout, execution, None).rows(np.zeros(len(even), dtype=np.int64))
    views, codes = split_table(question.model, splits)
    table = replace(table, vpp=np.array(even), splits=views, split=codes)
    return even[int(step_time(question, table, all_stages(views)).step.argmin())]
