"""The memory of an answer in detail, and what to change where it does not surely fit."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost.oom import read_out_of_memory
from meshwright.planner.answer import Estimate, Plans, layout_of, said_pipeline
from meshwright.planner.memory_detail import memory_detail
from meshwright.planner.out_of_memory import Diagnosis, stage_of
from meshwright.planner.remedies import Setting, remedies

MOST_REMEDIES = 8


def setting_of(answer: Estimate) -> Setting:
    """What of an estimate a remedy may change."""
    return Setting(
        job=answer.question.job, layout=layout_of(answer), execution=answer.execution,
        pipeline=said_pipeline(answer),
    )  # fmt: skip


def with_memory_detail(answer: Estimate) -> Estimate:
    """The answer with its peaks told apart, host memory, a timeline, and remedies where it needs any."""
    if answer.memory is None:
        return answer
    now = setting_of(answer)
    needed = answer.memory.verdict != "fits"
    changes = remedies(answer.question, now, most=MOST_REMEDIES) if needed else ()
    found = memory_detail(answer.question, now.layout, now.execution, now.pipeline, changes)
    return replace(answer, detail=found)


def first_with_detail(plans: Plans) -> Plans:
    """The plans, the first of them with its memory in detail."""
    if not plans.plans:
        return plans
    return replace(plans, plans=(with_memory_detail(plans.plans[0]), *plans.plans[1:]))


def diagnose(log: str, plan: Estimate | None = None) -> Diagnosis:
    """The out-of-memory error of a log: part of the step, causes, remedies; with the run's plan, numbers too.

    log   text of a log, or of the message alone
    plan  the run's own layout as an estimate: what was predicted, and changes with their price
    """
    error = read_out_of_memory(log)
    if plan is None:
        return Diagnosis(error=error)
    now = with_memory_detail(plan)
    if now.memory is not None and now.detail is not None and not now.detail.remedies:
        # it ran out although it should fit: changes are wanted all the same
        changes = remedies(now.question, setting_of(now), most=MOST_REMEDIES)
        now = replace(now, detail=replace(now.detail, remedies=changes))
    return Diagnosis(error=error, plan=now, stage=stage_of(error.rank, now))
