"""`serve`: the page and the REST API on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(serve)


def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="port; 0 takes a free one")] = 8713,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=64, help="processes that search (default: the cores)"),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="longest time one question may take")
    ] = 30.0,
    verify: Annotated[
        bool, typer.Option("--verify", help="also run verifications on this machine, one at a time")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="name the page may be reached by (may be given several times)"),
    ] = None,
) -> None:
    """A page to plan in, and the REST API under /api. Listens on this machine only unless told otherwise."""
    from meshwright.errors import QuestionError

    try:
        import uvicorn

        from meshwright.web.app import create_app
    except ImportError as missing:
        raise QuestionError(f"serve needs {missing.name}: pip install 'meshwright[web]'") from None
    from meshwright.service.loopback import ADDRESSES, NAMES
    from meshwright.service.pool import Limits

    limits = Limits(seconds=seconds) if workers is None else Limits(seconds=seconds, searchers=workers)
    loopback = host in ADDRESSES
    hosts = (*NAMES, *(allow or ())) if loopback or allow else ("*",)
    page = create_app(limits, hosts, verifies=verify)
    config = uvicorn.Config(
        page, host=host, port=port, log_level="warning", access_log=False,
        limit_concurrency=4 * limits.waiting, timeout_keep_alive=15, server_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    bound = config.bind_socket()
    where = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    typer.echo(f"Meshwright is at {where}  (API: {where}/api/openapi.json; Ctrl-C ends it)")
    if not loopback:
        typer.echo("It listens beyond this machine, and asks nobody who they are.", err=True)
    server.run(sockets=[bound])
