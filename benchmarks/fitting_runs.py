"""Fit the calibration to a set of runs: log errors of step time, soft-L1, ridge towards physical priors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.calibration import Calibration
from meshwright.cost.fitting import Fitted, robust_fit
from predict import time_of
from rows import DATA, Run
from scoring import weights

NOISE = 0.06
"""Log error at which a residual turns from squared to linear: twice the spread of a repeated run."""
TRUST = {"A": 1.0, "B": 0.5, "C": 0.15}
"""Weight by the quality of a row, for runs without published settings."""


def priors() -> Mapping[str, Mapping[str, Any]]:
    """{factor: {prior, width, meaning}}"""
    factors: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "priors.json").read_text())["factors"]
    return factors


def with_factors(values: Sequence[float]) -> Calibration:
    """The calibration of log factors in the order of `priors`."""
    factors = {name: float(np.exp(value)) for name, value in zip(priors(), values, strict=True)}
    return Calibration(factors=factors)


def trust(runs: Sequence[Run]) -> np.ndarray:
    """Weight of each run: duplicates share one, runs without settings count less. [N]"""
    own = np.array([1.0 if run.known else TRUST.get(run.row.get("quality", "C"), 0.15) * 0.5 for run in runs])
    return own * weights(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Predictions linearised around one set of factors, so that folds are cheap to fit."""

    at: np.ndarray
    logs: np.ndarray
    slopes: np.ndarray


def log_times(runs: Sequence[Run], x: np.ndarray) -> np.ndarray:
    """Log step times; runs that ask the same question are asked once. [N]"""
    calibration = with_factors(x)
    known: dict[object, float] = {}
    found = []
    for run in runs:
        cluster = run.question.cluster
        machine = (cluster.gpu.name, cluster.nodes, cluster.gpus_per_node, cluster.network)
        asked = (run.question.model, run.question.job, run.question.stack)
        key = (*machine, *asked, run.layout, run.execution, run.pipeline)
        if key not in known:
            known[key] = float(np.log(time_of(run, calibration).step[0]))
        found.append(known[key])
    return np.array(found)


def linearised(runs: Sequence[Run], x: np.ndarray, step: float = 0.02) -> Model:
    """Log step times and their slopes in every log factor. [N], [N, P]"""
    base = log_times(runs, x)
    slopes = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += step
        slopes.append((log_times(runs, moved) - base) / step)
    return Model(at=x, logs=base, slopes=np.stack(slopes, axis=1))


def fit(runs: Sequence[Run], rounds: int = 4, start: np.ndarray | None = None) -> tuple[Fitted, Model]:
    """Factors of a set of runs; the model is linearised anew each round."""
    known = priors()
    prior = np.log([row["prior"] for row in known.values()])
    width = np.array([row["width"] for row in known.values()])
    measured = np.log([run.measured for run in runs])
    x = prior.copy() if start is None else start.copy()
    own = trust(runs)
    for _ in range(rounds):
        model = linearised(runs, x)
        fitted = solve(model, measured, own, prior, width)
        x = fitted.values
    return fitted, model


def solve(
    model: Model, measured: np.ndarray, own: np.ndarray, prior: np.ndarray, width: np.ndarray
) -> Fitted:
    """Factors that fit a linearised model; moves of more than half an e-fold are held back."""

    def residuals(x: np.ndarray) -> np.ndarray:
        moved = np.clip(x - model.at, -0.5, 0.5)
        return (model.logs + model.slopes @ moved - measured) / NOISE

    return robust_fit(residuals, prior, width, weights=own, start=model.at)
