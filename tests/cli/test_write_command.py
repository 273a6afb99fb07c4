"""`meshwright write` and `convert`."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError


def run(*words: str):
    return CliRunner().invoke(app, list(words))


LAYOUT = ["llama3-70b", "--gpus", "64xH100", "--tp", "8", "--pp", "4", "--vpp", "5"]


def test_what_is_written_for_megatron_lm_is_read_back_as_the_same_layout(tmp_path):
    done = run("write", *LAYOUT, "--to", "megatron-lm", "--out", str(tmp_path))
    assert done.exit_code == 0, done.stdout
    script = next(tmp_path.iterdir())
    checked = json.loads(run("check", str(script), "--json").stdout)
    assert checked["verdict"] in ("ok", "warn"), checked["findings"]
    layout = checked["layout"]
    assert (layout["tp"], layout["pp"], layout["vpp"], layout["dp"]) == (8, 4, 5, 2)


def test_a_written_script_converts_to_bridge(tmp_path):
    run("write", *LAYOUT, "--to", "megatron-lm", "--out", str(tmp_path))
    done = run("convert", str(next(tmp_path.iterdir())), "--to", "megatron-bridge")
    assert done.exit_code == 0, done.stdout
    assert "tensor_model_parallel_size" in done.stdout


def test_nothing_is_overwritten(tmp_path):
    run("write", *LAYOUT, "--to", "slurm", "--out", str(tmp_path))
    again = run("write", *LAYOUT, "--to", "slurm", "--out", str(tmp_path))
    assert isinstance(again.exception, QuestionError)
    assert "exists already" in str(again.exception)


@pytest.mark.parametrize("words", [["write", *LAYOUT], ["write", *LAYOUT, "--to", "nonsense"]])
def test_a_framework_must_be_named(words):
    done = run(*words)
    assert isinstance(done.exception, QuestionError)
    assert "megatron-lm" in str(done.exception)
