"""`meshwright verify` from the command line, on Megatron Core itself."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

pytestmark = pytest.mark.engine
SMALL = ["verify", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--pp", "2", "--json"]


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_a_plan_starts_and_trains_on_the_engine_and_gpus_are_skipped_not_passed():
    done = run(*SMALL, "--level", "0,2,3")
    data = json.loads(done.stdout)
    assert done.exit_code == 0, data
    assert [level["verdict"] for level in data["levels"]] == ["pass", "pass", "skipped"]


def test_an_injected_fault_ends_in_fail_and_is_named():
    done = run(*SMALL, "--level", "2", "--inject-fault", "wrong-shard")
    assert done.exit_code == 1
    assert "wrong-shard" in done.stdout


def test_a_layout_that_cannot_start_fails_at_level_0():
    done = run("verify", "llama3-8b", "--gpus", "24xH100", "--tp", "3", "--level", "0", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["levels"][0]["verdict"] == "fail"


def test_a_log_is_judged(tmp_path):
    log = tmp_path / "run.log"
    line = (
        " iteration {n}/ 3 | consumed samples: 8 | elapsed time per iteration (ms): 900.0 | lm loss: {loss} |"
    )
    log.write_text("\n".join(line.format(n=n, loss=f"1.0{n}E+01") for n in (1, 2, 3)) + "\n")
    assert run("verify", "--log", str(log)).exit_code == 0
    log.write_text("\n".join(line.format(n=n, loss="nan") for n in (1, 2, 3)) + "\n")
    done = run("verify", "--log", str(log))
    assert done.exit_code == 1
    assert "nan" in done.stdout.lower()


@pytest.mark.parametrize("words", [("--level", "7"), ("--log", "missing.log"), ("--inject-fault", "rain")])
def test_questions_that_make_no_sense_are_refused(words):
    assert isinstance(run(*SMALL, *words).exception, QuestionError)
