"""Terminal screens: each takes a finished answer and returns rich renderables; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.cluster.describe import describe
from meshwright.cluster.spec import GIB
from meshwright.job.spec import Recompute
from meshwright.layout.pipeline import PipelineLayout
from meshwright.planner.answer import Degrees, Estimate, Memory, Plans, StageMemory, Time
from meshwright.report.bars import memory_bars
from meshwright.report.explanation import budget_line, explanation_body
from meshwright.report.fitted import NARROW, Fitted, either
from meshwright.report.front import front_lines
from meshwright.report.memory import detail_part, remedies_part, rl_part
from meshwright.report.text import count, gib, seconds, whole

VERDICTS = {"fits": "green", "tight": "yellow", "does-not-fit": "red"}
SEVERITIES = {"error": "bold red", "warn": "yellow", "advice": "cyan"}


def plans_screen(answer: Plans) -> RenderableType:
    """Ranked plans in one table, then the best one whole."""
    best = answer.best
    if best is None:
        head = Text("No layout is legal for this model, these GPUs and this batch.", style="red")
        why = [f"{rule}: refuses {count:,} layouts" for rule, count in answer.refused.items()]
        return Group(
            head,
            *_listed("Rules that refuse (`meshwright explain RULE`)", why),
            *_listed("Why", answer.advice),
        )
    parts: list[RenderableType] = [
        _heading(best), either(lambda: _ranking(answer), lambda: _short_ranking(answer)), _searched(answer),
    ]  # fmt: skip
    if answer.partial:
        told = "PARTIAL: interrupted, the rest of the space was not searched.\n"
        parts.insert(0, Text(told, style="bold red"))
    parts += _listed("Less memory for more time (no priced layout beats these in both)", front_lines(answer))
    parts += _listed("What others would have chosen", [str(one["text"]) for one in answer.references])
    parts += _listed("What to change", answer.advice)
    parts.append(Text("\nThe first plan", style="bold"))
    parts.append(estimate_body(best))
    if best.detail is not None and best.detail.rl is not None:
        parts.append(rl_part(best.detail.rl))
    return Group(*parts)


def estimate_screen(answer: Estimate, *, draw: bool = False, memory: bool = False) -> RenderableType:
    """One layout, whole; with `draw`, which layers each pipeline rank holds; with `memory`, its peaks."""
    parts: list[RenderableType] = [_heading(answer), estimate_body(answer)]
    if answer.detail is not None and answer.memory is not None:
        if answer.detail.rl is not None:
            parts.append(rl_part(answer.detail.rl))
        if answer.detail.remedies:
            parts.append(remedies_part(answer.detail.remedies))
        if memory:
            parts.append(detail_part(answer.detail, answer.memory.usable_bytes))
    if draw and answer.pipeline_layout:
        pipeline = PipelineLayout.parse(answer.pipeline_layout, answer.layout.pp)
        parts += [
            Text("\nPipeline", style="bold"),
            *(Text(f"  {line}") for line in pipeline.draw(together=True)),
        ]
    return Group(*parts)


def estimate_body(answer: Estimate) -> RenderableType:
    """Layout, memory, time, reasons and what was assumed."""
    parts: list[RenderableType] = [_layout_lines(answer)]
    if answer.memory is not None:
        parts.append(_memory(answer.memory))
    if answer.time is not None:
        parts.append(_time_lines(answer.time))
    if answer.budget is not None:
        parts.append(_item(Text(budget_line(answer.budget))))
    if answer.explanation is not None:
        parts.append(explanation_body(answer.explanation))
    parts += _listed("What stops it from being better", answer.binding)
    parts += _listed("Against its neighbours (the best layout with one axis changed)", answer.reasons)
    parts += _findings(answer)
    parts += _listed("Assumed", _assumed(answer))
    return Group(*parts)


def _assumed(answer: Estimate) -> list[str]:
    """What was filled in, one line a source."""
    by_source: dict[str, list[str]] = {}
    for a in answer.assumptions:
        by_source.setdefault(a.source, []).append(f"{a.option} {a.value}")
    return [f"{', '.join(values)}: {source}" for source, values in by_source.items()]


def _heading(answer: Estimate) -> RenderableType:
    question = answer.question
    from meshwright.model.parameters import count_parameters

    counted = count_parameters(question.model)
    size = count(counted.total)
    if question.model.is_moe:
        size += f", {count(counted.active)} active"
    beside = [(counted.mtp, "MTP"), (counted.vision, "vision")]
    size += "".join(f", + {count(number)} {word}" for number, word in beside if number)
    job = question.job
    return Text.assemble(
        (f"{question.model.name}", "bold"), f" ({size}) on {describe(question.cluster)}\n",
        f"sequence {job.seq_length:,}, global batch {job.global_batch:,}, {job.precision}, {job.task}\n",
    )  # fmt: skip


def _short_ranking(answer: Plans) -> Table:
    """The ranking for a narrow terminal: layout, memory, step."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("layout", overflow="fold")
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    for number, plan in enumerate(answer.plans, 1):
        if plan.memory is None or plan.time is None:
            continue
        tight = "~" if plan.memory.verdict == "tight" else ""
        table.add_row(
            f"{number}{'=' if plan.tied else ''}",
            plan_words(plan),
            Text(gib(plan.memory.peak_bytes) + tight, style=VERDICTS[plan.memory.verdict]),
            seconds(plan.time.step_seconds),
        )
    return table


