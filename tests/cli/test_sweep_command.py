"""`plan` over several GPU counts, prices and sequence lengths, and `plan --why-not`."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_several_gpu_counts_become_one_row_each_and_the_smallest_fitting_is_chosen_when_asked():
    done = run("plan", "llama3-8b", "--gpus", "2,8,16xH100", "--objective", "fewest-gpus", "--json")
    data = json.loads(done.stdout)
    assert [point["gpus"] for point in data["points"]] == [2, 8, 16]
    fitting = [point["gpus"] for point in data["points"] if point["fits"]]
    assert data["chosen"]["gpus"] == min(fitting)


def test_money_follows_from_gpu_hours_and_price():
    words = ("plan", "llama3-8b", "--gpus", "8xH100", "--price", "2.5", "--tokens", "1e12", "--json")
    cost = json.loads(run(*words).stdout)["chosen"]["economics"]
    assert cost["cost"] == pytest.approx(2.5 * cost["gpu_hours"])
    assert cost["total_cost"] == pytest.approx(1000 * cost["cost"])
    assert cost["days"] == pytest.approx(cost["total_gpu_hours"] / 24 / 8)


def test_bounds_keep_degrees_below_them():
    data = json.loads(run("plan", "llama3-8b", "--gpus", "8xH100", "--max-tp", "2", "--json").stdout)
    assert all(plan["layout"]["tp"] <= 2 for plan in data["plans"])


def test_a_layout_that_cannot_start_is_excluded_by_its_rule():
    done = run("plan", "deepseek-v3", "--gpus", "256xH100", "--why-not", "tp=2,pp=16,ep=64", "--json")
    assert done.exit_code == 1
    assert any("1024" in why for why in json.loads(done.stdout)["excluded"])


def test_a_slower_layout_has_a_place_and_terms_that_sum_to_the_difference():
    done = run("plan", "llama3-70b", "--gpus", "64xH100", "--why-not", "tp=8,pp=8", "--json")
    data = json.loads(done.stdout)
    assert data["position"] > 1
    assert data["slower"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus", "64,128"),
        ("--gpus", "auto"),
        ("--gpus", "8xH100", "--price", "free"),
        ("--gpus", "8xH100", "--seq-lengths", "4k"),
        ("--gpus", "8xH100", "--objective", "beauty"),
        ("--gpus", "8xH100", "--why-not", "tp=many"),
        ("--gpus", "8xH100", "--pue", "0.2", "--price", "1"),
    ],
)
def test_questions_that_make_no_sense_are_refused(words):
    assert isinstance(run("plan", "llama3-8b", *words).exception, QuestionError)
