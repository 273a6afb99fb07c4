"""`verify`: run a plan small on the real engine, or judge a log."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from meshwright.cli.options import CLUSTER, EXECUTION, JOB, LAYOUT, MODEL, JsonFlag, with_options


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(verify)


@with_options(JOB, LAYOUT, EXECUTION, MODEL, CLUSTER)
def verify(
    model: Annotated[
        str, typer.Argument(help="catalog name, Hugging Face id, or path", show_default=False)
    ] = "",
    *,
    gpus: Annotated[str, typer.Option("--gpus", help="for example 256xH100", show_default=False)] = "",
    source: Annotated[str, typer.Option("--from", "--against", help="the JSON of a plan or estimate")] = "",
    level: Annotated[
        str, typer.Option("--level", help="0 starts, 1 memory, 2 trains, 3 on GPUs")
    ] = "0,1,2,3",
    fault: Annotated[
        str, typer.Option("--inject-fault", help="sp-grad-sync, wrong-shard or no-finalize")
    ] = "",
    log: Annotated[str, typer.Option("--log", help="judge this log of a real run instead")] = "",
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """Run the layout small on Megatron Core itself and judge it, or judge the log of a real run."""
    from rich.console import Group

    import meshwright as mw
    from meshwright.api import verifying as api
    from meshwright.api.slowness import speed_of
    from meshwright.cli.reading import read_answer, read_cluster, read_levels, read_options
    from meshwright.cli.show import console
    from meshwright.report.verification import judgement_screen, speed_screen, verification_screen

    def asked() -> Any:
        if source:
            return mw.estimate_again(read_answer(source))
        return mw.estimate(model, read_cluster(gpus, said), read_options(said))

    if log:
        plan = asked() if source or model else None
        judged = api.judge(log, None if plan is None else api.expected_of(plan))
        speed = speed_of(judged, plan)
        data = judged.as_dict() | {"speed": speed.as_dict() if speed else None}
        screen = judgement_screen(judged)
        _print(data, Group(screen, speed_screen(speed)) if speed else screen, as_json, console)
        raise typer.Exit(0 if judged.passed else 1)
    answer = api.verify_answer(asked(), levels=read_levels(level), fault=fault or None)
    _print(answer.as_dict(), verification_screen(answer), as_json, console)
    raise typer.Exit(1 if answer.verdict == "fail" else 0)


def _print(data: object, screen: Any, as_json: bool, console: Any) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=2, default=str))
    else:
        console().print(screen)
