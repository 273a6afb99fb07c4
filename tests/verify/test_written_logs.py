"""Runs of every fate, in the words of each framework: the judge says what a person would say."""

from __future__ import annotations

import pytest
from tests.verify.written_logs import FRAMEWORKS, Run, log, out_of_memory, refused, timed_out

from meshwright.verify.log_judge import Expected, judge_log
from meshwright.verify.logs import read_log
from meshwright.verify.slowdown import speed

PLANNED = Expected(degrees={"tp": 4, "pp": 4, "cp": 1, "dp": 4}, world=64, iterations=10)
LIMIT = "slurmstepd: error: *** JOB 88123 ON dgx-01 CANCELLED AT 2025-11-03T12:41:40 DUE TO TIME LIMIT ***"
KILLED = "srun: error: dgx-07: task 41: Killed"
LOST = "srun: error: Node failure on dgx-07"
CRASH = "[dgx-03:41233] *** Process received signal *** Signal: Segmentation fault (11)"
INDIVISIBLE = "RuntimeError: world_size (62) is not divisible by 16"
REFUSED = "AssertionError: Sequence length must be divisible by 2 * context parallel size"

GOOD = {
    "every degree as planned": Run(),
    "interleaved, experts": Run(vpp=2, ep=4),
    "context parallel": Run(cp=2, world=128),
    "a loss scale that settles": Run(skipped=2),
    "slow steps at saves": Run(train_iters=40, logged=40, slow=dict.fromkeys(range(10, 41, 10), 3.0)),
}

BAD = {
    "the loss becomes nan": (Run(nan_from=5), "the loss is nan at iteration 5"),
    "out of memory at once": (Run(logged=0, ends=out_of_memory(3)), "rank 3, pipeline stage 0 of 4"),
    "out of memory on the last stage": (Run(logged=1, ends=out_of_memory(51)), "pipeline stage 3 of 4"),
    "half the GPUs": (Run(world=32), "the log shows DP=2, expected DP=4"),
    "an override that did not arrive": (Run(tp=1, world=64), "the log shows TP=1, expected TP=4"),
    "hangs without a word": (Run(logged=6), "the log ends at iteration 6 of 10 without an error"),
    "a collective times out": (
        Run(logged=4, ends=timed_out(37)),
        "timed out on rank 37, pipeline stage 2 of 4",
    ),
    "the time limit": (Run(logged=7, ends=(LIMIT,)), "ended from outside"),
    "killed by the machine": (Run(logged=7, ends=(KILLED,)), "ended from outside"),
    "a lost node": (Run(logged=7, ends=(LOST,)), "ended from outside"),
    "a crash of a rank": (Run(logged=7, ends=(CRASH,)), "a process crashed"),
    "a world that cannot be divided": (Run(refused=refused(INDIVISIBLE)), "world_size (62) is not divisible"),
    "a sequence that cannot be cut": (Run(refused=refused(REFUSED)), "divisible by 2 * context parallel"),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", GOOD)
def test_a_good_run_passes_and_its_degrees_are_read(framework: str, name: str) -> None:
    run = GOOD[name]
    degrees = {"tp": run.tp, "pp": run.pp, "cp": run.cp, "dp": run.dp}
    expected = Expected(degrees=degrees, world=run.world, iterations=run.train_iters)
    judgement = judge_log(read_log(log(framework, run)), expected)
    assert judgement.reasons == ()
    found = judgement.log
    assert (found.source, found.world, len(found.iterations)) == (framework, run.world, run.logged)
    assert {key: found.degrees[key] for key in degrees} == degrees
    assert found.degrees.get("ep", 1) == run.ep


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_run_fails_with_its_cause(framework: str, name: str) -> None:
    run, says = BAD[name]
    judgement = judge_log(read_log(log(framework, run)), PLANNED)
    assert not judgement.passed
    assert any(says in reason for reason in judgement.reasons), judgement.reasons


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_saves_are_found_in_every_language(framework: str) -> None:
    """Every tenth step takes three times 5 s: a second a step."""
    answer = speed(read_log(log(framework, GOOD["slow steps at saves"])))
    assert answer is not None
    (cause,) = answer.causes
    assert cause.name == "checkpoints"
    assert cause.seconds == pytest.approx(1.0, rel=0.05)


def test_the_progress_bar_of_an_older_nemo_is_read() -> None:
    bar = "Epoch 0: :   {n}%|#| {n}/100 [01:00<09:00, v_num=, reduced_train_loss={loss}, global_step={n}.0, "
    bar += "consumed_samples=2560.0, train_step_timing in s=1.250]"
    log = read_log("\r".join(bar.format(n=n, loss=9.0 - n / 10) for n in range(8)))
    assert (log.source, len(log.iterations)) == ("nemo", 8)
    assert log.iterations[-1].seconds == 1.25
    assert log.iterations[-1].loss == pytest.approx(8.3)
