"""Ranks as forked processes: Megatron Core is imported once, then every rank is a fork with gloo."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """One rank that did not end well."""

    rank: int
    status: int
    text: str


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends (elsewhere: nothing)."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (AttributeError, OSError):
        return


def run(
    world: int, work: Callable[..., Any], *args: Any, seconds: float = 120.0
) -> tuple[list[Any], list[Failure]]:
    """`work(*args)` on every rank of a gloo world: what each returned (plain values), and who failed."""
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        sys.stdout.flush()
        sys.stderr.flush()
        ranks = {start_rank(rank, world, folder, work, args, seconds): rank for rank in range(world)}
        failures = wait(ranks, folder, seconds)
        texts = [read(os.path.join(folder, f"result-{rank}")) for rank in range(world)]
    return [json.loads(text) if text else None for text in texts], failures


def start_rank(
    rank: int, world: int, folder: str, work: Callable[..., Any], args: tuple[Any, ...], seconds: float
) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    stuck = open(os.path.join(folder, f"stuck-{rank}"), "w")  # noqa: SIM115 - open as long as the rank
    try:
        die_with_parent()
        faulthandler.dump_traceback_later(max(seconds - 1.0, 1.0), file=stuck)
        join(rank, world, folder, seconds)
        result = work(*args)
        with open(os.path.join(folder, f"result-{rank}"), "w") as out:
            json.dump(result, out)
        status = 0
    except BaseException:
        with open(os.path.join(folder, f"error-{rank}"), "w") as out:
            out.write(traceback.format_exc())
    finally:
        sys.stderr.flush()
        os._exit(status)


def join(rank: int, world: int, folder: str, seconds: float) -> None:
    """Join the gloo world whose ranks meet in a file."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=seconds),
    )


def wait(ranks: dict[int, int], folder: str, seconds: float) -> list[Failure]:
    """Until all have ended; a second after the first failure, or when time is over, the rest is killed."""
    failures: list[Failure] = []
    end = time.monotonic() + seconds
    while ranks:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in ranks:
            rank = ranks.pop(process)
            if status:
                said = read(os.path.join(folder, f"error-{rank}")) or ended(status)
                failures.append(Failure(rank, status, said))
                end = min(end, time.monotonic() + 1.0)
        elif time.monotonic() > end:
            failures += [Failure(rank, -1, stuck_at(folder, rank, seconds)) for rank in ranks.values()]
            for process in list(ranks):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            return failures
        else:
            time.sleep(0.005)
    return failures


def ended(status: int) -> str:
    """How a process ended that left no word."""
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with status {os.WEXITSTATUS(status)}"


def stuck_at(folder: str, rank: int, seconds: float) -> str:
    """Where a rank was shortly before it was stopped: it hangs, or calls itself without end."""
    frames = [line.strip() for line in read(os.path.join(folder, f"stuck-{rank}")).splitlines()]
    inside = [frame for frame in frames if "/megatron/" in frame]
    depth = f", {inside.count(inside[0])} calls deep" if inside and inside.count(inside[0]) > 3 else ""
    return f"no end in {seconds:.0f} s{depth}" + (f", in {inside[0]}" if inside else "")


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""
