"""`meshwright verify --log` against the plan that was run: the gap, and what it was lost to."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app

SLOW = Path(__file__).parents[1] / "verify" / "data" / "logs" / "mlm_slow.log"
PLAN = "llama-3-8b --gpus 32xH100 --tp 4 --gbs 256 --seq-length 4096 --recompute none"


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def estimate(words: str):
    return json.loads(run("estimate", *f"{PLAN} {words} --json".split()).stdout)


@pytest.fixture(scope="module")
def speed(tmp_path_factory):
    plan = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.write_text(json.dumps(estimate("--overlap dp")))
    done = run("verify", "--log", str(SLOW), "--against", str(plan), "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["speed"]


def test_a_run_is_held_against_its_plan(speed):
    """Mean of the steps from the eleventh on, as the log states them."""
    assert speed["predicted_seconds"] == estimate("--overlap dp")["time"]["step_seconds"]
    assert speed["measured_seconds"] == pytest.approx(6.2414, abs=1e-3)
    assert speed["slower_than_predicted"] > 0.2


def test_a_flag_that_the_run_left_off_costs_what_the_estimate_without_it_costs(speed):
    flags = [cause for cause in speed["causes"] if cause["name"] == "flags"]
    assert [cause["text"].split(" are off")[0] for cause in flags] == [
        "overlap_grad_reduce and overlap_param_gather"
    ]
    without, with_it = (estimate(f"--overlap {kind}")["time"]["step_seconds"] for kind in ("none", "dp"))
    assert flags[0]["seconds"] == pytest.approx(without - with_it)


def test_a_flag_that_is_off_in_the_plan_too_is_no_cause(speed):
    assert not any("tp_comm_overlap" in cause["text"] for cause in speed["causes"])


def test_the_screen_names_every_cause():
    shown = run("verify", *PLAN.split(), "--log", str(SLOW)).stdout
    assert "slower" in shown
    for name in ("checkpoints", "flags", "data", "imbalance", "clocks"):
        assert name in shown


def test_without_a_plan_the_log_is_judged_by_itself():
    speed = json.loads(run("verify", "--log", str(SLOW), "--json").stdout)["speed"]
    assert speed["predicted_seconds"] is None
    assert {cause["name"] for cause in speed["causes"]} == {
        "checkpoints", "data", "imbalance", "clocks", "flags",
    }  # fmt: skip
