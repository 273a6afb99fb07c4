"""Explanations account for the whole step and only name changes that can start; budgets are arithmetic."""

import json

import pytest
from typer.testing import CliRunner

import meshwright as mw
from meshwright.cli.main import app
from meshwright.errors import QuestionError
from meshwright.planner.budget import read_tokens


@pytest.fixture(scope="module")
def told():
    options = mw.Options(tp=8, pp=4)
    return mw.with_explanation(mw.estimate("llama3-70b", "64xH100", options))


def test_parts_from_the_peak_down_sum_to_the_step_and_begin_with_the_mfu(told):
    parts = told.explanation.efficiency
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert sum(part.seconds for part in parts) == pytest.approx(told.time.step_seconds)
    assert (parts[0].name, parts[0].share) == ("model_flops", pytest.approx(told.time.mfu))
    assert all(part.seconds > -1e-9 for part in parts)


def test_no_kernel_is_faster_than_the_peak(told):
    assert 0.3 < told.explanation.gemm_rate < 1.0
    assert 0.1 < told.explanation.attention_rate < told.explanation.gemm_rate


def test_tp_4_is_named_as_a_gain_over_tp_8_and_that_it_needs_more_memory(told):
    found = {one.options: one for one in told.explanation.changes}
    assert found["--tp 4"].share > 0.05
    assert found["--tp 4"].verdict == "does-not-fit"


def test_a_change_saves_what_the_changed_layout_says_itself(told):
    change = next(one for one in told.explanation.changes if one.options == "--pp 2")
    other = mw.estimate("llama3-70b", "64xH100", mw.Options(tp=8, pp=2))
    assert told.time.step_seconds - change.seconds == pytest.approx(other.time.step_seconds)
    assert change.peak == pytest.approx(other.memory.peak_bytes, rel=1e-6)


def test_a_layout_that_cannot_start_has_no_explanation():
    answer = mw.estimate("deepseek-v3", "256xH100", mw.Options(tp=2, pp=16, ep=64))
    assert mw.with_explanation(answer).explanation is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("15T", 15e12), ("15t", 15e12), ("300 B", 3e11), ("1.4e12", 1.4e12), ("2_000_000", 2e6), ("3k", 3e3)],
)
def test_tokens_as_people_write_them(text, number):
    assert read_tokens(text) == number


@pytest.mark.parametrize("text", ["", "many", "-3T", "0", "1e400", "15TT", "9" * 60, "nan", "inf"])
def test_tokens_that_are_none_are_refused(text):
    with pytest.raises(QuestionError, match="--tokens"):
        read_tokens(text)


def test_llama_3_405b_takes_about_the_gpu_hours_that_were_published():
    """30.84 M GPU-hours for 15.6 T tokens on H100 (model card of Llama 3.1 405B), failures included."""
    options = mw.Options(tp=8, pp=16, vpp=8, global_batch=2048, seq_length=8192)
    answer = mw.with_budget(mw.estimate("llama-3.1-405b", "16384xH100", options), "15.6T")
    assert answer.budget.gpu_hours_with_failures == pytest.approx(30.84e6, rel=0.15)
    assert answer.budget.gpu_hours < answer.budget.gpu_hours_with_failures


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_estimate_explains_and_budgets_in_json_and_on_the_screen():
    words = ("estimate", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--tokens", "15T", "--explain")
    data = json.loads(run(*words, "--json").stdout)
    step, tokens = data["time"]["step_seconds"], data["job"]["seq_length"] * data["job"]["global_batch"]
    assert data["budget"]["days"] == pytest.approx(15e12 / tokens * step / 86400)
    assert data["budget"]["gpu_hours"] == pytest.approx(data["budget"]["days"] * 24 * 8)
    assert data["explanation"]["step_seconds"] == pytest.approx(step)
    assert "recomputation is not counted" in data["explanation"]["mfu_formula"]
    screen = run(*words).stdout
    assert "Where the step goes" in screen
    assert "15 T tokens" in screen


def test_plan_explains_its_first_plan_and_budgets_all():
    data = json.loads(
        run("plan", "llama3-8b", "--gpus", "8xH100", "--explain", "--tokens", "1T", "--json").stdout
    )
    assert ["explanation" in plan for plan in data["plans"]] == [True] + [False] * (len(data["plans"]) - 1)
    days = [plan["budget"]["days"] for plan in data["plans"]]
    assert days == [
        pytest.approx(1e12 / 86400 / 8 / plan["time"]["tokens_per_second_per_gpu"]) for plan in data["plans"]
    ]
