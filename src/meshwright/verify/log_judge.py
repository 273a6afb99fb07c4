"""Whether a logged run is a success, by the guide's criteria, and why not, in words.

The guide asks of a first run: it ends with status 0, the loss at iteration 3 is a finite number, and the
log shows the expected degrees, data-parallel size and number of ranks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.verify.logs import Failure, Iteration, RunLog

GIB = 1024.0**3
FIRST_ITERATIONS = 3
"""The iteration whose loss must be finite (the guide's success criterion)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the log should show; what is left empty is not compared.

    degrees         by our names (tp, pp, vpp, cp, ep, etp, dp, ...)
    world           number of ranks
    iterations      steps the run was to make
    step_seconds    predicted time of a step, and the upper end of its band [s]
    """

    degrees: Mapping[str, int] = field(default_factory=dict)
    world: int | None = None
    iterations: int | None = None
    step_seconds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on a log. `reasons` says why it failed; `remarks` what is worth knowing otherwise."""

    passed: bool
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    log: RunLog

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        log = self.log
        last = log.iterations[-1] if log.iterations else None
        return {
            "verdict": "pass" if self.passed else "fail",
            "reasons": list(self.reasons),
            "remarks": list(self.remarks),
            "framework": log.source,
            "degrees": dict(log.degrees),
            "world_size": log.world,
            "iterations": len(log.iterations),
            "last_iteration": last.number if last else None,
            "last_loss": last.loss if last and finite(last.loss) else None,
            "step_seconds": steady_seconds(log),
            "tflops_per_gpu": steady(log, "tflops"),
            "max_allocated_bytes": {str(rank): size for rank, size in sorted(log.memory.items())},
            "failures": [
                {"kind": f.kind, "rank": f.rank, "line": f.line, "text": f.text} for f in log.failures
            ],
        }


def judge_log(log: RunLog, expected: Expected | None = None) -> Judgement:
    """The verdict on a run from its log."""
    expected = expected or Expected()
    reasons = [
        *(describe_failure(failure, log, expected) for failure in log.failures),
        *loss_reasons(log, expected),
        *degree_reasons(log, expected),
        *end_reasons(log, expected),
    ]
    return Judgement(
        passed=not reasons, reasons=tuple(dict.fromkeys(reasons)), remarks=tuple(remarks(log)), log=log
    )


def describe_failure(failure: Failure, log: RunLog, expected: Expected) -> str:
    """One failure as a sentence, with the pipeline stage of the rank where the degrees are known."""
    where = "" if failure.rank is None else f" on rank {failure.rank}{stage_of(failure.rank, log, expected)}"
    match failure.kind:
        case "oom":
            return f"out of memory{where} (line {failure.line}): {failure.text}"
        case "nccl-timeout":
            return (
                f"a collective timed out{where} (line {failure.line}): some rank did not take part, "
                f"look for the first that stopped: {failure.text}"
            )
        case "nan":
            return f"a gradient or loss is not a number{where} (line {failure.line}): {failure.text}"
        case "killed":
            return f"the run was ended from outside{where} (line {failure.line}): {failure.text}"
        case "crash":
            return f"a process crashed{where} (line {failure.line}): {failure.text}"
    return f"an exception{where} (line {failure.line}): {failure.text}"


def stage_of(rank: int, log: RunLog, expected: Expected) -> str:
    """ ", pipeline stage 3 of 4" in Megatron's default rank order; empty where the degrees are not known."""
    pp = log.degrees.get("pp") or expected.degrees.get("pp")
    world = log.world or expected.world
    if not pp or not world or pp == 1 or rank >= world or world % pp:
        return ""
    return f", pipeline stage {rank // (world // pp)} of {pp}"


def loss_reasons(log: RunLog, expected: Expected) -> list[str]:
    """Losses that are no numbers, and too few iterations to tell."""
    if not log.iterations:
        return ["no iteration was logged" + ("" if log.failures else ": the run never made a step")]
    found = []
    bad = [
        iteration for iteration in log.iterations if iteration.loss is not None and not finite(iteration.loss)
    ]
    if bad:
        found.append(f"the loss is {bad[0].loss} at iteration {bad[0].number}")
    counted = [iteration for iteration in log.iterations if iteration.nan]
    if counted and not bad:
        found.append(
            f"{counted[-1].nan} iterations had a loss that is no number (first at {counted[0].number})"
        )
    needed = min(FIRST_ITERATIONS, expected.iterations or FIRST_ITERATIONS)
    reached = max(iteration.number for iteration in log.iterations)
    if reached >= needed and not any(finite(i.loss) for i in log.iterations if i.number >= needed):
        found.append(f"no loss is logged at or after iteration {needed}")
    return found


def degree_reasons(log: RunLog, expected: Expected) -> list[str]:
    """Degrees that differ from those expected, and sizes that do not multiply up."""
    found = []
    for name, wanted in expected.degrees.items():
        shown = log.degrees.get(name)
        if shown is not None and shown != wanted:
            found.append(f"the log shows {name.upper()}={shown}, expected {name.upper()}={wanted}")
    if expected.world and log.world and log.world != expected.world:
        found.append(f"the log shows {log.world} ranks, expected {expected.world}")
    sizes = [log.degrees.get(name) for name in ("tp", "pp", "dp")]
    if log.world and all(sizes):
        tp, pp, dp = (size or 1 for size in sizes)
        cp = log.degrees.get("cp", 1)
        if tp * pp * cp * dp != log.world:
            found.append(
                f"TP{tp} x PP{pp} x CP{cp} x DP{dp} = {tp * pp * cp * dp}, but {log.world} ranks run"
            )
    return found


def end_reasons(log: RunLog, expected: Expected) -> list[str]:
    """The run stopped before its end."""
    found = []
    if log.exit_status:
        found.append(f"exit status {log.exit_status}")
    wanted = expected.iterations or log.train_iters
    reached = max((iteration.number for iteration in log.iterations), default=0)
    if wanted and 0 < reached < wanted and not log.failures:
        found.append(
            f"the log ends at iteration {reached} of {wanted} without an error: running, killed or hanging"
        )
    return found


def remarks(log: RunLog) -> list[str]:
    """What a reader wants to know of a run that passed."""
    found = []
    shown = [name for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp") if name in log.degrees]
    if shown:
        ranks = f" on {log.world} ranks" if log.world else ""
        found.append(" ".join(f"{name.upper()}{log.degrees[name]}" for name in shown) + ranks)
    if seconds := steady_seconds(log):
        rate = steady(log, "tflops")
        found.append(f"{seconds:.2f} s a step" + (f", {rate:.0f} TFLOP/s a GPU" if rate else ""))
    if log.memory:
        rank, most = max(log.memory.items(), key=lambda item: item[1])
        found.append(f"at most {most / GIB:.1f} GiB allocated (rank {rank})")
    skipped = max((iteration.skipped for iteration in log.iterations), default=0)
    if skipped:
        found.append(f"{skipped} iterations were skipped (loss scale)")
    return found


def steady(log: RunLog, name: str) -> float | None:
    """Median of a figure over the iterations after the first third (warm-up), None where not logged."""
    values = [getattr(iteration, name) for iteration in steady_iterations(log)]
    numbers = [value for value in values if value is not None and finite(value)]
    return statistics.median(numbers) if numbers else None


def steady_seconds(log: RunLog) -> float | None:
    return steady(log, "seconds")


def steady_iterations(log: RunLog) -> tuple[Iteration, ...]:
    return log.iterations[min(len(log.iterations) // 3, 10) :]


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
