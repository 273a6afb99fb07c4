"""`plan`, `fit`, `estimate`: layouts of one model on one cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from meshwright.api.asking import Asked, Options, ask, axes_of, names_of, practice
from meshwright.api.memory import first_with_detail, setting_of, with_memory_detail
from meshwright.cluster.spec import GIB, Cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.defaults import Assumption
from meshwright.job.spec import Execution
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.rules import Finding, View
from meshwright.layout.rules import check as check_rules
from meshwright.layout.rules import rule as find_rule
from meshwright.model.spec import Model
from meshwright.planner.again import one_row, read_again
from meshwright.planner.answer import Estimate, Plans, degrees, estimates, layout_of
from meshwright.planner.memory_detail import words
from meshwright.planner.nearby import advice
from meshwright.planner.objectives import front_told
from meshwright.planner.reasons import binding, reasons_of
from meshwright.planner.references import references
from meshwright.planner.remedies import Remedy, remedies
from meshwright.planner.repricing import shown_rows
from meshwright.planner.search import Found, Progress, search
from meshwright.planner.space import Axes


def plan(
    model: str | Model, gpus: str | Cluster, options: Options | None = None, *, top: int = 5,
    variants: bool = False, progress: Progress | None = None,
) -> Plans:  # fmt: skip
    """The best layouts of a model on a cluster, fastest first; ties are marked.

    Shown is the best of each way to divide (tp, pp, cp, ep, etp, fsdp); with `variants` every layout is
    shown that differs in anything (vpp, micro-batch, recompute, flags). An interrupt (Ctrl-C) while layouts
    are priced ends the search with what it had found: `partial` is set.
    """
    start = time.perf_counter()
    options = options or Options()
    asked = ask(model, gpus, options)
    axes = axes_of(asked, options, fixed=False)
    found = search(asked.question, axes, progress, practice(asked))
    answer = plans_of(asked, found, top, time.perf_counter() - start, variants=variants)
    if found.partial:
        return first_with_detail(answer)
    if not len(found.table) and not found.reasons:
        return replace(answer, advice=_why_none(asked, axes))
    return first_with_detail(_beside(asked, axes, found, answer))


def _why_none(asked: Asked, axes: Axes) -> tuple[str, ...]:
    """Why the degrees that were given leave no layout: what the rules say of them, the others being 1."""
    given = {name: values[0] if (values := getattr(axes, name)) else 1 for name in DEGREES}
    layout = Layout(**given, sp=given["tp"] > 1)
    broken = findings_of(asked.question, layout, asked.execution, "")
    return tuple(f"{one.message}; {one.fix}" for one in broken if one.severity == "error")


def _beside(asked: Asked, axes: Axes, found: Found, answer: Plans) -> Plans:
    """What others would have chosen, and what to change about the question."""
    question = asked.question
    others = (
        references(question, axes, found, names_of(question.model), answer.best) if len(found.table) else ()
    )
    told = [{"text": str(one), **one.as_dict(), "estimate": None} for one in others]
    advised = [*advice(question, axes, found)]
    best = answer.best
    if not found.fitting and best is not None:
        advised += [_remedy(one) for one in remedies(question, setting_of(best), most=5)]
    return replace(answer, references=tuple(told), advice=tuple(advised))


def _remedy(one: Remedy) -> str:
    slower = "" if one.slower is None else f", {one.slower:+.0%} step time"
    return f"{words(one.options)}: {one.peak / GIB:.1f} GiB ({one.verdict}){slower}; {one.why}"


def plans_of(asked: Asked, found: Found, top: int, seconds: float, *, variants: bool = False) -> Plans:
    """The best rows of a search as answers, simulated and ranked again."""
    rows, ties = shown_rows(asked.question, found, top, practice(asked), variants=variants)
    answers = estimates(asked.question, found.table.rows(rows)) if len(rows) else ()
    why = reasons_of(found, rows.tolist(), asked.question) if found.fitting else ((),) * len(answers)
    told = [
        _told(asked, answer, tied=number < ties and found.ties > 1, why=own)
        for number, (answer, own) in enumerate(zip(answers, why, strict=True))
    ]
    return Plans(
        plans=tuple(told), ties=found.ties, searched=found.searched, scored=found.scored,
        valid=found.valid, fitting=found.fitting, seconds=seconds, refused=found.reasons,
        partial=found.partial, front=front_told(found, asked.question),
    )  # fmt: skip


def _told(asked: Asked, answer: Estimate, *, tied: bool, why: tuple[str, ...]) -> Estimate:
    """An estimate with its assumptions, findings, binding and reasons."""
    more = _layout_assumptions(asked.question.model, answer)
    uneven = answer.pipeline_layout if more else ""
    found = _findings(asked, layout_of(answer), answer.execution, uneven)
    findings = tuple(one for one in found if not find_rule(one.rule).searched)
    return replace(
        answer, tied=tied, reasons=why, binding=binding(answer), assumptions=(*asked.assumptions, *more),
        findings=findings,
    )  # fmt: skip


def _layout_assumptions(model: Model, answer: Estimate) -> tuple[Assumption, ...]:
    """A pipeline layout that is not Megatron's even one is said."""
    layout = answer.layout
    if not _uneven(model, layout_of(answer), answer.pipeline_layout):
        return ()
    why = f"{model.num_layers} layers do not divide over pp {layout.pp} x vpp {layout.vpp}"
    if model.num_layers % (layout.pp * layout.vpp) == 0:
        why = "it balances the embedding and the head, which an even split leaves on the ends"
    why = f"automatic: {why}"
    return (Assumption(option="--pipeline-layout", value=answer.pipeline_layout, source=why),)


