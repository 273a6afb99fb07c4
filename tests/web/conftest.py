"""A server in a process of its own, as people run it, and a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

START = "from meshwright.cli.serve import serve; serve(port=0)"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server."""
    home = tmp_path_factory.mktemp("server")
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", START], stdout=subprocess.PIPE, text=True, cwd=home,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://" in line, line
    yield line.split()[3]
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="session")
def api(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium with a fresh profile."""
    if CHROMIUM is None:
        pytest.fail("no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()
