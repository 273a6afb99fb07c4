"""`pictures`, `timeline`, `report`: a finished answer made visible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.cost.simulation import pipelines
from meshwright.cost.stages import all_stages
from meshwright.cost.timeline import timeline as stage_memory
from meshwright.cost.traffic import traffic
from meshwright.errors import LayoutError, QuestionError, did_you_mean
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.ranks import RankGrid
from meshwright.layout.table import LayoutTable
from meshwright.planner.again import one_row
from meshwright.planner.answer import Estimate, Plans, layout_of, said_pipeline
from meshwright.planner.values import table as space_table
from meshwright.report.html import Written, report_page
from meshwright.report.passes import MemoryCurve, Tail, Timeline
from meshwright.report.schedule import lay_out, microbatches_drawn
from meshwright.report.svg.blocks import blocks_picture
from meshwright.report.svg.draw import WIDTH, Picture
from meshwright.report.svg.grid import grid_picture
from meshwright.report.svg.memory import memory_picture
from meshwright.report.svg.memory_over import memory_over_picture
from meshwright.report.svg.scaling import Size, scaling_picture
from meshwright.report.svg.scatter import Point, scatter_picture
from meshwright.report.svg.timeline import timeline_picture
from meshwright.report.svg.volume import volume_picture
from meshwright.report.svg.waterfall import waterfall_picture
from meshwright.report.terminal import plan_words
from meshwright.report.trace import chrome_trace

GROUPS = ("tp", "cp", "dp", "dp-cp", "pp", "ep", "etp", "edp")
"""Kinds of groups that the rank grid can be coloured by."""


MOST_STEP = 1.6
"""Of the search's front, layouts are drawn that take at most this many times the fastest step."""

PICTURES = ("memory", "step", "ranks", "timeline", "memory-over", "pipeline", "traffic")
"""Names of the pictures of one layout; one that cannot start has none."""


def pipeline_of(answer: Estimate) -> PipelineLayout:
    """The pipeline layout of an answer, that of one stage included."""
    layout = answer.layout
    found = said_pipeline(answer) or default_pipeline(answer.question.model, layout.pp, layout.vpp)
    if found is None:
        raise LayoutError(f"no split of the layers over pp {layout.pp} x vpp {layout.vpp}")
    return found


def grid_of(answer: Estimate) -> RankGrid:
    """The rank grid of an answer on its cluster."""
    cluster = answer.question.cluster
    return RankGrid(
        layout=layout_of(answer), world=cluster.world, gpus_per_node=cluster.gpus_per_node,
        nvlink_domain=cluster.nvlink_domain,
    )  # fmt: skip


def timeline(answer: Estimate) -> Timeline:
    """The passes of one step of a layout that can start; of very many micro-batches, some."""
    if answer.time is None:
        raise LayoutError("a layout that cannot start has no timeline")
    question, layout, terms = answer.question, answer.layout, answer.time.terms
    table = one_row(question, layout_of(answer), answer.execution, pipeline_of(answer))
    run = pipelines(question, table, None)
    costs, micro, factor = run.costs[0], run.micro[0], question.calibration.factor("all")
    sent = sum(terms.get(name, 0.0) for name in ("tp", "cp", "ep"))
    passes = float(costs.forward.sum() + costs.backward.sum()) * factor * micro / layout.pp
    tail = (
        Tail(words="gradients and parameters", communication=True, seconds=terms.get("dp", 0.0)),
        Tail(words="optimizer", communication=False, seconds=terms.get("optimizer", 0.0)),
        Tail(words="fixed work of a step", communication=False, seconds=terms.get("fixed", 0.0)),
    )
    return lay_out(
        costs, micro, _microbatches_drawn(answer), group=run.group[0], combined=run.combined[0],
        scale=factor, busy=min(sent / passes, 1.0) if passes else 0.0,
        tail=tuple(one for one in tail if one.seconds > 0),
    )  # fmt: skip


def _microbatches_drawn(answer: Estimate) -> int:
    layout = answer.layout
    group = answer.execution.vp_group or layout.pp
    return microbatches_drawn(layout.pp, layout.vpp, int(layout.num_microbatches), group)


def _short_step(answer: Estimate) -> LayoutTable:
    """The layout as a table of one row, with as many micro-batches as can be drawn."""
    question, layout = answer.question, layout_of(answer)
    batch = _microbatches_drawn(answer) * layout.mbs * layout.dp(question.cluster.world)
    return one_row(
        replace(question, job=replace(question.job, global_batch=batch)), layout, answer.execution,
        pipeline_of(answer),
    )  # fmt: skip


