"""Two hundred people at once: everyone is answered."""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest


def run_apart(work):
    """Run a coroutine in a thread of its own: a browser's event loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


pytestmark = pytest.mark.xdist_group("web")

PEOPLE = 200


async def everyone(server: str, asked: list[dict[str, object]]) -> tuple[list[int], list[float]]:
    limits = httpx.Limits(max_connections=PEOPLE)
    async with httpx.AsyncClient(base_url=server, timeout=300, limits=limits) as client:

        async def one(body: dict[str, object]) -> tuple[int, float]:
            start = time.perf_counter()
            reply = await client.post("/api/plan", json=body)
            return reply.status_code, time.perf_counter() - start

        rows = await asyncio.gather(*(one(body) for body in asked))
    return [status for status, _ in rows], [seconds for _, seconds in rows]


def test_200_different_plans_at_once_are_all_answered(server: str) -> None:
    asked = [
        {"model": "llama-3.2-1b", "gpus": "8xH100", "global_batch": 8 * n, "top": 1} for n in range(1, 201)
    ]
    start = time.perf_counter()
    statuses, seconds = run_apart(everyone(server, asked))
    whole = time.perf_counter() - start
    assert statuses == [200] * PEOPLE
    p95 = statistics.quantiles(seconds, n=20)[-1]
    median = statistics.median(seconds)
    print(f"{PEOPLE} different plans in {whole:.1f} s; p95 {p95:.1f} s, median {median:.1f} s")


def test_200_times_the_same_plan_is_one_search(server: str) -> None:
    asked = [{"model": "llama-3-70b", "gpus": "64xH100", "top": 3, "global_batch": 512}] * PEOPLE
    statuses, seconds = run_apart(everyone(server, list(asked)))
    assert statuses == [200] * PEOPLE
    assert max(seconds) - min(seconds) < 60  # 200 searches of their own would take minutes


def test_a_changed_degree_does_not_wait_behind_searches(server: str) -> None:
    """Quick answers have a lane of their own."""

    async def work() -> bool:
        async with httpx.AsyncClient(base_url=server, timeout=120) as client:
            body = {"model": "deepseek-v3", "gpus": "512xH100", "top": 1}
            searches = [
                asyncio.create_task(client.post("/api/plan", json={**body, "global_batch": 512 * n}))
                for n in range(1, 7)
            ]
            await asyncio.sleep(0.3)
            reply = await client.post(
                "/api/estimate", json={"model": "llama-3-8b", "gpus": "8xH100", "tp": 4}
            )
            waited_for_all = all(one.done() for one in searches)
            assert reply.status_code == 200
            assert {one.status_code for one in await asyncio.gather(*searches)} == {200}
            return waited_for_all

    assert not run_apart(work())
