"""Rules worked out for many executions at once say what they say of one at a time."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Job, Stack
from meshwright.job.stacks import default_execution
from meshwright.layout.rules import legal_mask
from meshwright.layout.rules.product import legality
from meshwright.model.catalog import find
from meshwright.planner.flags import combinations_of, free_flags, savings_of
from meshwright.planner.space import Axes, geometries

MODELS = ("llama-3-8b", "olmoe-1b-7b", "deepseek-v2-lite")


@pytest.mark.parametrize("framework", ["megatron-bridge", "megatron-lm", "megatron-core"])
@pytest.mark.parametrize("name", MODELS)
def test_every_execution_gets_the_mask_and_the_refusals_it_gets_alone(name: str, framework: str):
    stack = Stack(framework=framework)
    asked = Question(
        model=find(name), cluster=parse_cluster("16xH100"), job=Job(seq_length=4096, global_batch=32),
        stack=stack,
    )  # fmt: skip
    base = default_execution(stack, asked.cluster.gpu, asked.model.is_moe, "bf16")
    axes = Axes(execution=base, flags=free_flags(base, ("all",)), mbs=(1, 2))
    space = geometries(asked, axes)
    executions = [
        saving.applied(one.execution)
        for saving in savings_of(asked.model, axes)
        for one in combinations_of(axes)
    ]
    found = legality(asked.model, asked.cluster, asked.job, space.table, stack, executions)
    assert 0 < found.legal.mean() < 1
    for number in np.random.default_rng(7).choice(len(executions), 12, replace=False).tolist():
        table = replace(space.table, executions=(executions[number],))
        mask, reasons = legal_mask(asked.model, asked.cluster, asked.job, table, stack)
        tried = np.zeros_like(found.legal)
        tried[number] = True
        assert np.array_equal(found.legal[number][found.of_row], mask)
        assert found.refused(tried) == reasons
