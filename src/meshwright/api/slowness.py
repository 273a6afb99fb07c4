"""Where a logged run spent its time: what the log shows, and what its flags cost by the cost model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from meshwright.api.picturing import pipeline_of
from meshwright.errors import MeshwrightError
from meshwright.job.spec import Execution, Granularity, Recompute
from meshwright.layout.layout import Layout
from meshwright.planner.again import one_row
from meshwright.planner.answer import Estimate, estimates, layout_of
from meshwright.verify.log_judge import Judgement
from meshwright.verify.logs import RunLog
from meshwright.verify.slowdown import OVERLAPS, Cause, Speed, is_off, speed


def speed_of(judgement: Judgement, answer: Estimate | None = None) -> Speed | None:
    """How fast a judged run was, and why no faster; against the plan where it is known.

    None where the log holds no step times. With the plan, a flag of the log that is not the plan's is
    priced: its seconds are the step with it less the step without.
    """
    if answer is None or answer.time is None:
        return speed(judgement.log)
    predicted = (answer.time.step_seconds, answer.time.high_seconds)
    return speed(judgement.log, predicted, tuple(priced_differences(judgement.log, answer)))


def priced_differences(log: RunLog, answer: Estimate) -> Iterator[Cause]:
    """What the run does otherwise than the plan, each difference by itself, in seconds a step."""
    layout, execution = layout_of(answer), answer.execution
    for words, changed, flags in _differences(log, layout, execution):
        seconds = _step(answer, changed, flags)
        base = answer.time.step_seconds if answer.time else 0.0
        if seconds is None or seconds > base:
            yield Cause("flags", words, None if seconds is None else seconds - base)


def _differences(
    log: RunLog, layout: Layout, execution: Execution
) -> Iterator[tuple[str, Layout, Execution]]:
    lost: dict[str, list[str]] = {}
    for option, (degree, overlap, _) in OVERLAPS.items():
        if (
            overlap in execution.overlaps
            and is_off(log.options.get(option))
            and log.degrees.get(degree, 2) > 1
        ):
            lost.setdefault(overlap, []).append(option)
    for overlap, options in lost.items():
        words = f"{' and '.join(options)} {'is' if len(options) == 1 else 'are'} off and on in the plan"
        yield words, layout, replace(execution, overlaps=execution.overlaps - {overlap})
    recompute = _recompute(log)
    if recompute is not None and recompute.granularity != execution.recompute.granularity:
        words = f"recomputes {recompute}, the plan {execution.recompute}"
        yield words, layout, replace(execution, recompute=recompute)
    mbs = log.degrees.get("mbs")
    if mbs and mbs != layout.mbs:
        yield f"micro-batch {mbs}, the plan's is {layout.mbs}", replace(layout, mbs=mbs), execution


def _recompute(log: RunLog) -> Recompute | None:
    """The recomputation that the log states; None where it does not."""
    said = log.options.get("recompute_granularity")
    if said is None:
        return None
    if said not in get_args(Granularity):
        return Recompute()
    modules = ("core_attn",) if said == "selective" else ()
    return Recompute(granularity=said, modules=modules)  # type: ignore[arg-type]


def _step(answer: Estimate, layout: Layout, execution: Execution) -> float | None:
    """Seconds of a step of the plan with one thing changed; None where it cannot be priced."""
    try:
        changed = estimates(answer.question, one_row(answer.question, layout, execution, pipeline_of(answer)))
    except (MeshwrightError, ArithmeticError, ValueError):
        return None
    return changed[0].time.step_seconds if changed[0].time else None
