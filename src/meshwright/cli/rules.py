"""`explain`: the page of one rule."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(explain)


def explain(
    rule: Annotated[str, typer.Argument(help="id of a rule, as findings show it", show_default=False)] = "",
) -> None:
    """What a rule demands, why, an example and its source; without a name, all rules."""
    import meshwright as mw

    if rule:
        typer.echo(mw.explain(rule).rstrip("\n"))
        return
    for name, severity, must in mw.rules():
        typer.echo(f"{severity:<6}  {name}: {must}")
