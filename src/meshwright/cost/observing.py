"""Learning from one's own runs: measured steps become a calibration of one's own cluster.

Few factors move, each towards 1 unless the runs say otherwise: one run shifts mostly the whole, several
runs with different layouts tell compute, memory, network and launches apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.calibration import Calibration, default_calibration
from meshwright.cost.fitting import robust_fit
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import QuestionError
from meshwright.layout.table import Floats, LayoutTable

MOVES = {
    "all": 0.15, "gemm": 0.08, "attention": 0.08, "memory_bound": 0.12, "host": 0.2,
    "network": 0.3, "ep": 0.2, "tp": 0.2, "dp": 0.3,
}  # fmt: skip
"""Factors that a person's own runs move, with how far one would believe them to (log units)."""
NOISE = 0.03
"""Log spread of two runs of the same thing. Source: published configurations repeated in several releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured run: what was asked, its layout as a table of one row, and the seconds of a step."""

    question: Question
    table: LayoutTable
    seconds: float
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.table) != 1:
            raise QuestionError(f"an observation is one layout, and its table has {len(self.table)}")
        if not (np.isfinite(self.seconds) and self.seconds > 0):
            raise QuestionError(f"a step of {self.seconds} s was observed; it must be above 0")


def predicted(observations: Sequence[Observation], calibration: Calibration) -> Floats:
    """Seconds of a step of each observation under a calibration."""
    steps = []
    for seen in observations:
        question = replace(seen.question, calibration=calibration)
        steps.append(step_time(question, seen.table, all_stages(seen.table.splits)).step[0])
    return np.array(steps)


def fit(observations: Sequence[Observation], base: Calibration | None = None) -> Calibration:
    """The calibration that explains the observations, staying as near to `base` as they allow.

    The band narrows with what the runs agree on: what they scatter about the fit, and what the base was
    unsure of divided among them, whichever is more; never below the noise of a repeated run.
    """
    base = base or default_calibration()
    if not observations:
        return base
    measured = np.log([seen.seconds for seen in observations])
    names = tuple(MOVES)

    def moved(x: Floats) -> Calibration:
        factors = dict(base.factors)
        for name, value in zip(names, x, strict=True):
            factors[name] = factors.get(name, 1.0) * float(np.exp(value))
        return replace(base, factors=factors)

    fitted = robust_fit(
        lambda x: (np.log(predicted(observations, moved(x))) - measured) / NOISE,
        np.zeros(len(names)),
        np.array([MOVES[name] for name in names]),
        step=0.01,
        iterations=8,
    )
    found = moved(fitted.values)
    off = np.log(predicted(observations, found)) - measured
    return replace(
        found,
        time_band=tuple(_band(width, off) for width in base.time_band),  # type: ignore[arg-type]
        source=f"{len(observations)} own runs on top of: {base.source}",
    )


def _band(width: float, off: Floats) -> float:
    """Half width after seeing runs that lie `off` the fit (log units)."""
    scatter = 1.28 * float(np.sqrt(np.mean(off**2)))
    unsure = width / np.sqrt(1.0 + len(off))
    return float(min(width, max(scatter, unsure, 1.28 * NOISE)))
