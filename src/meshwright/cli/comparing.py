"""`compare`: two configs side by side."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from meshwright.cli.options import JsonFlag


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compare)


def compare(
    left: Annotated[str, typer.Argument(help="launch script or config", show_default=False)],
    right: Annotated[str, typer.Argument(help="the other", show_default=False)],
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE of an environment variable")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Two launch scripts or configs side by side: what differs, and what it costs."""
    import meshwright as mw
    from meshwright.cli.reading import pairs
    from meshwright.report.comparison import comparison_text

    answer = mw.compare(left, right, pairs("--env", env or []))
    text = json.dumps(answer.as_dict(), indent=2, default=str) if as_json else comparison_text(answer)
    typer.echo(text, nl=as_json)
    bad = "invalid" in (answer.left.verdict, answer.right.verdict)
    raise typer.Exit(1 if bad else 0)
