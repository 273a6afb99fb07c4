"""Scaling tables, what training costs, and the place of one layout: terminal text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.planner.answer import Estimate
from meshwright.planner.economics import Economics
from meshwright.planner.place import Place
from meshwright.planner.sweep import Point, Sweep
from meshwright.report.fitted import Foldable
from meshwright.report.terminal import plan_words
from meshwright.report.text import gib, seconds


def sweep_screen(answer: Sweep) -> RenderableType:
    """One row a point: the best layout there, its step, how it scales, what a billion tokens take."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GPUs", justify="right", no_wrap=True)
    table.add_column("seq", justify="right", no_wrap=True)
    varied = _varied(answer)
    for name in varied:
        table.add_column(name, no_wrap=True)
    table.add_column("layout", overflow="fold")
    for name in ("GiB", "step", "scaling", "GPU-h/Btok"):
        table.add_column(name, justify="right", no_wrap=True)
    priced = any(point.rates.price is not None for point in answer.points)
    if priced:
        table.add_column("cost/Btok", justify="right", no_wrap=True)
    efficiency = {id(s.point): s.efficiency for s in answer.scaling}
    for point in answer.points:
        mark = "*" if point is answer.chosen else ""
        front = "+" if any(point is other for other in answer.front) else ""
        size, length = f"{mark}{front}{point.gpus:,}", f"{point.question.job.seq_length:,}"
        own = [str(_job_value(point, name)) for name in varied]
        if not point.fits:
            table.add_row(size, length, *own, "nothing fits")
            continue
        cost = point.economics
        row = [
            size, length, *own, str(point.layout) + (" FSDP" if point.execution.fsdp else ""),
            gib(point.peak), seconds(point.step),
            f"{efficiency.get(id(point), 1.0):.0%}", f"{cost.gpu_hours:,.0f}",
        ]  # fmt: skip
        table.add_row(*row, *([f"{cost.cost:,.2f}"] if priced and cost.cost is not None else []))
    words = (
        f"\n* chosen for {answer.objective}; + on the front of time for a token against {answer.against}; "
        "scaling: tokens a second and GPU over the first row's"
    )
    parts: list[RenderableType] = [Foldable(table), Text(words, style="dim")]
    if answer.partial:
        told = "PARTIAL: interrupted, what comes after these was not searched.\n"
        parts.insert(0, Text(told, style="bold red"))
    if answer.chosen is not None:
        parts.append(Text(f"\n{answer.chosen.gpus:,} GPUs", style="bold"))
        parts += [Text(f"  {line}") for line in economics_lines(answer.chosen.economics)]
    return Group(*parts)


def _varied(answer: Sweep) -> list[str]:
    """Parts of the question in which the points differ, beside GPUs and sequence length."""
    several = [name for name in JOB_FIELDS if len({_job_value(point, name) for point in answer.points}) > 1]
    lengths = {point.question.job.seq_length for point in answer.points}
    worlds = {point.gpus for point in answer.points}
    # with another length or (weak scaling) another number of GPUs the batch follows by itself
    return [name for name in several if name != "gbs" or (len(lengths) == len(worlds) == 1)]


JOB_FIELDS = ("GPU", "precision", "optimizer", "gbs")


def _job_value(point: Point, name: str) -> object:
    job, cluster = point.question.job, point.question.cluster
    values = {
        "GPU": cluster.gpu.name, "precision": job.precision, "optimizer": job.optimizer,
        "gbs": job.global_batch,
    }  # fmt: skip
    return values[name]


def economics_lines(cost: Economics) -> list[str]:
    """What a billion tokens take, and the whole budget where there is one."""
    lines = [f"a billion tokens: {cost.gpu_hours:,.1f} GPU-hours"]
    if cost.cost is not None:
        lines[0] += f", {cost.cost:,.2f} in money"
    if cost.kwh is not None:
        lines[0] += f", {cost.kwh:,.0f} kWh ({cost.watts:,.0f} W a GPU: {cost.watts_source})"
    good = cost.goodput
    lines.append(
        f"goodput {good.value:.1%}: a failure every {good.mtbf_seconds / 3600:,.0f} h, "
        f"a checkpoint every {good.interval / 60:,.0f} min (best: {good.best_interval / 60:,.0f})"
    )
    if cost.days is not None and cost.tokens is not None:
        words = f"{cost.tokens:,.3g} tokens: {cost.days:,.1f} days, {cost.total_gpu_hours:,.0f} GPU-hours"
        if cost.total_cost is not None:
            words += f", {cost.total_cost:,.0f} in money"
        lines.append(words)
    return lines


def place_screen(answer: Place) -> RenderableType:
    """Where a layout stands, and why."""
    best = answer.best
    if answer.excluded:
        lines = [Text("excluded", style="bold red"), *(Text(f"  - {why}") for why in answer.excluded)]
        return Group(*lines)
    head = f"place {answer.position:,} of {answer.of:,} that fit"
    if answer.slower is not None:
        head += f": {answer.slower:.1%} slower than the best"
    lines = [Text(head, style="bold")]
    lines += [
        Text(f"  {who}: {_whole(one)}") for who, one in (("it", answer.estimate), ("the best", best)) if one
    ]
    if best is not None and best.time is not None:
        shown = [(term, more) for term, more in answer.terms if abs(more) > 0.002 * best.time.step_seconds]
        lines += [Text(f"  {term}: {'+' if more > 0 else '-'}{seconds(abs(more))}") for term, more in shown]
    words = (
        "\nEvery layout that fits is counted here, however slow; `plan` counts those it priced, which leaves "
        "out what is proven to be far behind."
    )
    return Group(*lines, Text(words, style="dim"))


def _whole(one: Estimate) -> str:
    """A layout with its recompute, memory and step time on one line."""
    words = plan_words(one)
    if one.execution.recompute.granularity != "none":
        words += f", recompute {one.execution.recompute}"
    if one.memory is None or one.time is None:
        return words
    return f"{words}: {gib(one.memory.peak_bytes)} GiB, {seconds(one.time.step_seconds)}"
