"""`advise`: the parallelism guide's answer, and where it does not hold."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from meshwright.cli.options import LAYOUT, JsonFlag, with_options
from meshwright.cli.speaking import Lang, voice

DEGREES = tuple(flag for flag in LAYOUT if flag.name in ("tp", "pp", "vpp", "cp", "ep", "etp", "sp"))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(advise)


@with_options(DEGREES)
def advise(
    model: Annotated[
        str,
        typer.Argument(help="catalog name, Hugging Face id, or path to a config.json", show_default=False),
    ] = "",
    *,
    params_b: Annotated[
        float | None, typer.Option("--params-b", help="size in billions of parameters, in place of a model")
    ] = None,
    active_b: Annotated[
        float | None, typer.Option("--active-b", help="active parameters in billions (MoE)")
    ] = None,
    gpus: Annotated[
        str, typer.Option("--gpus", help="how many GPUs, or a cluster (256xH100)", show_default=False)
    ] = "",
    seq_length: Annotated[int | None, typer.Option("--seq-length", help="tokens a sample")] = None,
    network: Annotated[str | None, typer.Option("--network", help="nvlink, infiniband or ethernet")] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="only these sections; may be given several times")
    ] = None,
    lang: Lang = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """What the parallelism guide says of a model, a size or a layout, and what holds."""
    import meshwright as mw
    from meshwright.cli.reading import one_degree

    spoken = voice(lang)
    named = [name for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if name in said]
    chosen = {name: one_degree(name, said[name]) for name in named}
    answer = mw.advise(
        model or None, gpus=gpus or None, degrees=chosen, params_b=params_b, active_b=active_b,
        seq_length=seq_length, sp=said.get("sp"), network=network, topics=topic,
    )  # fmt: skip
    typer.echo(
        json.dumps(spoken.data(answer.as_dict()), indent=2, ensure_ascii=False)
        if as_json
        else answer.text(width=80, say=spoken.say)
    )
    raise typer.Exit(1 if answer.asked and answer.starts == "no" else 0)
