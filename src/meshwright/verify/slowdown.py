"""Why a run is slower than predicted: the gap, shared out over causes that the log itself shows."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from meshwright.verify.log_judge import finite, steady_iterations, steady_seconds
from meshwright.verify.logs import RunLog

SPIKE = 1.5
"""A step that takes this many times the median is a stall."""

DRIFT = 1.04
"""The last third of a run is slower than the first by more than this: clocks or a failing node."""

UNEVEN = 1.10
"""Largest over smallest time of the same timer on different ranks."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One named cause. `seconds` a step where the log lets it be measured, else None."""

    name: str
    text: str
    seconds: float | None = None


def causes(log: RunLog, predicted_seconds: float | None = None) -> tuple[Cause, ...]:
    """Causes of lost time, the largest measured ones first; [] when nothing stands out."""
    found = [*stalls(log), *drift(log), *imbalance(log), *data(log), *flags(log)]
    median = steady_seconds(log)
    if predicted_seconds and median:
        gap = median - predicted_seconds
        explained = sum(cause.seconds or 0.0 for cause in found if cause.name not in ("stalls",))
        if gap > 0.05 * predicted_seconds and explained < 0.5 * gap:
            rest = gap - explained
            found.append(
                Cause(
                    "unexplained", f"{rest:.2f} s of {gap:.2f} s over the prediction: profile one step", rest
                )
            )
    return tuple(sorted(found, key=lambda cause: -(cause.seconds or 0.0)))


def stalls(log: RunLog) -> list[Cause]:
    """Single steps far above the median: checkpoints where they come at even distances, else stalls."""
    times = [(i.number, i.seconds) for i in steady_iterations(log) if finite(i.seconds)]
    if len(times) < 8:
        return []
    median = statistics.median(seconds for _, seconds in times if seconds)
    slow = [(number, seconds) for number, seconds in times if seconds and seconds > SPIKE * median]
    if not slow:
        return []
    lost = sum(seconds - median for _, seconds in slow) / len(times)
    steps = {b[0] - a[0] for a, b in itertools.pairwise(slow)}
    at = ", ".join(str(number) for number, _ in slow[:4])
    if len(slow) > 2 and len(steps) == 1:
        return [Cause("checkpoints", f"every {steps.pop()} iterations a step is slow (a save?): {at}", lost)]
    return [Cause("stalls", f"{len(slow)} steps over {SPIKE} x the median (data, network): {at}", lost)]


def drift(log: RunLog) -> list[Cause]:
    """The run becomes slower as it goes."""
    times = [i.seconds for i in steady_iterations(log) if i.seconds and finite(i.seconds)]
    if len(times) < 12:
        return []
    third = len(times) // 3
    early, late = statistics.median(times[:third]), statistics.median(times[-third:])
    if late < DRIFT * early:
        return []
    text = f"steps grew from {early:.2f} s to {late:.2f} s: lower clocks (heat, power cap) or a failing node"
    return [Cause("clocks", text, late - early)]


def imbalance(log: RunLog) -> list[Cause]:
    """The same work takes some ranks longer: a straggler, or stages of unequal weight."""
    found = []
    for name in ("forward-compute", "backward-compute", "forward-backward"):
        low, high = log.timers.get(name, (0.0, 0.0))
        if low > 0 and high > UNEVEN * low:
            found.append(
                Cause(
                    "imbalance",
                    f"{name}: {low:.2f} s on the fastest rank, {high:.2f} s on the slowest",
                    high - low,
                )
            )
    return found[:1]


def data(log: RunLog) -> list[Cause]:
    """Waiting for input."""
    _, high = log.timers.get("batch-generator", (0.0, 0.0))
    median = steady_seconds(log)
    if median and high > 0.05 * median:
        return [Cause("data", f"batch-generator takes up to {high:.2f} s of a {median:.2f} s step", high)]
    return []


def flags(log: RunLog) -> list[Cause]:
    """Overlaps that the log says are off, and recomputation that is on."""
    degrees, options = log.degrees, log.options
    found = []
    for degree, option, what in (
        ("dp", "overlap_grad_reduce", "gradients are reduced after the backward pass"),
        ("dp", "overlap_param_gather", "parameters are gathered before the forward pass"),
        ("tp", "tp_comm_overlap", "tensor-parallel communication is not overlapped"),
        ("pp", "overlap_p2p_comm", "pipeline sends are not overlapped"),
    ):
        if degrees.get(degree, 1) > 1 and options.get(option) in ("False", "false"):
            found.append(Cause("flags", f"{option} is off: {what}"))
    if options.get("recompute_granularity") == "full":
        found.append(Cause("flags", "recompute_granularity is full: about a third more computation"))
    return found
