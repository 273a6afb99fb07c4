"""Answers with more in them: where the step goes, and what a token budget takes."""

from __future__ import annotations

from dataclasses import replace

from meshwright.planner.answer import Estimate, Plans, layout_of, said_pipeline
from meshwright.planner.budget import budget, read_tokens
from meshwright.planner.explaining import explained


def with_explanation(answer: Estimate) -> Estimate:
    """The estimate with its explanation; unchanged where the layout cannot start."""
    if answer.time is None:
        return answer
    found = explained(answer.question, layout_of(answer), answer.execution, said_pipeline(answer))
    return replace(answer, explanation=found)


def with_budget(answer: Estimate, tokens: float | str) -> Estimate:
    """The estimate with the days and GPU hours of `tokens` (a number, or "15T")."""
    number = read_tokens(tokens) if isinstance(tokens, str) else tokens
    timed, question = answer.time, answer.question
    if timed is None:
        return answer
    found = budget(
        question.cluster, question.job.tokens_per_step, timed.step_seconds, timed.low_seconds,
        timed.high_seconds, number,
    )  # fmt: skip
    return replace(answer, budget=found)


def told_more(answer: Plans, *, explain: bool = False, tokens: float | str | None = None) -> Plans:
    """Plans whose first is explained, and each with its budget."""
    plans = answer.plans
    if explain and plans:
        plans = (with_explanation(plans[0]), *plans[1:])
    if tokens is not None:
        plans = tuple(with_budget(one, tokens) for one in plans)
    return replace(answer, plans=plans)
