"""What a search may propose, `check` accepts: for jobs drawn at random no rule of severity error speaks."""

import random
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import meshwright as mw
from meshwright.api.asking import ask, axes_of
from meshwright.errors import QuestionError
from meshwright.layout.rules import ALL_RULES, View, examine, legal_mask
from meshwright.planner.flags import combinations_of, savings_of
from meshwright.planner.space import geometries

MODELS = (
    "llama-3-8b", "llama-3-70b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3", "gpt-oss-20b",
    "olmoe-1b-7b", "mixtral-8x7b", "qwen3-next-80b-a3b", "gpt3-175b",
)  # fmt: skip
GPUS = ("H100", "A100-80GB", "B200", "GB200", "GB300", "H20", "L40S")
WORLDS = (1, 2, 8, 24, 32, 48, 64)
PRECISIONS = ("bf16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4", "fp16")
ELSEWHERE = [rule for rule in ALL_RULES if rule.severity == "error" and not rule.mask]
"""Rules that the search does not apply."""


def drawn(seed: int):
    draw = random.Random(seed)
    while True:
        options = mw.Options(
            precision=draw.choice(PRECISIONS),
            task=draw.choice(("pretrain", "pretrain", "sft", "lora")),
            seq_length=draw.choice((1000, 2048, 4096, 6144, 8192)),
            global_batch=draw.choice((16, 60, 96, 128, 512)),
            stack=draw.choice(("25.09", "26.02", "26.06", "26.08")),
            framework=draw.choice(("megatron-bridge", "megatron-lm", "megatron-core")),
            optimizer=draw.choice(("adam", "adam", "adam-precision-aware", "muon", "sgd")),
            grad_dtype=draw.choice(("fp32", "bf16")),
            free=draw.choice(((), ("all", "cuda_graphs", "distributed_optimizer"))),
        )
        yield draw.choice(MODELS), f"{draw.choice(WORLDS)}x{draw.choice(GPUS)}", options


def candidates(model: str, gpus: str, options: mw.Options, draw: random.Random):
    """A few of the layouts that a search would price, each with its flags and its pipeline layout."""
    asked = ask(model, gpus, options)
    question, axes = asked.question, axes_of(asked, options, fixed=False)
    space, flags, savings = (
        geometries(question, axes),
        combinations_of(axes),
        savings_of(question.model, axes),
    )
    for _ in range(12 if len(space) else 0):
        execution = draw.choice(savings).applied(draw.choice(flags).execution)
        rows = np.array([draw.randrange(len(space)) for _ in range(6)])
        table = replace(
            space.table.rows(rows), executions=(execution,), execution=np.zeros(len(rows), dtype=int)
        )
        legal, _ = legal_mask(question.model, question.cluster, question.job, table, question.stack)
        for row in np.flatnonzero(legal)[:2].tolist():
            pipeline = space.pipelines[int(space.pipeline[rows[row]])]
            uneven = question.model.num_layers % (pipeline.pp * pipeline.vpp) != 0
            yield question, table.layout(row), execution, pipeline.string() if uneven else ""


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_search_prices_breaks_no_rule(seed):
    judged, draw = 0, random.Random(seed)
    for model, gpus, options in islice(drawn(seed), 20):
        try:
            found = list(candidates(model, gpus, options, draw))
        except QuestionError:  # a GPU without such number formats
            continue
        for question, layout, execution, pipeline in found:
            view = View.of(
                {"pipeline_model_parallel_layout": pipeline} if pipeline else {},
                framework=question.stack.framework, release=question.stack.release, layout=layout,
                model=question.model, cluster=question.cluster, job=question.job, execution=execution,
            )  # fmt: skip
            broken = [one.message for one in examine(view, ELSEWHERE).findings]
            assert not broken, (model, gpus, options, layout, execution)
            judged += 1
    assert judged > 100


def test_the_first_five_plans_of_random_jobs_break_no_rule():
    judged = 0
    for model, gpus, options in islice(drawn(7), 8):
        if model == "deepseek-v3":
            continue
        try:
            plans = mw.plan(model, gpus, replace(options, free=()), top=5).plans
        except QuestionError:
            continue
        for one in plans:
            errors = [finding for finding in one.findings if finding.severity == "error"]
            assert not errors, (model, gpus, options, one.layout, errors)
            judged += 1
    assert judged > 10


def test_where_a_rule_refuses_the_whole_job_no_layout_is_shown_and_the_rule_is_named():
    options = mw.Options(
        seq_length=8192, global_batch=64, framework="megatron-lm", model_changes={"max_position": 4096}
    )
    answer = mw.plan("olmoe-1b-7b", "8xH100", options)
    assert not answer.plans
    assert "positions-cover-sequence" in answer.refused