def _ranking(answer: Plans) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("layout", no_wrap=True, min_width=28)
    table.add_column("recompute", overflow="fold")
    for name in ("GiB", "step", "TFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for number, plan in enumerate(answer.plans, 1):
        memory, timed = plan.memory, plan.time
        if memory is None or timed is None:
            continue
        table.add_row(
            f"{number}{'=' if plan.tied else ''}",
            plan_words(plan),
            _recompute_words(plan.execution.recompute),
            Text(
                gib(memory.peak_bytes) + ("~" if memory.verdict == "tight" else ""),
                style=VERDICTS[memory.verdict],
            ),
            seconds(timed.step_seconds),
            f"{timed.model_tflops_per_gpu:.0f}",
        )
    return table


def _recompute_words(recompute: Recompute) -> str:
    """Short: the modules of selective recompute, else the granularity."""
    return ", ".join(recompute.modules) if recompute.granularity == "selective" else str(recompute)


def _searched(answer: Plans) -> Text:
    words = (
        f"\n{answer.searched:,} layouts searched ({answer.seconds:.2f} s): {answer.scored:,} priced, "
        f"the others excluded by a rule or a proven bound; {answer.fitting:,} of the priced fit."
    )
    if answer.ties > 1:
        words += (
            f" {answer.ties} are tied with the fastest (=): too close to tell apart, so ordered by headroom, "
            "fewer moving parts and published practice."
        )
    if not answer.fitting:
        words += " None fits: shown is the legal layout that needs least memory."
    elif any(plan.memory is not None and plan.memory.verdict == "tight" for plan in answer.plans):
        words += " ~: tight, the band of its memory reaches beyond the card."
    return Text(words, style="dim")


def plan_words(plan: Estimate) -> str:
    """The degrees of an answer, and whether it is FSDP: TP4 PP2 DP8 MBS1 FSDP."""
    return layout_words(plan.layout) + (" FSDP" if plan.execution.fsdp else "")


def layout_words(layout: Degrees) -> str:
    """The degrees that are not 1, in the field's order.

    For example TP4 PP2 DP8 MBS1.
    """
    names = [name for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if getattr(layout, name) > 1]
    words = [f"{name.upper()}{getattr(layout, name)}" for name in names]
    return " ".join([*words, f"DP{whole(layout.dp)}", f"MBS{layout.mbs}"])


def _layout_lines(answer: Estimate) -> RenderableType:
    layout = answer.layout
    words = (
        f"TP {layout.tp}  PP {layout.pp}  VPP {layout.vpp}  CP {layout.cp}  "
        f"EP {layout.ep}  ETP {layout.etp}  "
        f"DP {whole(layout.dp)}  EDP {whole(layout.edp)}  SP {_on(layout.sp)}\n"
        f"micro-batch {layout.mbs}, {whole(layout.num_microbatches)} micro-batches a step; "
        + (f"needs a multiple of {answer.min_gpus:,} GPUs" if answer.min_gpus > 1 else "any number of GPUs")
    )
    if answer.guide_min_gpus != answer.min_gpus:
        words += f" (the guide's formula: {answer.guide_min_gpus:,})"
    if answer.pipeline_layout:
        words += f"\npipeline layout {answer.pipeline_layout}"
    execution = answer.execution
    words += f"\nrecompute {execution.recompute}, "
    words += "FSDP" if execution.fsdp else f"distributed optimizer {_on(execution.distributed_optimizer)}"
    if layout.cp > 1:
        words += f", CP by {execution.cp_comm}"
    if answer.question.model.is_moe:
        words += f", dispatcher {execution.dispatcher}"
    return Padding(Text(words), (0, 0, 1, 0))


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _memory(memory: Memory) -> RenderableType:
    """Memory of each stage term by term, or as bars where that is too wide; then the verdict."""
    drawn = Fitted(lambda width: _memory_table(memory) if width >= NARROW else memory_bars(memory, width))
    verdict = Text.assemble(
        "memory: ", (memory.verdict, VERDICTS[memory.verdict]),
        f", {gib(memory.peak_bytes)} GiB ({gib(memory.low_bytes)}-{gib(memory.high_bytes)}) of "
        f"{gib(memory.usable_bytes)} usable",
    )  # fmt: skip
    return Group(drawn, verdict)


def _memory_table(memory: Memory) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "weights", "gradients", "optimizer", "activations", "other", "GiB"):
        table.add_column(name, justify="right")
    table.add_column("")
    for first, last, stage in _folded(memory):
        share = stage.total_bytes / memory.usable_bytes
        table.add_row(
            f"{first}" if first == last else f"{first}-{last}",
            gib(stage.weights_bytes), gib(stage.gradients_bytes), gib(stage.optimizer_bytes),
            gib(stage.activations_bytes), gib(stage.other_bytes), gib(stage.total_bytes), _bar(share),
        )  # fmt: skip
    return table


