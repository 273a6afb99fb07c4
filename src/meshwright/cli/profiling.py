"""`profile`: measure plans on the real cluster. `calibrate`: learn from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import CLUSTER, EXECUTION, JOB, LAYOUT, MODEL, JsonFlag, with_options

if TYPE_CHECKING:
    from meshwright.verify.profile.ranking import Profile
    from meshwright.verify.profile.store import Store

WHERE = "Where it runs"
MACHINE = "calibrate hardware"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(profile)
    app.command()(calibrate)


@with_options(JOB, LAYOUT, EXECUTION, MODEL, CLUSTER)
def profile(
    model: Annotated[
        str, typer.Argument(help="catalog name, Hugging Face id, or path", show_default=False)
    ] = "",
    *,
    gpus: Annotated[str, typer.Option("--gpus", help="for example 64xH100", show_default=False)] = "",
    source: Annotated[str, typer.Option("--from", help="the JSON of a plan, instead of a search")] = "",
    top: Annotated[int, typer.Option("--top", help="how many plans to measure")] = 3,
    layout: Annotated[
        list[str] | None,
        typer.Option("--layout", help='measure this layout: "tp=8,pp=2"; may be repeated'),
    ] = None,
    out: Annotated[str, typer.Option("--out", help="folder of runs, logs and results")] = "profile",
    resume: Annotated[str, typer.Option("--resume", help="go on with the runs in this folder")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="with --resume: try again what was cancelled, lost or refused")
    ] = False,
    show: Annotated[str, typer.Option("--show", help="print the results in this folder, run nothing")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="write the scripts, submit nothing")] = False,
    scheduler: Annotated[
        str, typer.Option("--on", help="slurm, local (this machine) or command", rich_help_panel=WHERE)
    ] = "slurm",
    command: Annotated[
        str,
        typer.Option(
            "--command",
            help="your own training command with {tp} {pp} {mbs} {iterations} {arguments} ...",
            rich_help_panel=WHERE,
        ),
    ] = "",
    language: Annotated[
        str, typer.Option("--write", help="framework that runs are written for", rich_help_panel=WHERE)
    ] = "",
    iterations: Annotated[int, typer.Option("--iterations", help="steps of a run", min=3)] = 12,
    seconds: Annotated[
        float, typer.Option("--timeout", help="seconds that a run may take, from its start", min=1)
    ] = 1800.0,
    poll: Annotated[float, typer.Option("--poll", help="seconds between two looks", min=0.05)] = 10.0,
    parallel: Annotated[
        int | None, typer.Option("--parallel", help="jobs at once", min=1, rich_help_panel=WHERE)
    ] = None,
    sbatch: Annotated[
        str, typer.Option("--sbatch", help='more for sbatch: "-p gpu -A me"', rich_help_panel=WHERE)
    ] = "",
    submit: Annotated[
        str,
        typer.Option(
            "--submit", help="on command: 'kubectl apply -o name -f {command}'", rich_help_panel=WHERE
        ),
    ] = "",
    status: Annotated[
        str, typer.Option("--status", help="on command: prints the state of {job}", rich_help_panel=WHERE)
    ] = "",
    cancel: Annotated[
        str, typer.Option("--cancel", help="on command: ends {job}", rich_help_panel=WHERE)
    ] = "",
    logs: Annotated[
        str, typer.Option("--logs", help="on command: prints the log of {job}", rich_help_panel=WHERE)
    ] = "",
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """Measure the best plans in short runs on the real cluster, ranked by measured time.

    May be killed at any point: --resume goes on, and nothing is measured twice.
    """
    from meshwright.api import profiling as api

    if show:
        _print(api.ranking_of(api.open_profile(show)), as_json)
        return
    if resume:
        store = api.open_profile(resume)
    else:
        answers = _answers(model, gpus, source, top, layout or [], said)
        own = {"parallel": parallel} if parallel else {}
        runs = api.candidates(
            answers,
            scheduler=scheduler if scheduler in api.LANGUAGE else "slurm",
            language=language or None,
            command=command or None,
            iterations=iterations,
        )
        settings = {
            "scheduler": scheduler,
            "scheduler_options": own | _scheduler_options(scheduler, sbatch, submit, status, cancel, logs),
            "seconds": seconds,
            "iterations": iterations if not command or "{iterations}" in command else None,
        }
        store = api.start(runs, out, settings)
    if dry_run:
        for path in api.scripts_only(store):
            typer.echo(path)
        return
    _measure(store, poll, again, as_json)


def _measure(store: Store, poll: float, again: bool, as_json: bool) -> None:
    from meshwright.api import profiling as api

    def report(record: Any, event: str) -> None:
        outcome = f": {record.outcome.kind}" if event == "done" and record.outcome else ""
        typer.echo(f"  {record.candidate.name}: {event}{outcome}", err=True)

    try:
        answer = api.profile(store, poll=poll, again=again, report=report)
    except KeyboardInterrupt:
        typer.echo(f"stopped; jobs go on. Later: meshwright profile --resume {store.folder}", err=True)
        raise
    _print(answer, as_json)
    raise typer.Exit(0 if answer.best else 1)


def _answers(
    model: str, gpus: str, source: str, top: int, layouts: list[str], said: dict[str, Any]
) -> list[Any]:
    """The estimates to measure."""
    from dataclasses import replace

    import meshwright as mw
    from meshwright.cli.reading import DEGREES, read_cluster, read_options
    from meshwright.planner.place import read_layout

    if source:
        return [mw.estimate_again(row) for row in _plans_in(source)[:top]]
    cluster, options = read_cluster(gpus, said), read_options(said)
    if not layouts:
        return list(mw.plan(model, cluster, options, top=top).plans)
    found = []
    for text in layouts:
        wanted = read_layout(text)
        row = wanted.layout
        chosen = replace(
            options,
            **{name: getattr(row, name) for name in DEGREES},
            sp=row.sp,
            execution={**options.execution, **wanted.flags},
            recompute=wanted.recompute or options.recompute,
        )
        found.append(mw.estimate(model, cluster, chosen))
    return found


def _plans_in(source: str) -> list[dict[str, Any]]:
    """Every answer in the JSON of a plan or an estimate."""
    from meshwright.cli.reading import read_answer

    first = read_answer(source)
    if source == "-":
        return [first]
    data = json.loads(Path(source).read_text(encoding="utf-8"))
    return list(data["plans"]) if isinstance(data, dict) and data.get("plans") else [first]


def _scheduler_options(
    scheduler: str, sbatch: str, submit: str, status: str, cancel: str, logs: str
) -> dict[str, Any]:
    import shlex

    if scheduler == "slurm":
        return {"options": shlex.split(sbatch)}
    if scheduler == "command":
        return {"submit_with": submit, "status_with": status, "cancel_with": cancel, "logs_with": logs}
    return {}


def _print(answer: Profile, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answer.as_dict(), indent=2))
        return
    from meshwright.cli.show import console
    from meshwright.report.profiling import profile_screen

    console().print(profile_screen(answer))


def calibrate(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            help="logs of own runs, or folders of `profile`; or the word hardware: measure this machine",
            show_default=False,
        ),
    ] = None,
    plans: Annotated[
        list[str] | None,
        typer.Option("--plan", help="JSON of the plan that a log is a run of; may be repeated"),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", help="file to keep it in; by default the project's or the user's own")
    ] = "",
    project: Annotated[
        bool, typer.Option("--project", help="keep it in this folder, for this project")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="print what has been learned, learn nothing")] = False,
    device: Annotated[str, typer.Option("--device", help="cuda or cpu", rich_help_panel=MACHINE)] = "cuda",
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu", help="its name in `meshwright gpus`, if torch's differs", rich_help_panel=MACHINE
        ),
    ] = "",
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks", help="GPUs of the collectives; by default all", min=1, rich_help_panel=MACHINE
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Adjust the cost model to your cluster from logs of your own runs.

    `calibrate hardware` instead measures the machine at hand (GEMM, attention, memory, collectives) and
    writes a GPU file that --gpus 64x./my-gpu.json takes.
    """
    from dataclasses import asdict

    if logs == ["hardware"] and not Path("hardware").exists():
        from meshwright.cli.hardware import calibrate_machine

        calibrate_machine(out, device, gpu, ranks, as_json)
        return

    from meshwright.api import profiling as api
    from meshwright.verify.profile.learned import PROJECT_FILE, all_learned, calibration_file

    path = Path(PROJECT_FILE) if project else Path(out) if out else calibration_file()
    if show:
        found = all_learned(path)
    else:
        answers = [row for name in plans or () for row in _plans_in(name)]
        runs: list[Any] = []
        for name in logs or ():
            folder = Path(name).is_dir()
            runs += api.runs_of_profile(api.open_profile(name)) if folder else [api.run_of_log(name, answers)]
        found = api.calibrate(runs, path)
    if as_json:
        rows = [asdict(one) for one in found]
        typer.echo(json.dumps({"file": str(path), "learned": rows}, indent=2))
        return
    from meshwright.cli.show import console
    from meshwright.report.profiling import learned_screen

    console().print(learned_screen(found, str(path)))
