"""`mcp`: the door for coding agents."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(mcp)


def mcp(
    *,
    http: Annotated[
        bool, typer.Option("--http", help="streamable HTTP in place of standard input and output")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="with --http: address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="with --http: port; 0 takes a free one")
    ] = 8714,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="name it may be reached by, beside loopback (several allowed)"),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="longest time one question may take")
    ] = 60.0,
) -> None:
    """A Model Context Protocol server for coding agents: plan, fit, estimate, check, ranks, advise, write,
    explain. Over standard input and output unless --http is given."""
    from dataclasses import replace

    from meshwright.errors import QuestionError

    try:
        from meshwright.mcp import serving
        from meshwright.mcp.server import LIMITS
    except ImportError as missing:
        raise QuestionError(f"mcp needs {missing.name}: pip install 'meshwright[mcp]'") from None
    limits = replace(LIMITS, seconds=seconds)
    if http:
        serving.serve_http(host, port, allow or (), typer.echo, limits)
    else:
        serving.serve_stdio(limits)
