"""`check`: what is wrong with a launch script, a config or a command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import typer

from meshwright.cli.speaking import Lang, Voice
from meshwright.lang import plain

STATUS = {"ok": 0, "warn": 0, "unknown": 1, "invalid": 1}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings={"allow_interspersed_args": True})(check)


def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="scripts, configs, directories or patterns; after --, a command", show_default=False
        ),
    ] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", help="how many GPUs, or a cluster (64xH100)")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="kind of GPU")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", help="GPUs a node")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="how many nodes, instead of --gpus")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE of an environment variable")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", help="N=VALUE of a script's argument")] = None,
    framework: Annotated[str | None, typer.Option("--framework", help="read as this framework")] = None,
    framework_version: Annotated[str | None, typer.Option("--framework-version", help="its version")] = None,
    online: Annotated[bool, typer.Option("--online", help="look models up on the hub")] = False,
    resume_from: Annotated[
        str | None, typer.Option("--resume-from", help="can FILE go on from the checkpoint of this config?")
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="show every value and where it came from")] = False,
    form: Annotated[str, typer.Option("--format", help="text, json, sarif or github")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="the same as --format json")] = False,
    pass_others: Annotated[
        bool, typer.Option("--pass-others", help="pass over files that say nothing of a training")
    ] = False,
    lang: Lang = None,
) -> None:
    """What is wrong with a launch script, a config, or (after --) a command. Nothing is ever run."""
    import meshwright as mw
    from meshwright.cli.reading import numbered, pairs
    from meshwright.cli.show import progress_bar
    from meshwright.cli.speaking import voice
    from meshwright.errors import QuestionError
    from meshwright.frameworks import outputs
    from meshwright.job.spec import one_of

    if as_json and form not in ("text", "json"):
        raise QuestionError(f"--json and --format {form} are two forms; say one")
    form = one_of("format", "json" if as_json else form, ("text", "json", "sarif", "github"))
    spoken = voice(lang)
    paths, command = _apart(files or [])
    if resume_from:
        _resume(resume_from, list(paths), pairs("--env", env or []), form, spoken)
    with progress_bar("reading files") as progress:
        report = mw.check(
            paths,
            command=command,
            gpus=gpus,
            gpu=gpu,
            gpus_per_node=gpus_per_node,
            nodes=nodes,
            environment=pairs("--env", env or []),
            arguments=numbered("--arg", arg or []),
            framework=framework,
            framework_version=framework_version,
            online=online,
            progress=progress,
            pass_others=pass_others,
        )
    if form == "json":
        answer = spoken.data(report.as_dict())
        typer.echo(json.dumps(answer, indent=2, default=str, ensure_ascii=spoken.exact is plain))
    elif form == "text":
        typer.echo(outputs.text(report, values=values, say=spoken.say), nl=False)
    else:
        typer.echo((outputs.sarif if form == "sarif" else outputs.github)(report, spoken.exact))
    raise typer.Exit(STATUS[report.verdict])


def _apart(words: list[str]) -> tuple[Iterable[str], list[str]]:
    """Files, and the command after `--` (which the parser has taken away: the argument list still has it)."""
    import sys

    if "--" in sys.argv:
        command = sys.argv[sys.argv.index("--") + 1 :]
        return words[: len(words) - len(command)], command
    return words, []


def _resume(old: str, new: list[str], environment: dict[str, str], form: str, spoken: Voice) -> None:
    """Whether a checkpoint can go on under the new config."""
    import meshwright as mw
    from meshwright.errors import QuestionError
    from meshwright.report.comparison import resume_text

    if len(new) != 1:
        raise QuestionError("--resume-from OLD takes one new config: check --resume-from old.sh new.sh")
    answer = mw.resume(old, new[0], environment)
    if form == "json":
        told = spoken.data(answer.as_dict())
        typer.echo(json.dumps(told, indent=2, default=str, ensure_ascii=spoken.exact is plain))
    else:
        typer.echo(resume_text(answer, spoken.say))
    raise typer.Exit(STATUS[answer.verdict])
