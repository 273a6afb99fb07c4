"""Running the server: over standard input and output, or over HTTP on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from meshwright.errors import QuestionError
from meshwright.mcp.server import LIMITS, create_server
from meshwright.service import loopback
from meshwright.service.pool import Limits

LARGEST_BODY = 2 << 20


def serve_stdio(limits: Limits = LIMITS) -> None:
    """Answer the client that started this process until its input ends."""
    logging.basicConfig(level=logging.WARNING)  # to standard error: standard output is the client's

    async def answer() -> None:
        server = create_server(limits)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(answer())


def http_app(hosts: Sequence[str] = (), limits: Limits = LIMITS) -> Starlette:
    """The ASGI application, at /mcp. It answers to loopback and to `hosts`, whatever a name resolves to.

    A page elsewhere whose name was rebound to this machine names itself in Host, and is refused.
    """
    names = [*loopback.NAMES, *hosts]
    ours = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[one for name in names for one in (name, f"{name}:*")],
        allowed_origins=[f"{way}://{one}" for way in ("http", "https") for name in names
                         for one in (name, f"{name}:*")],
    )  # fmt: skip
    return create_server(limits).streamable_http_app(
        json_response=True, stateless_http=True, transport_security=ours, max_request_body_size=LARGEST_BODY
    )


def serve_http(
    host: str, port: int, hosts: Sequence[str], say: Callable[[str], None], limits: Limits = LIMITS
) -> None:
    """Listen until the process ends; QuestionError where that would be beyond this machine unasked."""
    if host not in loopback.ADDRESSES and not hosts:
        raise QuestionError(
            f"{host} is reached from other machines, and nobody is asked who they are: listen on 127.0.0.1, "
            "or name what it may be reached by with --allow-host"
        )
    config = uvicorn.Config(
        http_app(hosts, limits), host=host, port=port, log_level="warning", access_log=False,
        server_header=False,
    )  # fmt: skip
    bound = config.bind_socket()
    place = f"[{host}]" if ":" in host else host
    say(f"Meshwright's MCP server is at http://{place}:{bound.getsockname()[1]}/mcp  (Ctrl-C ends it)")
    uvicorn.Server(config).run(sockets=[bound])
