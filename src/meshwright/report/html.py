"""The HTML report: one file with the plan, its reasons, every picture and the written configs.

Nothing in it points to another file or a server: styles, script and drawings are in the page, and its
content security policy forbids the browser to fetch anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from meshwright._version import __version__
from meshwright.cluster.describe import describe
from meshwright.model.parameters import count_parameters
from meshwright.planner.answer import Estimate, Plans
from meshwright.report.svg.draw import Picture, stylesheet
from meshwright.report.terminal import plan_words
from meshwright.report.text import count, gib, seconds, whole

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A config that was written for the plan, in the language of one framework."""

    title: str
    text: str


def report_page(answer: Plans | Estimate, drawn: Sequence[Picture], written: Sequence[Written] = ()) -> str:
    """The whole page."""
    plans = answer.plans if isinstance(answer, Plans) else (answer,)
    best = plans[0] if plans else None
    parts = [*_head(best), *_searched(answer)]
    if isinstance(answer, Plans) and plans:
        parts.append(_section("plans", "Plans, best first", _plans_table(plans)))
    if best is not None:
        parts.append(_section("layout", "The first plan", _facts(best)))
        parts += [_figure(one) for one in drawn]
        if best.memory is not None:
            parts.append(_section("stages", "Memory of each stage in numbers", _stages(best)))
        parts += _words(best)
    parts += [_config(number, one) for number, one in enumerate(written)]
    text = json.dumps(answer.as_dict(), indent=1, allow_nan=False, default=str)
    parts.append(_folded("The answer as JSON", "json", text))
    return _frame(best, parts)


def _frame(best: Estimate | None, parts: Iterable[str]) -> str:
    data = resources.files("meshwright.report").joinpath("data")
    style = data.joinpath("report.css").read_text(encoding="utf-8")
    script = data.joinpath("report.js").read_text(encoding="utf-8")
    title = "Meshwright plan" if best is None else _name(best)
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n',
            f"<title>{escape(title)}</title>\n<style>{stylesheet()}{style}</style>\n</head>\n<body>\n<main>\n",
            *parts,
            f"<footer>Made by Meshwright {escape(__version__)}. Times and memory are predictions ",
            "with a band; layouts within the band are ties.</footer>\n",
            f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
        )
    )


def _head(best: Estimate | None) -> Iterable[str]:
    yield (
        '<header><button type="button" id="theme" aria-pressed="false" data-light="Light" '
        'data-dark="Dark">Dark</button>'
    )
    if best is None:
        yield "<h1>No plan</h1></header>"
        return
    question, counted = best.question, count_parameters(best.question.model)
    size = count(counted.total) + (f" ({count(counted.active)} active)" if question.model.is_moe else "")
    if counted.mtp:
        size += f" and {count(counted.mtp)} of MTP"
    job = question.job
    yield f"<h1>{escape(_name(best))}</h1>"
    yield (
        f"<p>{escape(size)} parameters; sequence {job.seq_length:,}, global batch {job.global_batch:,}, "
        f"{escape(job.precision)}, {escape(job.task)}. {escape(describe(question.cluster))}.</p></header>"
    )


def _name(best: Estimate) -> str:
    cluster = best.question.cluster
    return f"{best.question.model.name} on {cluster.world:,} x {cluster.gpu.name}"


def _searched(answer: Plans | Estimate) -> Iterable[str]:
    if not isinstance(answer, Plans):
        return
    legal = "" if answer.valid == answer.searched else f", {answer.valid:,} legal"
    words = f"{answer.searched:,} {'' if legal else 'legal '}layouts searched{legal}, {answer.fitting:,} fit."
    if answer.ties > 1:
        words += f" {answer.ties} are tied (=): too close to tell apart."
    if not answer.plans:
        words += " No layout is legal for this model, these GPUs and this batch."
    elif not answer.fitting:
        words += " None fits: shown is the legal layout that needs least memory."
    yield f'<p class="note">{words}</p>'


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>\n'


