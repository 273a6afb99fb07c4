"""Published measurements, all of them, by the benchmark that prints them."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def results():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import memory_accuracy
    finally:
        sys.path.remove(str(BENCHMARKS))
    done, _ = memory_accuracy.evaluate()
    return done


def errors(results, keep):
    return np.abs([result.error for result in results if keep(result)])


def test_complete_configurations_are_met(results):
    found = errors(results, lambda r: r.row.complete)
    assert len(found) > 600
    assert np.median(found) < 0.04
    assert np.quantile(found, 0.9) < 0.12


def test_the_b200_sweeps_are_met(results):
    found = errors(results, lambda r: r.row.id.startswith("simumax"))
    assert len(found) == 16
    assert np.median(found) < 0.02


def test_runs_that_ran_are_never_called_impossible(results):
    wrong = [r.row.id for r in results if r.row.ran and r.row.complete and r.verdict == "does-not-fit"]
    assert wrong == []


def test_the_band_holds_as_many_rows_as_it_says(results):
    """An 80 % band: at least four in five measured values lie inside."""
    complete = [r for r in results if r.row.complete]
    inside = np.mean([r.low <= r.row.measured <= r.high for r in complete])
    assert inside > 0.8
