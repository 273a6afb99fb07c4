"""The library's answers: consistent with themselves and with what is known of the models."""

import json
from dataclasses import replace

import pytest

import meshwright as mw
from meshwright.api.asking import Options


@pytest.fixture(scope="module")
def plans():
    return mw.plan("llama3-70b", "64xH100", top=3)


def test_the_first_plan_put_back_from_its_json_gives_the_same_numbers(plans):
    first = json.loads(json.dumps(plans.as_dict()))["plans"][0]
    again = json.loads(json.dumps(mw.estimate_again(first).as_dict()))
    for part in ("layout", "memory", "time", "execution", "cluster", "job", "model", "min_gpus", "valid"):
        assert again[part] == first[part], part


def test_the_first_plan_asked_for_by_its_degrees_gives_the_same_numbers(plans):
    best = plans.best
    layout = best.layout
    again = mw.estimate(
        "llama3-70b", "64xH100",
        Options(tp=layout.tp, pp=layout.pp, vpp=layout.vpp, cp=layout.cp, mbs=layout.mbs,
                recompute=best.execution.recompute),
    )  # fmt: skip
    assert again.time == best.time
    assert again.memory == best.memory


def test_terms_sum_to_totals(plans):
    for plan in plans.plans:
        assert sum(plan.time.terms.values()) == pytest.approx(plan.time.step_seconds, rel=1e-12)
        for stage in plan.memory.per_stage:
            parts = (
                stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
                + stage.activations_bytes + stage.other_bytes
            )  # fmt: skip
            assert stage.total_bytes == parts
        assert plan.memory.peak_bytes == max(stage.total_bytes for stage in plan.memory.per_stage)


def test_stages_hold_the_whole_model():
    # 70,553,706,496 parameters (meta-llama/Meta-Llama-3-70B); norms are whole on each of 4 TP ranks
    answer = mw.estimate("llama3-70b", "64xH100", Options(tp=1, pp=4))
    assert sum(stage.parameters for stage in answer.memory.per_stage) == 70_553_706_496


def test_tokens_and_flops_follow_from_the_step(plans):
    best = plans.best
    tokens = 8192 * 256
    assert best.question.job.tokens_per_step == tokens
    rate = best.time.tokens_per_second_per_gpu
    assert rate == pytest.approx(tokens / best.time.step_seconds / 64)


def test_an_uneven_depth_gets_an_automatic_pipeline_layout_and_says_so():
    answer = mw.estimate("deepseek-v3", "1024xH100", Options(tp=2, pp=16, ep=64))
    assert answer.valid
    said = {a.option: a for a in answer.assumptions}
    assert said["--pipeline-layout"].value == answer.pipeline_layout
    assert "61 layers" in said["--pipeline-layout"].source


def test_a_layout_that_cannot_start_keeps_its_numbers_and_has_no_memory_or_time():
    answer = mw.estimate("deepseek-v3", "256xH100", Options(tp=2, pp=16, ep=64))
    data = answer.as_dict()
    assert not data["valid"]
    assert data["min_gpus"] == 1024  # PP 16 x lcm(TP 2, EP 64)
    assert data["memory"] is None
    assert data["time"] is None
    assert data["layout"]["edp"] == 0.25


def test_fit_names_a_number_of_gpus_that_fits_and_no_smaller_one_does():
    answer = mw.fit("llama3-8b", "H100", Options(seq_length=4096, global_batch=64))
    fewest = answer.min_gpus_fitting
    assert answer.best.memory.verdict == "fits"
    assert fewest > 1
    smaller = mw.plan("llama3-8b", f"{fewest // 2}xH100", Options(seq_length=4096, global_batch=64))
    assert all(plan.memory.verdict != "fits" for plan in smaller.plans)


def test_a_learned_calibration_is_used_and_travels_in_the_json(monkeypatch):
    plain = mw.estimate("llama3-8b", "8xH100", Options(tp=2))
    twice = replace(
        plain.question.calibration,
        factors={**plain.question.calibration.factors, "all": 2.0},
        source="calibrated with 3 runs",
    )
    monkeypatch.setattr("meshwright.api.asking.calibration_for", lambda gpu: twice)
    slow = mw.estimate("llama3-8b", "8xH100", Options(tp=2))
    assert slow.time.step_seconds > 1.5 * plain.time.step_seconds
    again = mw.estimate_again(json.loads(json.dumps(slow.as_dict())))
    assert again.time == slow.time
