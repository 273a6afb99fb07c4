"""Fit the calibration to a set of runs: log errors of step time, soft-L1, ridge towards physical priors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layout_ranking import sweep_runs
from meshwright.cost.calibration import Calibration
from meshwright.cost.fitting import Fitted, robust_fit
from one_change import one_change_runs
from predict import predict, time_of
from rows import DATA, Run, read_runs, read_table
from scoring import folds, weights

NOISE = 0.06
"""Log error at which a residual turns from squared to linear: twice the spread of a repeated run."""
TRUST = {"A": 0.5, "B": 0.25, "C": 0.08, "sweep": 0.05}
"""Weight of a run without published settings, by the quality of its row; a run with settings has 1."""
MEGATRON = ("nemo", "megatron")


def excluded() -> dict[str, str]:
    """Rows that nobody should be judged by: {id: reason}."""
    return {row["id"]: row["reason"] for row in read_table(DATA / "exclusions.csv")}


def published_runs() -> tuple[list[Run], dict[str, str]]:
    """Every published run that can be asked, and why the others cannot."""
    return read_runs(
        read_table(DATA / "throughput.csv"), read_table(DATA / "throughput_settings.csv"), excluded()
    )


def fit_set(runs: Sequence[Run]) -> list[Run]:
    """Runs that the calibration is fitted to: Megatron's, and the A100 sweeps.

    Other frameworks have other kernels and overlaps. Rows of quality C only where nothing else says
    what an A100 does.
    """
    chosen = [run for run in runs if run.known or _megatron(run)]
    sweeps = [
        replace(run, known=False, row={**run.row, "quality": "sweep"})
        for run in sweep_runs(read_table(DATA / "layout_sweeps_a100.csv"))
    ]
    return chosen + sweeps + one_change_runs()


def _megatron(run: Run) -> bool:
    framework, quality = run.row["framework"], run.row["quality"]
    ours = framework.startswith(MEGATRON) and "automodel" not in framework
    return ours and (quality in ("A", "B") or "2205.05198" in run.row["source_file"])


def priors() -> Mapping[str, Mapping[str, Any]]:
    """{factor: {prior, width, meaning}}"""
    factors: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "priors.json").read_text())["factors"]
    return factors


def with_factors(values: Sequence[float], base: Calibration | None = None) -> Calibration:
    """The calibration of log factors in the order of `priors`."""
    factors = {name: float(np.exp(value)) for name, value in zip(priors(), values, strict=True)}
    return replace(base or Calibration(), factors=factors)


def trust(runs: Sequence[Run]) -> np.ndarray:
    """Weight of each run: duplicates share one, runs without settings count less. [N]"""
    own = np.array([1.0 if run.known else TRUST.get(run.row.get("quality", "C"), 0.08) for run in runs])
    return own * weights(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Log step times linearised around one set of log factors, so that folds are cheap to fit.

    at  [P]; logs  [N]; slopes  [N, P]; measured  [N] log seconds; own  [N] weights
    """

    at: np.ndarray
    logs: np.ndarray
    slopes: np.ndarray
    measured: np.ndarray
    own: np.ndarray

    def rows(self, index: np.ndarray) -> Linear:
        return Linear(
            at=self.at, logs=self.logs[index], slopes=self.slopes[index],
            measured=self.measured[index], own=self.own[index],
        )  # fmt: skip


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


def linearised(runs: Sequence[Run], x: np.ndarray, step: float = 0.02) -> Linear:
    """Log step times and their slopes in every log factor."""
    base = log_times(runs, x)
    slopes = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += step
        slopes.append((log_times(runs, moved) - base) / step)
    measured = np.log([run.measured for run in runs])
    return Linear(at=x, logs=base, slopes=np.stack(slopes, axis=1), measured=measured, own=trust(runs))


def solve(model: Linear) -> Fitted:
    """Factors that fit a linearised model; moves of more than half an e-fold are held back."""
    known = priors()
    prior = np.log([row["prior"] for row in known.values()])
    width = np.array([row["width"] for row in known.values()])

    def residuals(x: np.ndarray) -> np.ndarray:
        moved = np.clip(x - model.at, -0.5, 0.5)
        return (model.logs + model.slopes @ moved - model.measured) / NOISE

    return robust_fit(residuals, prior, width, weights=model.own, start=model.at)


def fit(runs: Sequence[Run], rounds: int = 3) -> tuple[Fitted, Linear]:
    """Factors of a set of runs; the model is linearised anew each round, and once more at the end."""
    x = np.log([row["prior"] for row in priors().values()])
    for _ in range(rounds):
        model = linearised(runs, x)
        fitted = solve(model)
        x = fitted.values
    return fitted, model


def out_of_sample(
    runs: Sequence[Run], model: Linear, of: Callable[[Run], str]
) -> tuple[list[int], np.ndarray]:
    """Predictions of runs with settings by fits that never saw their fold: indices and seconds."""
    found: dict[int, float] = {}
    for fit_on, held in folds(runs, of).values():
        judged = [int(i) for i in held if runs[i].known]
        if judged:
            fitted = solve(model.rows(fit_on))
            seconds, _ = predict([runs[i] for i in judged], with_factors(fitted.values))
            found |= dict(zip(judged, seconds, strict=True))
    index = sorted(found)
    return index, np.array([found[i] for i in index])
