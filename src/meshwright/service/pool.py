"""A bounded pool of worker processes with a cache of answers: many requests, few cores, none lost.

Two lanes: searches, and quick answers, so that a changed degree never waits behind a search. Equal
questions that are asked at the same time are worked on once. A question that takes too long ends with
its worker; a fresh one takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import struct
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What workers do.

    module  holds KINDS, {kind: function}, and `warm_up`
    quick   kinds that never wait behind a search
    """

    module: str
    quick: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server gives to all, and to one request."""

    searchers: int = field(default_factory=lambda: max(1, min(os.cpu_count() or 1, 8)))
    quick: int = 1
    seconds: float = 30.0
    """Work on one question; waiting for a worker does not count."""
    waiting: int = 1000
    """Questions that may wait; one more is told to come back."""
    cache_bytes: int = 64 << 20
    largest_body: int = 2 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and JSON of one answer."""

    status: int
    body: bytes


def _limit(status: int, words: str) -> Reply:
    return Reply(status, json.dumps({"error": words, "kind": "limit"}).encode())


BUSY = _limit(503, "too many questions are waiting; try again in a moment")
GONE = _limit(503, "the server is stopping")


class Worker:
    """One child process, started when it is first needed."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, message: bytes, seconds: float) -> Reply:
        """The answer, or a reply that says why there is none. Kills the process that takes too long."""
        try:
            process = await self._started()
            assert process.stdin is not None
            process.stdin.write(struct.pack(">I", len(message)) + message)
            await process.stdin.drain()
            return await asyncio.wait_for(_read(process), seconds)
        except TimeoutError:
            await self.stop()
            return _limit(504, f"this took more than {seconds:g} s; narrow the question (fix a degree)")
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            await self.stop()
            return _limit(503, "the worker ended over this; it may need more memory than one question gets")

    async def start(self) -> None:
        """Start the process, if it does not run."""
        await self._started()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "meshwright.service.child", self._module,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                     "HF_HUB_OFFLINE": "1"},
            )  # fmt: skip
        return self._process

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _read(process: asyncio.subprocess.Process) -> Reply:
    assert process.stdout is not None
    status, size = struct.unpack(">HI", await process.stdout.readexactly(6))
    return Reply(status, await process.stdout.readexactly(size))


class Lane:
    """Workers of one kind and those who wait for them."""

    def __init__(self, module: str, count: int, limits: Limits) -> None:
        self.limits, self.waiting = limits, 0
        self._workers = [Worker(module) for _ in range(count)]
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._running: set[asyncio.Task[Reply]] = set()
        for worker in self._workers:
            self._free.put_nowait(worker)

    async def ask(self, message: bytes) -> Reply:
        if self.waiting >= self.limits.waiting:
            return BUSY
        self.waiting += 1
        try:
            worker = await self._free.get()
        finally:
            self.waiting -= 1
        running = asyncio.create_task(self._run(worker, message))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)  # who goes away leaves the worker to finish

    async def _run(self, worker: Worker, message: bytes) -> Reply:
        try:
            return await worker.ask(message, self.limits.seconds)
        finally:
            self._free.put_nowait(worker)

    async def warm(self) -> None:
        """Start one worker before the first question."""
        worker = await self._free.get()
        try:
            await worker.start()
        finally:
            self._free.put_nowait(worker)

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class Pool:
    """Both lanes, the cache, and the questions that are being worked on."""

    def __init__(self, work: Work, limits: Limits | None = None) -> None:
        self.limits, self._kinds = limits or Limits(), work
        self._quick = Lane(work.module, self.limits.quick, self.limits)
        self._search = Lane(work.module, self.limits.searchers, self.limits)
        self._cache: OrderedDict[str, Reply] = OrderedDict()
        self._held = 0
        self._running: dict[str, asyncio.Task[Reply]] = {}
        self._interest: dict[str, int] = {}

    async def ask(self, kind: str, given: Mapping[str, Any]) -> Reply:
        """The answer of a question, from the cache, from one who asks the same, or from a worker."""
        message = json.dumps({"kind": kind, "given": given}, sort_keys=True).encode()
        key = hashlib.sha256(message).hexdigest()
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept
        task = self._running.get(key)
        if task is None:
            lane = self._quick if kind in self._kinds.quick else self._search
            task = self._running[key] = asyncio.create_task(self._work(lane, key, message))
        self._interest[key] = self._interest.get(key, 0) + 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._interest.get(key, 0) <= 1 and not task.done():
                task.cancel()  # nobody waits for it any more
            if task.cancelled():
                return GONE
            raise
        finally:
            self._interest[key] -= 1
            if self._interest[key] <= 0:
                self._interest.pop(key, None)

    async def _work(self, lane: Lane, key: str, message: bytes) -> Reply:
        try:
            reply = await lane.ask(message)
            if reply.status < 500:
                self._keep(key, reply)
            return reply
        finally:
            self._running.pop(key, None)

    def _keep(self, key: str, reply: Reply) -> None:
        self._cache[key] = reply
        self._held += len(reply.body)
        while self._held > self.limits.cache_bytes and self._cache:
            _, old = self._cache.popitem(last=False)
            self._held -= len(old.body)

    async def warm(self) -> None:
        """Start one worker of each lane before the first question."""
        await asyncio.gather(self._quick.warm(), self._search.warm())

    async def stop(self) -> None:
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(self._quick.stop(), self._search.stop())
