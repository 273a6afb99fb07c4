"""`explain`: the page of one rule."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from meshwright.cli.options import JsonFlag
from meshwright.cli.speaking import Lang, voice


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(explain)


def explain(
    rule: Annotated[str, typer.Argument(help="id of a rule, as findings show it", show_default=False)] = "",
    lang: Lang = None,
    as_json: JsonFlag = False,
) -> None:
    """What a rule demands, why, an example and its source; without a name, all rules."""
    import meshwright as mw
    from meshwright.cli.show import for_people

    say = voice(lang).say
    if as_json:
        from meshwright.api.rules import rule_data

        names = [rule] if rule else [name for name, _, _ in mw.rules()]
        found = [rule_data(name, say) for name in names]
        typer.echo(json.dumps(found[0] if rule else found, indent=2, ensure_ascii=False, default=str))
        return
    if rule:
        typer.echo(for_people(mw.explain(rule, say).rstrip("\n")))
        return
    for name, severity, must in mw.rules():
        typer.echo(for_people(f"{severity:<6}  {name}: {say(must)}", 8))
