"""Verifications run one at a time, within limits, and say what came out."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

import meshwright as mw
from meshwright.web.app import create_app
from meshwright.web.jobs import MOST_WAITING, Jobs

pytestmark = pytest.mark.xdist_group("web")
JOB = {"model": "llama-3-8b", "gpus": "8xH100"}


def plan() -> dict[str, Any]:
    return dict(mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=2)).as_dict())


def waited(client: TestClient, name: str, seconds: float = 120) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found: dict[str, Any] = client.get(f"/api/verify/{name}").json()
        if found["status"] in ("done", "failed"):
            return found
        time.sleep(0.2)
    raise AssertionError(found)


@pytest.mark.engine
def test_a_server_that_verifies_answers_with_what_the_engine_said() -> None:
    with TestClient(create_app(verifies=True), base_url="http://localhost") as client:
        good = client.post("/api/verify", json={**JOB, "tp": 2, "pp": 2, "levels": [0]}).json()
        bad = client.post("/api/verify", json={**JOB, "tp": 8, "pp": 2, "levels": [0]}).json()
        found = waited(client, good["job"])
        assert (found["status"], found["answer"]["verdict"]) == ("done", "pass")
        refused = waited(client, bad["job"])
        assert (refused["status"], refused["answer"]["verdict"]) == ("done", "fail")
        assert "our rules" in refused["answer"]["levels"][0]["why"]


def test_one_that_takes_too_long_is_ended() -> None:
    async def work() -> Any:
        jobs = Jobs(seconds=0.3)
        job = jobs.get(jobs.start(plan(), [0]) or "")
        await asyncio.gather(*jobs._tasks)
        return job

    job = asyncio.run(work())
    assert (job.status, job.error) == ("failed", "this took more than 0.3 s")


def test_what_is_no_plan_fails_in_words() -> None:
    async def work() -> Any:
        jobs = Jobs()
        job = jobs.get(jobs.start({"rubbish": 1}, [0]) or "")
        await asyncio.gather(*jobs._tasks)
        return job

    assert "is not the JSON of" in asyncio.run(work()).error


def test_more_than_may_wait_are_turned_away() -> None:
    async def work() -> list[str | None]:
        jobs = Jobs()
        names = [jobs.start(plan(), [0]) for _ in range(MOST_WAITING + 2)]
        await jobs.stop()
        return names

    assert [name is None for name in asyncio.run(work())][-2:] == [True, True]
