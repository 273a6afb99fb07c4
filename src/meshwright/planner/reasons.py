"""Why a plan was chosen, and what stops it from being better."""

from __future__ import annotations

import numpy as np

from meshwright.layout.table import Floats
from meshwright.planner.answer import Estimate
from meshwright.planner.search import Found

WORDS = {
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "ep": "expert all-to-all",
    "pp": "messages between pipeline stages",
    "dp": "gradient reduction and parameter gathers",
    "recompute": "recomputed activations",
    "bubble": "pipeline bubble",
    "imbalance": "unequal pipeline stages",
    "host": "kernel launches on the host",
    "memory_bound": "memory-bound kernels",
}
NOTICEABLE = 0.03
"""Share of the step below which a term is not worth a word."""
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")


def binding(estimate: Estimate) -> tuple[str, ...]:
    """What stops a plan from being better, largest first: memory, and the overheads of its step."""
    words = []
    used = estimate.memory
    if used is not None and (
        used.peak_bytes > 0.85 * used.usable_bytes or estimate.execution.recompute.granularity != "none"
    ):
        fullest = max(used.per_stage, key=lambda stage: stage.total_bytes).stage
        words.append(f"memory: {gib(used.peak_bytes)} of {gib(used.usable_bytes)} GiB on stage {fullest}")
    if estimate.time is not None:
        step = estimate.time.step_seconds
        shares = sorted(((estimate.time.terms[term] / step, term) for term in WORDS), reverse=True)
        words += [f"{WORDS[term]}: {share:.0%} of the step" for share, term in shares if share > NOTICEABLE][
            :3
        ]
    return tuple(words)


def reasons(found: Found, row: int) -> tuple[str, ...]:
    """How the best layouts with one axis changed compare with this one."""
    table, here = found.table, float(found.step[row])
    words = []
    for name in DEGREES:
        column = np.asarray(getattr(table, name))
        value = int(column[row])
        for other in _beside(np.unique(column), value):
            words.append(
                f"{name} {other} instead of {value}: {_difference(found.step[column == other], here)}"
            )
    granularity = np.array([str(e.recompute) for e in table.executions])[table.execution]
    mine = granularity[row]
    if mine != "none" and not (granularity == "none").any():
        words.append(f"recompute {mine}: no layout fits without recompute")
    return tuple(words)


def _beside(values: Floats, value: int) -> list[int]:
    """The next smaller and the next larger value that some fitting layout has."""
    below, above = values[values < value], values[values > value]
    return [int(v) for v in (*below[-1:], *above[:1])]


def _difference(steps: Floats, here: float) -> str:
    """The best of other layouts against this one."""
    change = float(steps.min()) / here - 1
    if abs(change) < 0.005:
        return "the same step time at best"
    return f"{abs(change):.1%} {'slower' if change > 0 else 'faster'} at best"


def gib(value: float) -> str:
    return f"{value / 1024**3:.1f}"
