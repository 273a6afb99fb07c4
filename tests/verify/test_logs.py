"""The log judge: realistic logs of three frameworks, each with what a person would say of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.verify.log_judge import Expected, Judgement, judge_log
from meshwright.verify.logs import read_log
from meshwright.verify.slowdown import causes

LOGS = Path(__file__).parent / "data" / "logs"
GUIDE = Expected(degrees={"tp": 2, "pp": 2, "dp": 1}, world=4, iterations=3)
"""The guide's first run: TP 2, PP 2 on four ranks, three iterations."""


def judged(name: str, expected: Expected | None = None) -> Judgement:
    return judge_log(read_log((LOGS / f"{name}.log").read_text()), expected)


@pytest.mark.parametrize(
    ("name", "framework", "degrees", "world", "iterations", "loss"),
    [
        ("mlm_pass", "megatron-lm", {"tp": 8, "pp": 4, "cp": 1, "dp": 2}, 64, 10, 9.7),
        ("bridge_pass", "megatron-bridge", {"tp": 2, "pp": 2, "cp": 1, "dp": 1}, 4, 3, 10.03808),
        ("nemo_pass", "nemo", {"tp": 4, "pp": 2, "cp": 1, "dp": 2}, 16, 6, 9.81),
    ],
)
def test_a_good_run_passes_and_is_read(
    name: str, framework: str, degrees: dict[str, int], world: int, iterations: int, loss: float
) -> None:
    judgement = judged(name, Expected(degrees=degrees, world=world, iterations=iterations))
    assert (judgement.passed, judgement.reasons) == (True, ())
    log = judgement.log
    assert (log.source, log.world, len(log.iterations)) == (framework, world, iterations)
    assert {key: log.degrees[key] for key in degrees} == degrees
    assert log.iterations[-1].loss == pytest.approx(loss, rel=0.02)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mlm_nan_loss", "the loss is nan at iteration 5"),
        ("mlm_nan_gradient", "not a number on rank 5, pipeline stage 0 of 2"),
        ("mlm_oom_last_stage", "out of memory on rank 51, pipeline stage 3 of 4"),
        ("mlm_nccl_timeout", "a collective timed out on rank 93, pipeline stage 5 of 8"),
        ("mlm_stops", "ends at iteration 17 of 200 without an error"),
        ("bridge_refused", "Sequence length must be divisible by 2 * context parallel size"),
        ("bridge_oom_first_stage", "out of memory on rank 7, pipeline stage 0 of 16"),
        ("nemo_nan", "the loss is nan at iteration 4"),
        ("nemo_oom", "out of memory on rank 12, pipeline stage 1 of 2"),
    ],
)
def test_a_bad_run_fails_with_its_cause(name: str, says: str) -> None:
    judgement = judged(name)
    assert not judgement.passed
    assert any(says in reason for reason in judgement.reasons), judgement.reasons


def test_a_run_on_too_few_ranks_fails_although_it_learns() -> None:
    assert judged("mlm_wrong_dp").passed
    judgement = judged("mlm_wrong_dp", Expected(degrees={"tp": 8, "pp": 4, "dp": 2}, world=64))
    assert judgement.reasons == (
        "the log shows DP=1, expected DP=2",
        "the log shows 32 ranks, expected 64",
    )


def test_an_override_that_did_not_arrive_is_seen() -> None:
    assert judged("bridge_override_missed", GUIDE).reasons == (
        "the log shows TP=1, expected TP=2",
        "the log shows DP=2, expected DP=1",
    )


def test_the_guides_success_criteria() -> None:
    """Status 0, a finite loss at iteration 3 (lm loss: 1.003808E+01), TP=2 PP=2 DP=1 on 4 ranks."""
    judgement = judged("bridge_pass", GUIDE)
    assert judgement.passed
    assert judgement.log.iterations[2].loss == 10.03808


def test_a_log_without_iterations_is_no_success() -> None:
    assert judge_log(read_log("")).reasons == ("no iteration was logged: the run never made a step",)


def test_figures_of_a_run_in_si_units() -> None:
    log = judged("mlm_pass").log
    assert log.memory == {0: 61234.5 * 2**20, 16: 52311.25 * 2**20, 48: 57480.75 * 2**20}
    bridge = judged("bridge_pass").log
    assert bridge.memory == {0: 13.872e9}
    assert bridge.iterations[0].seconds == pytest.approx(4.81)
    assert bridge.iterations[0].tflops == 61.0


def test_lost_time_is_shared_out_over_named_causes() -> None:
    found = {cause.name: cause.text for cause in causes(judged("mlm_slow").log)}
    assert set(found) == {"checkpoints", "data", "imbalance", "clocks", "flags"}
    assert "every 10 iterations" in found["checkpoints"]


def test_a_steady_run_has_no_measured_cause() -> None:
    assert [cause for cause in causes(judged("mlm_pass").log) if cause.seconds] == []


@given(st.text(max_size=400) | st.text(alphabet="[rank0] iteration/:|lmsE.+-123 nan(){}\n", max_size=400))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    judge_log(read_log(text)).as_dict()


def test_hostile_lines_are_read_in_time() -> None:
    lines = [
        "a." * 400_000 + "Error",
        "[Rank 1]" + " memory (MB)" * 50_000,
        "1" * 800_000 + "/",
        "." * 800_000,
    ]
    lines += [" iteration 9/9 | lm loss: " + "9" * 500_000, "[rank999999999999999999999]: CUDA out of memory"]
    start = time.perf_counter()
    judge_log(read_log("\n".join(lines * 3))).as_dict()
    assert time.perf_counter() - start < 2.0
