"""What came of a run, from its log, its exit status and what the scheduler said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from meshwright.verify.log_judge import (
    Expected,
    Judgement,
    describe_failure,
    finite,
    judge_log,
    steady,
    steady_iterations,
    steady_seconds,
)
from meshwright.verify.logs import read_log
from meshwright.verify.profile.runs import Candidate, Outcome
from meshwright.verify.profile.schedulers import State

LARGEST_LOG = 500_000_000
ENDED_FROM_OUTSIDE = (128 + 2, 128 + 15)
"""Exit statuses of a shell whose command was ended by SIGINT or SIGTERM."""


def outcome_of(
    candidate: Candidate,
    log: Path,
    state: State,
    status: int | None,
    *,
    limit: float | None = None,
    iterations: int | None = None,
) -> Outcome:
    """The result of one ended run.

    limit       it was ended after so many seconds
    iterations  steps it was to make
    """
    expected = Expected(degrees=candidate.degrees, world=candidate.world, iterations=iterations)
    judged = judge_file(log, expected)
    kind, why = verdict(judged, expected, state, status, limit)
    steps = [i.seconds for i in steady_iterations(judged.log) if i.seconds is not None and finite(i.seconds)]
    return Outcome(
        kind=kind,
        why=why,
        seconds=steady_seconds(judged.log),
        fastest=min(steps, default=None),
        slowest=max(steps, default=None),
        tflops=steady(judged.log, "tflops"),
        allocated=max(judged.log.memory.values(), default=None),
        iterations=max((i.number for i in judged.log.iterations), default=0),
    )


def judge_file(path: Path, expected: Expected) -> Judgement:
    """The verdict on a log; one that is missing is empty, one that is huge is read up to a limit."""
    if not path.is_file():
        return judge_log(read_log(""), expected)
    with path.open(encoding="utf-8", errors="replace") as lines:
        return judge_log(read_log(_up_to(lines, LARGEST_LOG)), expected)


def _up_to(lines: Iterable[str], most: int) -> Iterator[str]:
    for line in lines:
        most -= len(line)
        if most < 0:
            return
        yield line


def verdict(
    judged: Judgement, expected: Expected, state: State, status: int | None, limit: float | None
) -> tuple[str, str]:
    """(kind, why): the cause that comes first where one brings the next along.

    A rank that is out of memory leaves the others hanging until somebody ends the job: that is "oom".
    """
    said: dict[str, str] = {}
    for failure in judged.log.failures:
        said.setdefault(failure.kind, describe_failure(failure, judged.log, expected))
    if "oom" in said:
        return "oom", said["oom"]
    if state.kind == "oom":
        return "oom", "out of host memory: " + state.text
    if (limit is not None and status != 0) or state.kind == "timeout":
        return "hang", said.get("nccl-timeout") or _hang(judged, state, limit)
    if state.kind == "node-lost":
        return "node-lost", state.text
    if "nccl-timeout" in said:
        return "hang", said["nccl-timeout"]
    if "nan" in said:
        return "nan", said["nan"]
    ended = status in ENDED_FROM_OUTSIDE or ("killed" in said and status is None)
    if state.kind == "cancelled" or ended:
        return "cancelled", said.get("killed") or state.text
    if status or state.kind == "failed" or "error" in said:
        return "crashed", said.get("error") or said.get("crash") or said.get("killed") or _exit(status, state)
    if status is None and state.kind == "gone":
        return "lost", "the scheduler no longer knows the job, and it left no exit status"
    if not judged.passed:
        return _failed(judged)
    if steady_seconds(judged.log) is None:
        return "incomplete", "the log states no time of a step (--log-interval 1)"
    return "measured", ""


def _hang(judged: Judgement, state: State, limit: float | None) -> str:
    reached = max((i.number for i in judged.log.iterations), default=0)
    ended = f"ended after {limit:.0f} s" if limit is not None else f"ended by the scheduler ({state.text})"
    return f"{ended} at iteration {reached}"


def _exit(status: int | None, state: State) -> str:
    return f"exit status {status}" if status is not None else state.text


def _failed(judged: Judgement) -> tuple[str, str]:
    reasons = "; ".join(judged.reasons)
    if any(not finite(i.loss) for i in judged.log.iterations if i.loss is not None):
        return "nan", reasons
    differs = any(" expected " in reason for reason in judged.reasons)
    return ("wrong" if differs else "incomplete"), reasons