def _figure(one: Picture) -> str:
    return (
        f'<section id="{escape(one.name)}"><h2>{escape(one.title)}</h2><figure>'
        f'<div class="drawing" tabindex="0" role="group" aria-label="{escape(one.title)}">{one.svg}</div>'
        f"<figcaption>{escape(one.description)}</figcaption></figure></section>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column heads its rows."""
    top = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="wide" tabindex="0" role="group" aria-label="table"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _plans_table(plans: Sequence[Estimate]) -> str:
    rows = [
        (
            f"{place}{'=' if plan.tied else ''}", plan_words(plan), str(plan.execution.recompute),
            f"{gib(plan.memory.peak_bytes)} ({plan.memory.verdict})", seconds(plan.time.step_seconds),
            f"{plan.time.model_tflops_per_gpu:.0f}", f"{plan.time.tokens_per_second_per_gpu:,.0f}",
        )
        for place, plan in enumerate(plans, 1)
        if plan.memory is not None and plan.time is not None
    ]  # fmt: skip
    return _table(("#", "layout", "recompute", "GiB a GPU", "step", "TFLOP/s a GPU", "tokens/s a GPU"), rows)


def _facts(best: Estimate) -> str:
    layout, execution = best.layout, best.execution
    rows = [
        ("layout", plan_words(best)),
        ("tensor, pipeline (chunks)", f"TP {layout.tp}, PP {layout.pp}, VPP {layout.vpp}"),
        ("context, experts", f"CP {layout.cp}, EP {layout.ep}, ETP {layout.etp}"),
        ("data parallel", f"DP {whole(layout.dp)}, EDP {whole(layout.edp)}"),
        (
            "batch",
            f"micro-batch {layout.mbs}, {whole(layout.num_microbatches)} a step, global {layout.gbs:,}",
        ),
        ("sequence parallel", "on" if layout.sp else "off"),
        ("recompute", str(execution.recompute)),
        ("GPUs", f"a multiple of {best.min_gpus:,}"),
    ]
    if best.pipeline_layout:
        rows.append(("pipeline layout", best.pipeline_layout))
    if best.memory is not None:
        memory = best.memory
        rows.append(
            ("memory", f"{memory.verdict}: {gib(memory.peak_bytes)} GiB ({gib(memory.low_bytes)} to "
                       f"{gib(memory.high_bytes)}) of {gib(memory.usable_bytes)} usable")
        )  # fmt: skip
    if best.time is not None:
        timed = best.time
        rows.append(
            ("time", f"{seconds(timed.step_seconds)} a step ({seconds(timed.low_seconds)} to "
                     f"{seconds(timed.high_seconds)}), MFU {timed.mfu:.1%} of the {timed.mfu_peak} peak")
        )  # fmt: skip
    return _table(("", "value"), rows)


def _stages(best: Estimate) -> str:
    assert best.memory is not None
    names = ("weights", "gradients", "optimizer", "activations", "other", "total")
    rows = [
        (str(stage.stage), *(gib(getattr(stage, f"{name}_bytes")) for name in names))
        for stage in best.memory.per_stage
    ]
    return _table(("stage", *(f"{name} [GiB]" for name in names)), rows)


def _words(best: Estimate) -> Iterable[str]:
    if best.findings:
        items = "".join(
            f'<li class="{escape(one.severity)}"><b>{escape(one.severity)}</b> {escape(one.message)}'
            + (f" <i>{escape(one.fix)}</i>" if one.fix else "")
            + f" <code>{escape(one.rule)}</code></li>"
            for one in best.findings
        )
        yield _section("findings", "Findings", f"<ul>{items}</ul>")
    listed = (
        ("binding", "What stops it from being better", best.binding),
        ("reasons", "Against its neighbours", best.reasons),
        ("assumed", "Assumed", [f"{a.option} {a.value}: {a.source}" for a in best.assumptions]),
    )
    for name, title, lines in listed:
        if lines:
            yield _section(
                name, title, "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
            )


def _config(number: int, one: Written) -> str:
    mark = f"config-{number}"
    return _section(
        f"written-{number}",
        one.title,
        f'<button type="button" data-copy="{mark}" data-copied="Copied">Copy</button>'
        f'<pre id="{mark}" tabindex="0">{escape(one.text)}</pre>',
    )


def _folded(title: str, mark: str, text: str) -> str:
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<button type="button" data-copy="{mark}" data-copied="Copied">Copy</button>'
        f'<pre id="{mark}" tabindex="0">{escape(text)}</pre></details>\n'
    )
