"""Verifications that were asked for: one runs at a time, in a process of its own, with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MOST_KEPT, MOST_WAITING = 50, 8
SECONDS = 300.0
"""Longest time of one verification; usual is 10 to 60 s."""
RUN = "from meshwright.cli.main import main; main()"


@dataclass(slots=True)
class Job:
    """One verification and how it stands."""

    status: Literal["waiting", "running", "done", "failed"] = "waiting"
    answer: Any = None
    error: str | None = None


class Jobs:
    """Runs `meshwright verify --from -` over the JSON of an answer; nothing else is ever started."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._turn = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, plan: Mapping[str, Any], levels: Sequence[int]) -> str | None:
        """The name of a new job; None where too many wait."""
        if sum(job.status == "waiting" for job in self._jobs.values()) >= MOST_WAITING:
            return None
        name, job = secrets.token_urlsafe(12), Job()
        self._jobs[name] = job
        while len(self._jobs) > MOST_KEPT:
            self._jobs.popitem(last=False)
        task = asyncio.create_task(self._run(job, json.dumps(plan).encode(), levels))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return name

    def get(self, name: str) -> Job | None:
        return self._jobs.get(name)

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, job: Job, plan: bytes, levels: Sequence[int]) -> None:
        async with self._turn:
            job.status = "running"
            try:
                job.answer = await self._verified(plan, levels)
                job.status = "done"
            except TimeoutError:
                job.status, job.error = "failed", f"this took more than {self._seconds:g} s"
            except ValueError as error:
                job.status, job.error = "failed", str(error)

    async def _verified(self, plan: bytes, levels: Sequence[int]) -> Any:
        """The JSON of `verify`; ValueError with its own words where it gives none."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", RUN, "verify", "--from", "-", "--json",
            "--level", ",".join(map(str, levels)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(plan), self._seconds)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()
        try:
            return json.loads(out)
        except ValueError:
            lines = err.decode(errors="replace").strip().splitlines()
            raise ValueError(lines[-1][:600] if lines else "verify gave no answer") from None
