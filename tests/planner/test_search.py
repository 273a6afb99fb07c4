"""What must hold of a search, whatever the costs are."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.rules import View, check
from meshwright.model.catalog import find
from meshwright.planner.again import one_row
from meshwright.planner.search import search
from meshwright.planner.space import Axes, geometries


def question(name: str = "llama-3-8b", gpus: str = "16xH100", batch: int = 64) -> Question:
    return Question(
        model=find(name), cluster=parse_cluster(gpus), job=Job(seq_length=4096, global_batch=batch)
    )


NONE = Axes(recompute=(Recompute(),))


def test_the_best_of_a_loop_over_single_layouts_is_the_best_of_the_search():
    asked = question()
    table = geometries(asked, NONE)
    best = np.inf
    for row in range(len(table)):
        layout = table.layout(row)
        view = View.of(
            layout=layout, model=asked.model, cluster=asked.cluster, job=asked.job,
            framework="megatron-bridge", release="26.06",
        )  # fmt: skip
        if any(finding.severity == "error" for finding in check(view)):
            continue
        one = one_row(asked, layout, Execution(), None)
        if memory(asked, one, all_stages(one.splits)).may_fit[0]:
            best = min(best, float(step_time(asked, one, all_stages(one.splits)).step[0]))
    found = search(asked, NONE)
    assert found.step.min() == pytest.approx(best, rel=1e-12)


def test_more_memory_never_loses_a_layout():
    small = question("llama-3-70b", "32xH100", 128)
    gpu = replace(small.cluster.gpu, usable_memory=small.cluster.gpu.usable_memory * 1.2)
    large = replace(small, cluster=replace(small.cluster, gpu=gpu))
    rows = [
        {
            (*(int(getattr(found.table, n)[i]) for n in DEGREES), int(found.table.execution[i]))
            for i in range(found.fitting)
        }
        for found in (search(small, Axes()), search(large, Axes()))
    ]
    assert rows[0]
    assert rows[0] < rows[1]


def test_every_layout_that_is_found_divides_the_world_and_the_batch():
    asked = question("qwen3-30b-a3b", "16xH100", 512)
    table = search(asked, Axes()).table
    for row in range(0, len(table), 37):
        layout: Layout = table.layout(row)
        assert 16 % layout.min_gpus == 0
        assert 512 % (layout.mbs * layout.dp(16)) == 0
        assert 128 % layout.ep == 0


def test_a_fixed_axis_stays_fixed_and_a_list_stays_within_it():
    table = search(question(), Axes(tp=(2,), pp=(1, 2))).table
    assert set(table.tp.tolist()) == {2}
    assert set(table.pp.tolist()) <= {1, 2}


def test_where_nothing_fits_the_layout_that_needs_least_is_shown():
    found = search(question("llama-3.1-405b", "8xA100-40GB", 8), Axes())
    assert found.fitting == 0
    assert len(found.table) == 1
    assert found.peak[0] > found.table.world[0]