def _uneven(model: Model, layout: Layout, pipeline: str) -> bool:
    """Whether a layout string is another than the split Megatron makes by itself."""
    if layout.pp == 1 or not pipeline or model.num_layers % (layout.pp * layout.vpp):
        return bool(pipeline) and layout.pp > 1
    even = PipelineLayout.even(model.num_layers, layout.pp, layout.vpp, len(model.mtp))
    return not model.is_hybrid and pipeline != even.string()


def _findings(asked: Asked, layout: Layout, execution: Execution, pipeline: str) -> tuple[Finding, ...]:
    return findings_of(asked.question, layout, execution, pipeline)


def findings_of(
    question: Question, layout: Layout, execution: Execution, pipeline: str
) -> tuple[Finding, ...]:
    """What the rules say of a layout; `pipeline` is its layout string where it is not Megatron's even one."""
    said = {"pipeline_model_parallel_layout": pipeline} if pipeline else {}
    view = View.of(
        said, framework=question.stack.framework, version=question.stack.framework_version,
        release=question.stack.release, layout=layout, model=question.model, cluster=question.cluster,
        job=question.job, execution=execution,
    )  # fmt: skip
    return check_rules(view)


def estimate(model: str | Model, gpus: str | Cluster, options: Options | None = None) -> Estimate:
    """Memory and time of one layout, term by term; degrees not named are 1."""
    options = options or Options()
    asked = ask(model, gpus, options)
    axes = axes_of(asked, options, fixed=True)
    several = [name for name in DEGREES if len(getattr(axes, name) or ()) != 1]
    if several:
        raise QuestionError(f"estimate takes one layout; {', '.join(several)} has several values (use plan)")
    listed = [name for name in options.execution if len(axes.flags.get(name, ())) > 1]
    if listed:
        raise QuestionError(f"estimate takes one layout; {', '.join(listed)} has several values (use plan)")
    sp = axes.sp if axes.sp is not None else axes.tp != (1,)
    layout = Layout(**{name: getattr(axes, name)[0] for name in DEGREES}, sp=sp)
    pipeline = axes.pipeline or default_pipeline(asked.question.model, layout.pp, layout.vpp)
    text = pipeline.string() if pipeline is not None else ""
    uneven = text if _uneven(asked.question.model, layout, text) else ""
    findings = _findings(asked, layout, asked.execution, uneven)
    if any(finding.severity == "error" for finding in findings):
        return _refused(asked, layout, findings, axes)
    found = search(asked.question, axes)
    if not len(found.table):
        return _refused(asked, layout, findings, axes)
    answer = estimates(asked.question, found.table.rows(slice(0, 1)))[0]
    return with_memory_detail(_told(asked, answer, tied=False, why=()))


def _refused(asked: Asked, layout: Layout, findings: tuple[Finding, ...], axes: Axes) -> Estimate:
    """A layout that cannot start: what is known of it stays, memory and time are absent."""
    question = asked.question
    pipeline = axes.pipeline or default_pipeline(question.model, layout.pp, layout.vpp)
    return Estimate(
        question=question, execution=asked.execution,
        layout=degrees(layout, question.cluster.world, question.job.global_batch),
        pipeline_layout=pipeline.string() if pipeline is not None and layout.pp > 1 else "",
        min_gpus=layout.min_gpus, guide_min_gpus=layout.guide_min_gpus, wrong_product=layout.wrong_product,
        valid=False, findings=findings, assumptions=asked.assumptions,
    )  # fmt: skip


def estimate_again(data: Mapping[str, object]) -> Estimate:
    """The estimate of an answer's own JSON: the same layout, flags and question, and so the same numbers."""
    try:
        return _again(data)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise QuestionError(
            f"the JSON is not an answer as `plan --json` writes it: {type(error).__name__} {str(error)[:120]}"
        ) from None


def _again(data: Mapping[str, object]) -> Estimate:
    question, layout, execution, pipeline = read_again(data)
    asked = Asked(question=question, execution=execution, assumptions=())
    findings = _findings(asked, layout, execution, pipeline.string() if pipeline is not None else "")
    if any(finding.severity == "error" for finding in findings):
        return _refused(asked, layout, findings, Axes(pipeline=pipeline))
    answer = estimates(question, one_row(question, layout, execution, pipeline))[0]
    return with_memory_detail(_told(asked, answer, tied=False, why=()))
