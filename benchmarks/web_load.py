"""The server under load, and the page alone: how long people wait.

    python benchmarks/web_load.py [--people 200] [--report DIR]

Starts a server of its own on loopback. Measures that many different plans asked at once (none may be lost),
the same plan asked as often at once, a degree changed for a model that was asked about before, and, where
Chromium is installed, the first paint of the page and a changed degree from click to picture.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-7b", "mixtral-8x7b", "gemma-2-9b", "qwen3-30b-a3b")
CHANGES = 30


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The address of a fresh server."""
    source = str(Path(__file__).parents[1] / "src")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", "from meshwright.cli.serve import serve; serve(port=0)"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[3]
    finally:
        process.terminate()
        process.wait(20)


async def at_once(address: str, asked: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """(status, seconds) of each question, all sent at the same time."""
    limits = httpx.Limits(max_connections=len(asked))
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:

        async def one(body: dict[str, Any]) -> tuple[int, float]:
            start = time.perf_counter()
            reply = await client.post("/api/plan", json=body)
            return reply.status_code, time.perf_counter() - start

        return list(await asyncio.gather(*(one(body) for body in asked)))


def different(people: int) -> list[dict[str, Any]]:
    """Plans of several models on 8 to 64 GPUs, no two alike."""
    return [
        {
            "model": MODELS[n % len(MODELS)], "gpus": f"{8 << (n % 4)}xH100", "global_batch": 64 * (n + 1),
            "top": 3,
        }
        for n in range(people)
    ]  # fmt: skip


def row(words: str, seconds: list[float], statuses: list[int] | None = None) -> tuple[str, ...]:
    """A line of the report: how many, lost, median, p95, longest."""
    lost = "" if statuses is None else str(sum(status != 200 for status in statuses))
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    shown = [f"{value:.3g}" for value in (statistics.median(seconds), p95, max(seconds))]
    return (words, str(len(seconds)), lost, *shown)


def changed_degrees(address: str) -> list[float]:
    """Seconds of estimates with their pictures, for a model that was planned before."""
    job = {"model": "llama-3-70b", "gpus": "64xH100"}
    found = []
    with httpx.Client(base_url=address, timeout=120) as client:
        client.post("/api/plan", json={**job, "top": 3})
        for n in range(CHANGES):
            body = {**job, "tp": (2, 4, 8)[n % 3], "pp": (2, 4)[n % 2], "mbs": 1 + n % 2, "width": 420.0 + n}
            start = time.perf_counter()
            client.post("/api/estimate", json={**body, "pictures": ["memory", "step"]}).raise_for_status()
            found.append(time.perf_counter() - start)
    return found


def page(address: str) -> list[tuple[str, ...]]:
    """First paint, and a changed degree from click to picture, in Chromium; nothing where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return []
    from playwright.sync_api import sync_playwright

    paints, clicks = [], []
    with sync_playwright() as tools:
        browser = tools.chromium.launch(
            executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        for _ in range(5):
            one = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            one.goto(f"{address}/")
            one.wait_for_selector("#empty:visible")
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(one.evaluate(paint) / 1e3)
            one.context.close()
        one = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        one.goto(f"{address}/#model=llama-3-8b&count=64")
        one.wait_for_selector("#picture-tab svg", timeout=120_000)
        for value in ("2", "4", "8", "1", "2", "4", "8", "1"):
            one.wait_for_function("() => !document.querySelector('[aria-busy]')")
            before = one.inner_html("#picture-memory")
            start = time.perf_counter()
            one.select_option("#change-tp", value)
            one.wait_for_function(
                "(was) => document.getElementById('picture-memory').innerHTML !== was", arg=before
            )
            clicks.append(time.perf_counter() - start)
        browser.close()
    return [
        row("first paint of the page", paints),
        row("a degree changed on the page: click to new picture", clicks),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--report", type=Path, default=None, help="folder of the report")
    said = parser.parse_args()
    from benchmarks.reporting import report_path, table, write

    rows, lost, before = [], 0, os.getloadavg()[0]
    with server() as address:
        httpx.post(
            f"{address}/api/plan", json={"model": "llama-3-8b", "gpus": "8xH100", "top": 1}, timeout=120
        )
        quick = [row("a degree changed, cached model: estimate and two pictures", changed_degrees(address))]
        quick += page(address)
        same = [{"model": "llama-3-70b", "gpus": "64xH100", "top": 3, "global_batch": 512}] * said.people
        for words, asked in (
            ("different plans, all at once", different(said.people)),
            ("the same plan, all at once", same),
        ):
            start = time.perf_counter()
            replies = asyncio.run(at_once(address, asked))
            whole = time.perf_counter() - start
            statuses = [status for status, _ in replies]
            lost += sum(status != 200 for status in statuses)
            print(f"{words}: {dict(Counter(statuses))} in {whole:.1f} s", flush=True)
            rows.append(row(f"{words} ({whole:.0f} s in all)", [seconds for _, seconds in replies], statuses))
    head = ("what", "requests", "lost", "median [s]", "p95 [s]", "longest [s]")
    lines = [
        "# The server under load", "",
        f"{os.cpu_count()} cores, one search worker a core; load average before it {before:.1f}.", "",
        *table(head, [*rows, *quick]),
    ]  # fmt: skip
    path = report_path("web_load")
    write(said.report / path.name if said.report else path, lines,
          command=f"python benchmarks/web_load.py --people {said.people}")  # fmt: skip
    print("\n".join(lines[4:]))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    raise SystemExit(main())