def _folded(memory: Memory) -> Iterator[tuple[int, int, StageMemory]]:
    """Runs of stages that hold the same to a hundredth of a GiB, as one row."""
    stages = memory.per_stage
    start = 0
    for index in range(1, len(stages) + 1):
        same = index < len(stages) and abs(stages[index].total_bytes - stages[start].total_bytes) < 0.01 * GIB
        if not same:
            yield stages[start].stage, stages[index - 1].stage, stages[start]
            start = index


def _bar(share: float, width: int = 12) -> Text:
    """A bar against the usable memory."""
    full = min(round(share * width), width)
    style = "green" if share <= 0.9 else "yellow" if share <= 1.0 else "red"
    return Text("█" * full + "░" * (width - full), style=style)


def _time_lines(timed: Time) -> RenderableType:
    head = (
        f"\nstep: {seconds(timed.step_seconds)} "
        f"({seconds(timed.low_seconds)} to {seconds(timed.high_seconds)}), "
        f"{timed.tokens_per_second_per_gpu:,.0f} tokens/s/GPU, "
        f"{timed.model_tflops_per_gpu:.0f} model TFLOP/s/GPU, "
        f"MFU {timed.mfu:.0%} of the {timed.mfu_peak} peak"
    )
    shares = sorted(timed.terms.items(), key=lambda item: -item[1])
    parts = [(name, value / timed.step_seconds) for name, value in shares]
    words = ", ".join(f"{name} {share:.0%}" for name, share in parts if share >= 0.005)
    return Group(Text(head), _item(Text(words)))


def _listed(title: str, lines: tuple[str, ...] | list[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(f"\n{title}", style="bold"), *(_item(Text(line)) for line in lines)]


def _item(text: Text, mark: str = "-") -> RenderableType:
    """A line of a list that wraps under itself."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_row(f"  {mark}", text)
    return grid


def _findings(answer: Estimate) -> list[RenderableType]:
    if not answer.findings:
        return []
    order = sorted(answer.findings, key=lambda f: list(SEVERITIES).index(f.severity))
    parts: list[RenderableType] = [Text("\nFindings", style="bold")]
    for finding in order:
        words = Text.assemble((finding.severity, SEVERITIES[finding.severity]), f" {finding.message}")
        if finding.fix and finding.fix not in finding.message:
            words.append(f"\nfix: {finding.fix}")
        parts.append(_item(words))
    return parts
