"""Over HTTP the server keeps to this machine."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError
from meshwright.mcp.serving import http_app

pytestmark = pytest.mark.xdist_group("mcp")

CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "advise", "arguments": {"pp": 2, "tp": 2, "ep": 8}},
}  # fmt: skip
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def post(address: str, **headers: str) -> Any:
    return httpx.post(address, content=json.dumps(CALL), headers={**HEADERS, **headers}, timeout=60)


def test_it_listens_on_loopback(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")


def test_a_name_that_was_rebound_to_this_machine_is_refused(address: str) -> None:
    port = address.split(":")[2].split("/")[0]
    assert post(address, host=f"evil.example:{port}").status_code == 421
    assert post(address, host=f"localhost:{port}").status_code == 200


def test_a_page_elsewhere_is_refused(address: str) -> None:
    assert post(address, origin="https://evil.example").status_code == 403
    assert post(address, origin="http://localhost:3000").status_code == 200


def test_a_body_that_is_too_large_is_refused(address: str) -> None:
    big = httpx.post(address, content=b" " * (3 << 20), headers=HEADERS, timeout=60)
    assert big.status_code == 413


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_listening_beyond_this_machine_must_be_said(host: str) -> None:
    done = CliRunner().invoke(app, ["mcp", "--http", "--host", host, "--port", "0"])
    assert isinstance(done.exception, QuestionError)
    assert "--allow-host" in str(done.exception)


def test_names_that_were_allowed_are_answered_and_others_are_not() -> None:
    async def ask(host: str) -> int:
        served = http_app(["build-box"])
        transport = httpx.ASGITransport(app=served)
        async with (
            served.router.lifespan_context(served),
            httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client,
        ):
            listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            return (await client.post("/mcp", json=listed, headers=HEADERS)).status_code

    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        statuses = [pool.submit(asyncio.run, ask(host)).result() for host in ("build-box", "other-box")]
    assert statuses == [200, 421]
