"""`plan`, `fit`, `estimate`, `models`, `gpus`: the commands around one model and some GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import (
    BOUNDS,
    CLUSTER,
    EXECUTION,
    GOODPUT,
    JOB,
    LAYOUT,
    MODEL,
    ROLLOUT,
    JsonFlag,
    ModelName,
    with_options,
)
from meshwright.cli.speaking import Lang, Voice, is_plain, voice

if TYPE_CHECKING:
    from rich.console import RenderableType

Gpus = Annotated[
    str,
    typer.Option(
        "--gpus", help="for example 256xH100, or 32x8xH100 (nodes x GPUs a node)", show_default=False
    ),
]
Tokens = Annotated[
    str, typer.Option("--tokens", "--token-budget", help="tokens to train on, for days: 15T, 300B or 1e12")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="where the step goes, what limits it, what would shorten it")
]
EVERYTHING = (JOB, LAYOUT, EXECUTION, ROLLOUT, MODEL, CLUSTER)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (plan, fit, estimate, models, gpus):
        app.command()(command)


@with_options(*EVERYTHING, BOUNDS, GOODPUT)
def plan(
    model: ModelName,
    *,
    gpus: Gpus = "",
    top: Annotated[int, typer.Option("--top", help="how many plans to show")] = 5,
    variants: Annotated[
        bool, typer.Option("--variants", help="show variants (vpp, micro-batch, recompute) as well")
    ] = False,
    why_not: Annotated[
        str, typer.Option("--why-not", help='place of a layout in the ranking: "tp=8,pp=8"')
    ] = "",
    objective: Annotated[
        str, typer.Option("--objective", help="throughput, memory, cost, fewest-gpus or tokens-per-dollar")
    ] = "throughput",
    price: Annotated[str, typer.Option("--price", help="of a GPU-hour: 2.5, or H100=2.5,B200=6")] = "",
    pue: Annotated[float, typer.Option("--pue", help="energy in over energy used of the building")] = 1.0,
    tokens: Tokens = "",
    explain: Explain = False,
    scaling: Annotated[str, typer.Option("--scaling", help="over several --gpus: strong or weak")] = "strong",
    seq_lengths: Annotated[str, typer.Option("--seq-lengths", help="compare these: 4096,8192,16384")] = "",
    html: Annotated[str, typer.Option("--html", help="write the plan as one HTML file")] = "",
    lang: Lang = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """The best ways to divide the training of MODEL over some GPUs, best first.

    With several GPU counts (64,128,256xH100, or autoxH100), prices, sequence lengths, precisions, optimizers
    or batches: one row each.
    """
    import meshwright as mw
    from meshwright.cli.lists import split_lists
    from meshwright.cli.reading import RATES, read_cluster, read_options, read_rates
    from meshwright.cli.show import progress_bar
    from meshwright.job.spec import positive

    positive("--top", top)
    spoken = voice(lang)
    rates = read_rates(said, price, pue)
    said, jobs = split_lists(said)
    options = read_options(said)
    if why_not:
        with progress_bar() as progress:
            place = mw.why_not(model, read_cluster(gpus, said), why_not, options, progress)
        from meshwright.report.sweep import place_screen

        _show(place.as_dict(), lambda: place_screen(place), as_json, spoken)
        raise typer.Exit(1 if place.excluded else 0)
    several = "," in gpus or gpus.strip().lower().startswith("auto") or bool(jobs)
    costs = bool(price) or pue != 1.0 or objective != "throughput" or any(name in said for name in RATES)
    if several or costs or seq_lengths:
        _sweep(model, gpus, options, as_json, objective, rates, tokens, scaling, seq_lengths, jobs, spoken)
    with progress_bar() as progress:
        answer = mw.plan(
            model, read_cluster(gpus, said), options, top=top, variants=variants, progress=progress
        )
    if (explain or tokens) and not answer.partial:
        from meshwright.api.explaining import told_more

        answer = told_more(answer, explain=explain, tokens=tokens or None)
    if html:
        _write(html, mw.html_report(answer, options, language=spoken.language))
    from meshwright.report.terminal import plans_screen

    _show(answer.as_dict(), lambda: plans_screen(answer), as_json, spoken)
    raise typer.Exit(INTERRUPTED if answer.partial else 0 if answer.fitting else 1)


INTERRUPTED = 130
"""Exit status of an answer that Ctrl-C cut short."""


def _write(path: str, text: str) -> None:
    """Write a file that was asked for; where it went is said on standard error."""
    from pathlib import Path

    from meshwright.errors import QuestionError

    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise QuestionError(f"{path} cannot be written: {error.strerror}") from None
    typer.echo(f"written: {path}", err=True)


def _sweep(
    model: str, gpus: str, options: Any, as_json: bool, objective: str, rates: Any,
    tokens: str, scaling: str, seq_lengths: str, jobs: Any, spoken: Voice,
) -> None:  # fmt: skip
    """One row for each number of GPUs, sequence length and value of the job."""
    import meshwright as mw
    from meshwright.cli.reading import read_lengths
    from meshwright.cli.show import progress_bar
    from meshwright.errors import QuestionError
    from meshwright.job.spec import one_of
    from meshwright.planner.budget import read_tokens
    from meshwright.planner.objectives import read_objective
    from meshwright.report.sweep import sweep_screen

    if not gpus:
        raise QuestionError("say which GPUs: --gpus 64,128xH100 (or autoxH100)")
    with progress_bar("searching sizes") as progress:
        answer = mw.sweep(
            model,
            gpus,
            options,
            objective=read_objective(objective),
            rates=rates,
            tokens=read_tokens(tokens) if tokens else None,
            batch=one_of("scaling", scaling, ("strong", "weak")),
            seq_lengths=read_lengths(seq_lengths) if seq_lengths else (),
            jobs=jobs,
            progress=progress,
        )
    _show(answer.as_dict(), lambda: sweep_screen(answer), as_json, spoken)
    raise typer.Exit(INTERRUPTED if answer.partial else 0 if answer.chosen else 1)


@with_options(*EVERYTHING)
def fit(
    model: ModelName,
    *,
    gpu: Annotated[str, typer.Option("--gpu", help="kind of GPU, for example H100", show_default=False)] = "",
    gpus: Gpus = "",
    longest_sequence: Annotated[
        bool, typer.Option("--longest-sequence", help="the longest sequence that fits on these --gpus")
    ] = False,
    largest_micro_batch: Annotated[
        bool, typer.Option("--largest-micro-batch", help="the largest micro-batch that fits on these --gpus")
    ] = False,
    max_gpus: Annotated[int, typer.Option("--max-gpus", help="give up beyond this many")] = 16384,
    top: Annotated[int, typer.Option("--top", help="how many plans to show")] = 3,
    lang: Lang = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """The fewest GPUs of a kind that train MODEL, and how; or the most that given --gpus take."""
    import meshwright as mw
    from meshwright.cli.reading import read_options, read_overrides
    from meshwright.errors import QuestionError

    spoken = voice(lang)
    if longest_sequence and largest_micro_batch:
        raise QuestionError("say --longest-sequence or --largest-micro-batch, not both")
    if longest_sequence or largest_micro_batch:
        _most(model, gpus, said, "sequence" if longest_sequence else "micro-batch", top, as_json, spoken)
    if gpus:
        raise QuestionError(
            "fit finds how many GPUs are needed: say which kind (--gpu H100); with --gpus 64xH100 ask for "
            "--longest-sequence or --largest-micro-batch, or use plan"
        )
    answer = mw.fit(
        model, gpu, read_options(said), max_gpus=max_gpus, top=top, cluster_overrides=read_overrides(said)
    )
    from meshwright.report.capacity import fit_screen

    _show(answer.as_dict(), lambda: fit_screen(answer), as_json, spoken)
    raise typer.Exit(0 if answer.min_gpus_fitting or answer.min_gpus_tight else 1)


def _most(
    model: str, gpus: str, said: dict[str, Any], what: Any, top: int, as_json: bool, spoken: Voice
) -> None:
    """The longest sequence or the largest micro-batch on given GPUs."""
    import meshwright as mw
    from meshwright.cli.reading import read_cluster, read_options
    from meshwright.report.capacity import capacity_screen

    answer = mw.most_that_fits(model, read_cluster(gpus, said), what, read_options(said), top=top)
    _show(answer.as_dict(), lambda: capacity_screen(answer), as_json, spoken)
    raise typer.Exit(0 if answer.fitting else 1)


@with_options(*EVERYTHING)
def estimate(
    model: Annotated[
        str,
        typer.Argument(help="catalog name, Hugging Face id, or path to a config.json", show_default=False),
    ] = "",
    *,
    gpus: Gpus = "",
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="take everything from the JSON of a plan or estimate (- for standard input)",
        ),
    ] = "",
    batch: Annotated[str, typer.Option("--batch", help="CSV table of runs; one prediction a row")] = "",
    settings: Annotated[str, typer.Option("--settings", help="their settings, joined by id")] = "",
    out: Annotated[str, typer.Option("--out", help="CSV file for the predictions of --batch")] = "",
    tokens: Tokens = "",
    explain: Explain = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="memory in detail: peaks told apart, host, a stage over a step")
    ] = False,
    draw: Annotated[bool, typer.Option("--draw", help="draw layers, memory and one step")] = False,
    trace: Annotated[str, typer.Option("--trace", help="write the step as a trace for Perfetto")] = "",
    lang: Lang = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """Memory and time of one layout, term by term."""
    import meshwright as mw
    from meshwright.cli.reading import read_answer, read_cluster, read_options
    from meshwright.errors import QuestionError

    spoken = voice(lang)
    if batch:
        _batch(batch, settings, out)
        return
    if source:
        if model or gpus or said:
            raise QuestionError(
                "--from takes everything from the answer; leave out MODEL, --gpus and the rest"
            )
        answer = mw.estimate_again(read_answer(source))
    else:
        answer = mw.estimate(model, read_cluster(gpus, said), read_options(said))
    if explain:
        from meshwright.api.explaining import with_explanation

        answer = with_explanation(answer)
    if tokens:
        from meshwright.api.explaining import with_budget

        answer = with_budget(answer, tokens)
    if trace and answer.time is not None:
        _write(trace, json.dumps(mw.trace(answer)))
    from meshwright.report.terminal import estimate_screen

    def screen() -> Any:
        whole = estimate_screen(answer, draw=draw, memory=memory)
        return drawn_below(whole, answer) if draw else whole

    _show(answer.as_dict(), screen, as_json, spoken)
    raise typer.Exit(0 if answer.fits else 1)


def drawn_below(screen: Any, answer: Any) -> Any:
    """A screen with memory bars and a timeline below it, where the layout can start."""
    if answer.memory is None or answer.time is None:
        return screen
    from rich.console import Group

    from meshwright.api.picturing import timeline
    from meshwright.report.drawn import drawn_screen

    return Group(screen, drawn_screen(answer.memory, timeline(answer)))


def _batch(runs: str, settings: str, out: str) -> None:
    """A prediction for every row of a table."""
    from pathlib import Path

    from meshwright.api.batch import write_batch
    from meshwright.errors import QuestionError

    if not out:
        raise QuestionError("say where the predictions go: --out predictions.csv")
    number = write_batch(Path(runs), Path(out), Path(settings) if settings else None)
    typer.echo(f"{number} rows written to {out}")


def models(
    pattern: Annotated[
        str, typer.Argument(help="show only names that contain this", show_default=False)
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """The models that are known by name."""
    import meshwright as mw

    rows = mw.models(pattern)
    from meshwright.report.catalogs import models_screen

    _show([dict(row) for row in rows], lambda: models_screen(rows), as_json)
    _some(rows, "model", pattern)


def gpus(
    pattern: Annotated[
        str, typer.Argument(help="show only names that contain this", show_default=False)
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """The GPUs that are known by name."""
    import meshwright as mw

    rows = mw.gpus(pattern)
    from meshwright.report.catalogs import gpus_screen

    _show([dict(row) for row in rows], lambda: gpus_screen(rows), as_json)
    _some(rows, "GPU", pattern)


def _some(rows: Sequence[object], what: str, pattern: str) -> None:
    """Say that nothing has such a name, and end with 1."""
    if not rows:
        typer.echo(f"no {what} that is known has {pattern!r} in its name", err=True)
        raise typer.Exit(1)


def _show(data: object, screen: Any, as_json: bool, spoken: Voice | None = None) -> None:
    """Print an answer as JSON or as a screen, in the language that was chosen."""
    if as_json:
        told = data if spoken is None else spoken.data(data)
        typer.echo(json.dumps(told, indent=2, allow_nan=False, default=str, ensure_ascii=told is data))
        return
    from meshwright.cli.show import console

    renderable: RenderableType = screen()
    if spoken is not None and not is_plain(spoken):
        from meshwright.report.said import said

        renderable = said(renderable, spoken.say)
    console().print(renderable)