def memory_curves(answer: Estimate) -> tuple[MemoryCurve, ...]:
    """Memory over the step of the first, the middle, the last and the fullest stage."""
    if answer.memory is None:
        raise LayoutError("a layout that cannot start holds no memory")
    laid, table, stages = timeline(answer), _short_step(answer), answer.memory.per_stage
    view = all_stages(table.splits)
    fullest = max(range(len(stages)), key=lambda index: stages[index].total_bytes)
    curves = []
    for stage in sorted({0, len(stages) // 2, len(stages) - 1, fullest}):
        held = stage_memory(answer.question, table, view, stage=stage)
        outside = stages[stage].total_bytes - stages[stage].allocated_bytes
        points = [(0.0, held.floor)]
        for one, peak, after in zip(laid.of_rank(stage), held.peak.tolist(), held.held.tolist(), strict=True):
            points += [(one.start, points[-1][1]), (one.start, peak), (one.end, peak), (one.end, after)]
        points += [(laid.end, points[-1][1]), (laid.end, held.update), (laid.whole, held.update)]
        curves.append(MemoryCurve(stage=stage, points=tuple((at, size + outside) for at, size in points)))
    return tuple(curves)


def trace(answer: Estimate) -> dict[str, Any]:
    """One step as a trace for Perfetto (chrome://tracing), with the memory of some stages."""
    return chrome_trace(timeline(answer), memory_curves(answer))


def pictures(
    answer: Estimate, *, width: float = WIDTH, group: str | None = None, names: Sequence[str] | None = None
) -> tuple[Picture, ...]:
    """Every picture of one layout; `names` picks some, `group` colours the rank grid."""
    for name in names or ():
        if name not in PICTURES:
            raise QuestionError(f"unknown picture {name[:60]!r}{did_you_mean(name[:60], PICTURES)}")
    drawn = _drawers(answer, width, group)
    return tuple(draw() for name, draw in drawn.items() if names is None or name in names)


def _drawers(answer: Estimate, width: float, group: str | None) -> Mapping[str, Callable[[], Picture]]:
    memory, timed = answer.memory, answer.time
    drawn: dict[str, Callable[[], Picture]] = {}
    if memory is None or timed is None:
        return drawn
    drawn["memory"] = lambda: memory_picture(memory, width)
    drawn["step"] = lambda: waterfall_picture(timed, width)
    drawn["ranks"] = lambda: grid_picture(grid_of(answer), group or _telling(answer), width)
    drawn["timeline"] = lambda: timeline_picture(timeline(answer), width)
    drawn["memory-over"] = lambda: memory_over_picture(memory_curves(answer), memory.usable_bytes, width)
    drawn["pipeline"] = lambda: blocks_picture(pipeline_of(answer), width)
    drawn["traffic"] = lambda: volume_picture(
        traffic(answer.question, layout_of(answer), answer.execution, pipeline_of(answer), grid_of(answer)),
        width,
    )
    return drawn


def _telling(answer: Estimate) -> str:
    """The kind of group that says most about this layout."""
    layout = answer.layout
    sizes = {"tp": layout.tp, "ep": layout.ep, "cp": layout.cp, "pp": layout.pp}
    return next((name for name, size in sizes.items() if size > 1), "dp-cp")


def ranking(answer: Plans, *, chosen: int = 0, width: float = WIDTH) -> Picture:
    """The plans of a search as a scatter with the front and the ties of the whole search.

    chosen  the place of the plan to mark, 0 for none
    """
    points = [
        Point(
            words=plan_words(plan), step_seconds=plan.time.step_seconds,
            peak_bytes=plan.memory.peak_bytes, rank=place, tied=plan.tied, chosen=place == chosen,
        )
        for place, plan in enumerate(answer.plans, 1)
        if plan.time is not None and plan.memory is not None
    ]  # fmt: skip
    if not points:
        raise LayoutError("there is no plan to draw")
    fastest = min(point.step_seconds for point in points)
    points += [one for one in _front(answer) if fastest <= one.step_seconds <= MOST_STEP * fastest]
    return scatter_picture(
        points, answer.plans[0].question.cluster.gpu.usable_memory, width,
        ties=answer.ties, slack=space_table()["tie"]["value"],
    )  # fmt: skip


def _front(answer: Plans) -> list[Point]:
    """Layouts of the search's front that are not among the plans (their times are of the closed form)."""
    peaks = [plan.memory.peak_bytes for plan in answer.plans if plan.memory is not None]
    return [
        Point(
            words=f"{row['layout']}{' FSDP' * bool(row['fsdp'])}, recompute {row['recompute']}",
            step_seconds=row["step_seconds"],
            peak_bytes=row["peak_bytes"],
            rank=0,
        )
        for row in answer.front
        if all(abs(row["peak_bytes"] / peak - 1) > 1e-6 for peak in peaks)
    ]  # fmt: skip


def scaling(answers: Sequence[Estimate], *, width: float = WIDTH) -> Picture:
    """The best layout on each number of GPUs as a curve."""
    sizes = [
        Size(
            gpus=one.question.cluster.world, step_seconds=one.time.step_seconds,
            words=plan_words(one),
            tokens_per_second=one.time.tokens_per_second_per_gpu * one.question.cluster.world,
        )
        for one in answers
        if one.time is not None
    ]  # fmt: skip
    if not sizes:
        raise LayoutError("no number of GPUs has a plan to draw")
    return scaling_picture(sizes, width)


def report(
    answer: Plans | Estimate, *, written: Sequence[Written] = (), sizes: Sequence[Estimate] = ()
) -> str:
    """One HTML file that holds the answer, its pictures and the configs that were written for it."""
    plans = answer.plans if isinstance(answer, Plans) else (answer,)
    best = plans[0] if plans else None
    drawn: list[Picture] = list(pictures(best)) if best is not None else []
    if isinstance(answer, Plans) and len([plan for plan in plans if plan.time is not None]) > 1:
        drawn.append(ranking(answer, chosen=1))
    if len(sizes) > 1:
        drawn.append(scaling(sizes))
    return report_page(answer, drawn, written)
