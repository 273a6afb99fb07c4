"""The pool: bounded, each question worked on once, and no question can hold a worker for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from meshwright.service.pool import Limits, Pool, Reply
from meshwright.web.answers import WORK


def run_apart(work):
    """Run a coroutine in a thread of its own: a browser's event loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


RANKS = {"tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "etp": 1}


def run(work: Callable[[Pool], Awaitable[Any]], **limits: Any) -> Any:
    async def whole() -> Any:
        pool = Pool(WORK, Limits(searchers=1, **limits))
        try:
            return await work(pool)
        finally:
            await pool.stop()

    return run_apart(whole())


def ranks(world: int) -> dict[str, Any]:
    return {"world_size": world, **RANKS}


def test_a_question_that_takes_too_long_ends_and_the_next_is_answered() -> None:
    async def impatient(pool: Pool) -> list[Reply]:
        await pool.ask("plan", {"model": "llama-3-8b", "gpus": "1xH100", "top": 1, "variants": False})
        object.__setattr__(pool.limits, "seconds", 0.05)
        slow = await pool.ask(
            "plan", {"model": "deepseek-v3", "gpus": "8192xH100", "top": 1, "variants": False}
        )
        object.__setattr__(pool.limits, "seconds", 60.0)
        fine = await pool.ask("plan", {"model": "llama-3-8b", "gpus": "2xH100", "top": 1, "variants": False})
        return [slow, fine]

    slow, fine = run(impatient, seconds=60.0)
    assert slow.status == 504
    assert json.loads(slow.body)["kind"] == "limit"
    assert fine.status == 200


def test_equal_questions_are_worked_on_once() -> None:
    async def work(pool: Pool) -> list[Reply]:
        asked = [asyncio.create_task(pool.ask("ranks", ranks(64))) for _ in range(50)]
        await asyncio.sleep(0)
        assert len(pool._running) == 1
        return await asyncio.gather(*asked)

    replies = run(work)
    assert {reply.status for reply in replies} == {200}
    assert len({id(reply) for reply in replies}) == 1


def test_more_than_may_wait_are_told_to_come_back() -> None:
    async def work(pool: Pool) -> list[Reply]:
        return await asyncio.gather(*(pool.ask("ranks", ranks(n)) for n in range(1, 9)))

    statuses = sorted(reply.status for reply in run(work, waiting=3))
    assert statuses.count(503) > 0
    assert statuses.count(200) >= 3


def test_the_cache_keeps_within_its_bytes() -> None:
    async def work(pool: Pool) -> int:
        for n in range(1, 30):
            await pool.ask("ranks", ranks(n))
        assert pool._held == sum(len(reply.body) for reply in pool._cache.values())
        return pool._held

    assert run(work, cache_bytes=10_000) <= 10_000


def test_who_goes_away_while_waiting_gives_up_the_place() -> None:
    async def work(pool: Pool) -> tuple[int, Reply]:
        first = asyncio.create_task(pool.ask("ranks", ranks(1)))
        await asyncio.sleep(0)
        gone = asyncio.create_task(pool.ask("ranks", ranks(2)))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0)
        return len(pool._running), await first

    running, reply = run(work)
    assert running == 1
    assert reply.status == 200


def test_faults_of_a_worker_are_answers_too() -> None:
    async def work(pool: Pool) -> tuple[Reply, Reply]:
        return await pool.ask("ranks", {"nonsense": 1}), await pool.ask("ranks", ranks(3))

    fault, fine = run(work)
    assert (fault.status, fine.status) == (500, 200)
    assert "KeyError" in json.loads(fault.body)["error"]


@pytest.mark.parametrize("waiting", [0])
def test_a_full_server_still_answers(waiting: int) -> None:
    async def work(pool: Pool) -> Reply:
        return await pool.ask("ranks", ranks(1))

    assert run(work, waiting=waiting).status == 503
