"""The server in a process of its own, as agents start it, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

SOURCE = str(Path(__file__).parents[2] / "src")
START = "from meshwright.cli.main import main; main()"
ENV = {**os.environ, "PYTHONPATH": SOURCE, "HF_HUB_OFFLINE": "1"}
Use = Callable[[Client], Awaitable[Any]]


def run_apart(work: Any) -> Any:
    """Run a coroutine in a thread of its own: a browser's event loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server answers over HTTP."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", START, "mcp", "--http", "--port", "0"], stdout=subprocess.PIPE,
        text=True, cwd=tmp_path_factory.mktemp("http"), env=ENV,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://127.0.0.1:" in line, line
    yield line.split()[5]
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="session", params=["stdio", "http"])
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Use], Any]:
    """Use a connected client; a new connection each time."""

    async def connected(use: Use) -> Any:
        if request.param == "http":
            place: Any = request.getfixturevalue("address")
        else:
            place = stdio_client(
                StdioServerParameters(
                    command=sys.executable, args=["-c", START, "mcp"], env=ENV,
                    cwd=tmp_path_factory.mktemp("stdio"),
                )
            )  # fmt: skip
        async with Client(place, read_timeout_seconds=120) as client:
            return await use(client)

    if request.param == "http":
        request.getfixturevalue("address")
    return lambda use: run_apart(connected(use))


@pytest.fixture(scope="session")
def run() -> Callable[[Any], Any]:
    return run_apart
