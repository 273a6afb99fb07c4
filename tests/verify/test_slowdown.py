"""Why a run is slow: time that was planted in a log comes back under its own name, with its own size."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.verify.logs import Iteration, RunLog, read_log
from meshwright.verify.slowdown import Cause, Speed, causes, speed

LOGS = Path(__file__).parent / "data" / "logs"


def run(seconds: list[float], **said: object) -> RunLog:
    """A log whose steps took these seconds."""
    steps = tuple(Iteration(number=n, seconds=one, loss=9.0) for n, one in enumerate(seconds, 1))
    return RunLog(iterations=steps, **said)  # type: ignore[arg-type]


def found(answer: Speed | None) -> dict[str, float | None]:
    assert answer is not None
    return {cause.name: cause.seconds for cause in answer.causes}


def test_saves_at_even_distances_are_told_from_stalls() -> None:
    """Every tenth step of 2 s takes 7 s: half a second a step."""
    even = [7.0 if n % 10 == 0 else 2.0 for n in range(1, 61)]
    assert found(speed(run(even)))["checkpoints"] == pytest.approx(0.5)
    odd = [7.0 if n in (13, 17, 44) else 2.0 for n in range(1, 51)]
    assert found(speed(run(odd)))["stalls"] == pytest.approx(15 / 40)


def test_a_run_that_grows_slower_names_the_clocks() -> None:
    assert set(found(speed(run([2.0] * 30 + [2.2] * 30)))) == {"clocks"}


def test_what_no_cause_explains_is_said() -> None:
    answer = speed(run([3.0] * 20), (2.0, 2.2))
    assert found(answer) == {"unexplained": pytest.approx(1.0)}
    assert answer is not None
    assert answer.slower == pytest.approx(0.5)


def test_a_gap_that_known_causes_fill_leaves_nothing_over() -> None:
    priced = [Cause("flags", "an overlap is off", 0.97)]
    assert found(speed(run([3.0] * 20), (2.0, 2.2), priced)) == {"flags": 0.97}


def test_a_run_as_fast_as_predicted_has_no_cause() -> None:
    assert found(speed(run([2.02] * 20), (2.0, 2.2))) == {}


def test_one_slow_rank_is_seen_by_its_timers() -> None:
    timers = {"forward-compute": (1.0, 1.4), "batch-generator": (0.01, 0.3)}
    answer = speed(run([2.0] * 20, timers=timers))
    assert found(answer) == {"imbalance": pytest.approx(0.4), "data": pytest.approx(0.3)}


def test_a_log_without_step_times_has_no_speed() -> None:
    assert speed(read_log("")) is None
    assert speed(run([float("nan")] * 5)) is None


def test_flags_of_a_plan_replace_those_that_the_log_alone_suggests() -> None:
    log = read_log((LOGS / "mlm_slow.log").read_text())
    assert {cause.name for cause in causes(log)} == {"checkpoints", "data", "imbalance", "clocks", "flags"}
    assert "flags" not in found(speed(log, (5.0, 5.5), ()))
