"""`write` and `convert`: a plan, or somebody's config, in a framework's language."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import CLUSTER, EXECUTION, JOB, LAYOUT, MODEL, JsonFlag, with_options

if TYPE_CHECKING:
    from meshwright.frameworks.written import Written

To = Annotated[
    str, typer.Option("--to", help="framework to write for; `--to list` names them", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="write even what the framework can say only in part")]
Out = Annotated[str, typer.Option("--out", help="folder for the files (default: print them)")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(write)
    app.command()(convert)


@with_options(JOB, LAYOUT, EXECUTION, MODEL, CLUSTER)
def write(
    model: Annotated[
        str, typer.Argument(help="catalog name, Hugging Face id, or path", show_default=False)
    ] = "",
    *,
    to: To = "",
    gpus: Annotated[str, typer.Option("--gpus", help="for example 256xH100", show_default=False)] = "",
    source: Annotated[str, typer.Option("--from", help="the JSON of a plan or estimate")] = "",
    out: Out = "",
    force: Force = False,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """A plan in the language of a framework: the best one, or the layout whose degrees are given."""
    import meshwright as mw
    from meshwright.api.expressing import best_for
    from meshwright.cli.reading import read_answer, read_cluster, read_options
    from meshwright.errors import QuestionError

    if _listed(to):
        return
    if source:
        if model or gpus or said:
            raise QuestionError(
                "--from takes everything from the answer; leave out MODEL, --gpus and the rest"
            )
        answer = mw.estimate_again(read_answer(source))
    elif any(name in said for name in ("tp", "pp", "cp", "ep")):
        answer = mw.estimate(model, read_cluster(gpus, said), read_options(said))
    else:
        answer = best_for(model, read_cluster(gpus, said), read_options(said), to, force=force)
    _deliver(mw.written(answer, to, force=force), out, as_json)


def convert(
    file: Annotated[str, typer.Argument(help="launch script or config", show_default=False)],
    to: To = "",
    out: Out = "",
    gpus: Annotated[str, typer.Option("--gpus", help="rescale to these GPUs first: 128xH100")] = "",
    batch: Annotated[
        str, typer.Option("--batch", help="with --gpus: hold the global batch, or scale it")
    ] = "hold",
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE of an environment variable")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", help="N=VALUE of a script's argument")] = None,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Somebody's launch script or config in another framework's language, or on other GPUs."""
    import meshwright as mw
    from meshwright.cli.reading import numbered, pairs
    from meshwright.job.spec import one_of

    given, arguments = pairs("--env", env or []), numbered("--arg", arg or [])
    if gpus:
        from meshwright.report.comparison import rescaled_text

        how = one_of("batch", batch, ("hold", "scale"))
        answer = mw.rescale(file, gpus, batch=how, environment=given)
        if not to and as_json:
            typer.echo(json.dumps({"rescaled": answer.as_dict()}, indent=2, default=str))
        elif not as_json:
            typer.echo(rescaled_text(answer), nl=False, err=bool(to))
        if to:
            done = mw.converted(file, to, gpus=gpus, batch=how, environment=given, force=force)
            _deliver(done, out, as_json, {"rescaled": answer.as_dict()})
        raise typer.Exit(0 if answer.fits else 1)
    if _listed(to):
        return
    _deliver(mw.converted(file, to, environment=given, arguments=arguments, force=force), out, as_json)


def _listed(to: str) -> bool:
    """Print the frameworks when they are asked for."""
    import meshwright as mw
    from meshwright.errors import QuestionError

    if to == "list":
        typer.echo("\n".join(mw.framework_names()))
        return True
    if not to:
        raise QuestionError(f"say which framework: --to one of {', '.join(mw.framework_names())}")
    return False


def _deliver(done: Written, out: str, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    """Print the files, or write them into a folder; warnings and what is left out go to standard error."""
    from meshwright.api.writing import save

    paths = [str(path) for path in save(done.files, Path(out))] if out else []
    if as_json:
        typer.echo(json.dumps({**done.as_dict(), "paths": paths, **(more or {})}, indent=2, default=str))
        return
    for warning in done.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if done.not_expressed and out:
        left = ", ".join(left.text for left in done.not_expressed)
        typer.echo(f"left out, for {done.framework} has no word: {left}", err=True)
    for path in paths:
        typer.echo(path)
    for number, (name, text) in enumerate([] if out else done.files.items()):
        if len(done.files) > 1:
            typer.echo(f"{'' if number == 0 else chr(10)}# ---- {name} ----")
        typer.echo(text.rstrip("\n"))
