"""Figures of merit of predicted step times, and folds that keep related rows together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rows import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of predicted against measured step times, each configuration weighed once.

    median, p90  of |predicted / measured - 1|
    bias         geometric mean of predicted / measured, less 1
    coverage     share of runs whose measured time lies in the 80 % band
    """

    runs: int
    weight: float
    median: float
    p90: float
    bias: float
    coverage: float


def weights(runs: Sequence[Run]) -> np.ndarray:
    """1 over the number of runs in the same `dup_group`: each configuration counts once. [N]"""
    groups = [run.row.get("dup_group") or run.id for run in runs]
    count = defaultdict(int)
    for group in groups:
        count[group] += 1
    return np.array([1.0 / count[group] for group in groups])


def score(runs: Sequence[Run], predicted: np.ndarray, band: np.ndarray) -> Score:
    """Weighted figures of a set of runs; `band` is the relative half width of each. [N]"""
    measured = np.array([run.measured for run in runs])
    ratio, w = predicted / measured, weights(runs)
    error = np.abs(ratio - 1)
    inside = (measured <= predicted * (1 + band)) & (measured >= predicted / (1 + band))
    return Score(
        runs=len(runs),
        weight=float(w.sum()),
        median=quantile(error, w, 0.5),
        p90=quantile(error, w, 0.9),
        bias=float(np.exp(np.average(np.log(ratio), weights=w)) - 1),
        coverage=float(np.average(inside, weights=w)),
    )


def quantile(values: np.ndarray, w: np.ndarray, share: float) -> float:
    """The smallest value with at least `share` of the weight at or below it, interpolated."""
    order = np.argsort(values)
    values, w = values[order], w[order]
    place = (np.cumsum(w) - w / 2) / w.sum()
    return float(np.interp(share, place, values))


def pair_order(runs: Sequence[Run], predicted: np.ndarray, *, apart: float = 0.1) -> tuple[int, int]:
    """Pairs that should be ordered, and how many are: the same model, task, GPUs and tokens a step.

    Pairs whose measured tokens a second a GPU differ by more than `apart`. The layout, the precision,
    the release or the GPU kind may differ within a pair.
    """
    right = total = 0
    for group in _grouped(
        runs, lambda r: (r.question.model.name, r.row.get("task"), r.question.job.seq_length)
    ):
        for position, i in enumerate(group):
            for j in group[position + 1 :]:
                mine, other = (_rate(runs[k], runs[k].measured) for k in (i, j))
                if abs(np.log(mine / other)) <= np.log(1 + apart):
                    continue
                guess = _rate(runs[i], predicted[i]) / _rate(runs[j], predicted[j])
                total += 1
                right += int((guess > 1) == (mine > other))
    return right, total


def _rate(run: Run, seconds: float) -> float:
    return run.question.job.tokens_per_step / run.question.cluster.world / seconds


def _grouped(runs: Sequence[Run], key: Callable[[Run], object]) -> list[list[int]]:
    groups = defaultdict(list)
    for index, run in enumerate(runs):
        groups[key(run)].append(index)
    return list(groups.values())


def folds(runs: Sequence[Run], of: Callable[[Run], str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each value of `of`: the runs to fit on, and the held-out ones, as index arrays.

    A run that shares a `dup_group` or a `pair_group` with a held-out one is not fitted on.
    """
    labels = np.array([of(run) for run in runs])
    found = {}
    for label in sorted(set(labels)):
        held = np.flatnonzero(labels == label)
        related = set(_relations(runs[i] for i in held))
        fit = [i for i in np.flatnonzero(labels != label) if not related & set(_relations([runs[i]]))]
        found[str(label)] = (np.array(fit, dtype=int), held)
    return found


def _relations(runs: Iterable[Run]) -> Iterable[str]:
    for run in runs:
        for column in ("dup_group", "pair_group"):
            if run.row.get(column):
                yield f"{column}:{run.row[column]}"
