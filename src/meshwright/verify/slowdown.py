"""Why a run is slower than predicted: the gap, shared out over causes that the log itself shows."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.verify.log_judge import finite, steady_iterations
from meshwright.verify.logs import RunLog

SPIKE = 1.5
"""A step that takes this many times the median is a stall."""

DRIFT = 1.04
"""The last third of a run is slower than the first by more than this: clocks or a failing node."""

UNEVEN = 1.10
"""Largest over smallest time of the same timer on different ranks."""

NOTICED = 0.05
"""A run this much slower than predicted, relatively, is worth an explanation."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One named cause. `seconds` a step where the log or the cost model lets it be measured, else None."""

    name: str
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a run was, and where its time went.

    measured_seconds   mean step after warm-up; median_seconds is what an undisturbed step takes
    predicted_seconds  of the plan, and the upper end of its band; None where no plan was given
    causes             the largest measured ones first
    """

    measured_seconds: float
    median_seconds: float
    predicted_seconds: tuple[float, float] | None
    causes: tuple[Cause, ...]

    @property
    def slower(self) -> float | None:
        """Measured over predicted, less one."""
        return (
            None if self.predicted_seconds is None else self.measured_seconds / self.predicted_seconds[0] - 1
        )

    def as_dict(self) -> dict[str, Any]:
        low, high = self.predicted_seconds or (None, None)
        return {
            "measured_seconds": self.measured_seconds,
            "median_seconds": self.median_seconds,
            "predicted_seconds": low,
            "predicted_high_seconds": high,
            "slower_than_predicted": self.slower,
            "causes": [asdict(cause) for cause in self.causes],
        }


def speed(
    log: RunLog, predicted: tuple[float, float] | None = None, priced: Sequence[Cause] | None = None
) -> Speed | None:
    """Where the time of a run went; None where the log holds no step times.

    predicted  seconds of a step, and the upper end of the band
    priced     flags that differ from the plan's, with what they cost; None judges flags by the log alone
    """
    times = [one.seconds for one in steady_iterations(log) if one.seconds and finite(one.seconds)]
    if not times:
        return None
    mean, median = statistics.fmean(times), statistics.median(times)
    known = causes(log)
    found = list(known if priced is None else [*priced, *(one for one in known if one.name != "flags")])
    if predicted and mean > (1 + NOTICED) * predicted[0]:
        rest = mean - predicted[0] - sum(cause.seconds or 0.0 for cause in found)
        if rest > NOTICED * predicted[0]:
            text = f"{rest:.2f} s a step that the log does not explain: profile one step of the slowest rank"
            found.append(Cause("unexplained", text, rest))
    return Speed(
        measured_seconds=mean, median_seconds=median, predicted_seconds=predicted,
        causes=tuple(sorted(found, key=lambda cause: -(cause.seconds or 0.0))),
    )  # fmt: skip


def causes(log: RunLog) -> tuple[Cause, ...]:
    """Causes of lost time that the log shows by itself, the largest measured ones first."""
    found = [*stalls(log), *drift(log), *imbalance(log), *data(log), *flags(log)]
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
    number = "1 step takes" if len(slow) == 1 else f"{len(slow)} steps take"
    return [Cause("stalls", f"{number} over {SPIKE} x the median (data, network): {at}", lost)]


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
    return [Cause("clocks", text, max(statistics.median(times) - early, 0.0))]


def imbalance(log: RunLog) -> list[Cause]:
    """The same work takes some ranks longer: a straggler, or stages of unequal weight."""
    found = []
    stages = log.degrees.get("pp", 1)
    why = "stages of unequal weight, or a slow GPU" if stages > 1 else "a slow GPU, or uneven batches"
    for name in ("forward-compute", "backward-compute", "forward-backward"):
        low, high = log.timers.get(name, (0.0, 0.0))
        if low > 0 and high > UNEVEN * low:
            text = f"{name}: {low:.2f} s on the fastest rank, {high:.2f} s on the slowest ({why})"
            found.append(Cause("imbalance", text, high - low))
    return found[:1]


def data(log: RunLog) -> list[Cause]:
    """Waiting for input."""
    _, high = log.timers.get("batch-generator", (0.0, 0.0))
    times = [one.seconds for one in steady_iterations(log) if one.seconds and finite(one.seconds)]
    if times and high > 0.05 * (median := statistics.median(times)):
        return [Cause("data", f"batch-generator takes up to {high:.2f} s of a {median:.2f} s step", high)]
    return []


OVERLAPS: Mapping[str, tuple[str, str, str]] = {
    "overlap_grad_reduce": ("dp", "dp", "gradients are reduced after the backward pass"),
    "overlap_param_gather": ("dp", "dp", "parameters are gathered before the forward pass"),
    "tp_comm_overlap": ("tp", "tp", "tensor-parallel communication is not overlapped"),
    "overlap_p2p_comm": ("pp", "pp", "pipeline sends are not overlapped"),
}
"""Option of the log -> degree that it concerns, overlap of ours that it is, what its absence means."""


def is_off(value: str | None) -> bool:
    return value in ("False", "false")


def flags(log: RunLog) -> list[Cause]:
    """Overlaps that the log says are off, and recomputation that is on."""
    found = [
        Cause("flags", f"{option} is off: {what}")
        for option, (degree, _, what) in OVERLAPS.items()
        if log.degrees.get(degree, 1) > 1 and is_off(log.options.get(option))
    ]
    if log.options.get("recompute_granularity") == "full":
        found.append(Cause("flags", "recompute_granularity is full: about a third more computation"))
    return found
