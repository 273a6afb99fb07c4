"""`plan`: interrupts, lists, failures and the front, as a person meets them."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

INTERRUPT_ITSELF = """
import os, signal, sys
from contextlib import contextmanager
from meshwright.cli import show
from meshwright.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born without it

@contextmanager
def progress_bar(what=""):
    calls = []
    def update(done, whole):
        calls.append(done)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
    yield update

show.progress_bar = progress_bar
sys.argv = ["meshwright", "plan", "qwen3-30b-a3b", "--gpus", "64xH100", *sys.argv[1:]]
main()
"""


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def interrupted(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", INTERRUPT_ITSELF, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_ctrl_c_leaves_what_was_found_labelled_as_partial_and_the_status_of_an_interrupt():
    done = interrupted("--json")
    data = json.loads(done.stdout)
    assert done.returncode == 130
    assert data["partial"] is True
    assert data["plans"]
    whole = json.loads(run("plan", "qwen3-30b-a3b", "--gpus", "64xH100", "--json").stdout)
    assert whole["partial"] is False
    assert data["searched"] < whole["searched"]


def test_the_screen_of_a_partial_answer_says_so_first():
    done = interrupted()
    assert done.stdout.startswith("PARTIAL")
    assert "Traceback" not in done.stderr


def test_a_list_of_precisions_is_one_row_each_with_the_flags_of_its_own():
    done = run("plan", "llama3-8b", "--gpus", "8xH100", "--precision", "bf16,fp8-current", "--json")
    points = json.loads(done.stdout)["points"]
    assert [point["precision"] for point in points] == ["bf16", "fp8-current"]
    assert points[1]["step_seconds"] < points[0]["step_seconds"]


def test_lists_of_the_job_are_crossed():
    words = ("--gbs", "64,128", "--optimizer", "adam,adam-precision-aware", "--json")
    points = json.loads(run("plan", "llama3-8b", "--gpus", "8xH100", *words).stdout)["points"]
    assert {(point["gbs"], point["optimizer"]) for point in points} == {
        (64, "adam"), (64, "adam-precision-aware"), (128, "adam"), (128, "adam-precision-aware"),
    }  # fmt: skip


def test_the_chosen_row_can_be_estimated_again_from_its_json(tmp_path):
    done = run("plan", "llama3-8b", "--gpus", "8,16xH100", "--json")
    chosen = json.loads(done.stdout)["chosen"]
    (tmp_path / "chosen.json").write_text(json.dumps(chosen["estimate"]))
    again = json.loads(run("estimate", "--from", str(tmp_path / "chosen.json"), "--json").stdout)
    assert again["time"] == chosen["estimate"]["time"]


def test_a_list_of_dispatchers_lets_the_search_choose():
    """With two of eight experts a token, all-to-all moves a quarter of what all-gather does."""
    words = ("--ep", "8", "--dispatcher", "allgather,alltoall", "--json")
    plans = json.loads(run("plan", "mixtral-8x7b", "--gpus", "64xH100", *words).stdout)["plans"]
    assert plans[0]["execution"]["dispatcher"] == "alltoall"


def test_failures_and_spares_lower_the_goodput_and_are_paid():
    words = ("plan", "llama3-8b", "--gpus", "64xH100", "--checkpoint-seconds", "60", "--json")
    few, many = (
        json.loads(run(*words, "--mtbf", hours, "--spares", "2").stdout)["chosen"]["economics"]
        for hours in ("50000", "500")
    )
    assert many["goodput"]["value"] < few["goodput"]["value"] < 1
    assert few["goodput"]["mtbf_seconds"] == pytest.approx(50_000 * 3600 / 64)
    assert few["gpus_paid"] == 64 + 2 * 8


def test_each_layout_of_the_front_is_slower_and_smaller_than_the_one_before():
    front = json.loads(run("plan", "llama3-70b", "--gpus", "64xH100", "--json").stdout)["front"]
    steps, peaks = [row["step_seconds"] for row in front], [row["peak_bytes"] for row in front]
    assert len(front) > 2
    assert steps == sorted(steps)
    assert all(b <= 0.9 * a for a, b in pairwise(peaks))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--top", "0"), "at least 1"),
        (("--pue", "0"), "between 1 and 10"),
        (("--gbs", "many"), "whole number"),
        (("--gbs", "0"), "at least 1"),
        (("--mtbf", "-1"), "above 0"),
        (("--capacity-factor", "0"), "above 0"),
        (("--precision", "bf16,fp9"), "precision"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(words, says):
    done = run("plan", "llama3-8b", "--gpus", "8xH100", *words)
    assert isinstance(done.exception, QuestionError)
    assert says in str(done.exception)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--tp 3", "32 attention heads"),
        ("--mbs 7", "global batch of 256"),
        ("--pp 7", "32 layers do not divide"),
    ],
)
def test_degrees_that_leave_no_layout_say_why(option, says):
    found = CliRunner().invoke(
        app, ["plan", "llama3-8b", "--gpus", "16xH100", "--gbs", "256", *option.split()]
    )
    assert found.exit_code == 1
    assert says in " ".join(found.output.split())
