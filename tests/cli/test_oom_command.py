"""An out-of-memory error of a log on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

ERROR = (
    "[rank12]: Traceback (most recent call last):\n"
    '[rank12]:   File "transformer_engine/pytorch/optimizers/fused_adam.py", line 300, in initialize_state\n'
    "[rank12]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 3 has a total "
    "capacity of 79.11 GiB of which 2.31 GiB is free. Of the allocated memory 70.12 GiB is allocated by "
    "PyTorch, and 4.01 GiB is reserved by PyTorch but unallocated.\n"
)


def ask(*words: str, given: str | None = None):
    return CliRunner().invoke(app, ["oom", *words], input=given, env={"COLUMNS": "100"})


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.log"
    path.write_text("iteration 1\n" * 300_000 + ERROR + "iteration\n" * 200_000)
    return str(path)


def test_a_log_gives_part_cause_and_remedies(log):
    found = ask(log)
    assert found.exit_code == 0
    for words in ("first optimizer step (rank 12, GPU 3)", "Adam's moments", "distributed optimizer"):
        assert words in found.output


def test_a_file_and_standard_input_say_the_same(log):
    read, piped = ask(log, "--json"), ask("--json", given=ERROR)
    assert json.loads(read.output) == json.loads(piped.output)
    assert json.loads(read.output)["allocated_bytes"] == pytest.approx(70.12 * 2**30)


def test_with_the_layout_the_stage_of_the_rank_is_predicted_and_changes_are_priced(log):
    """Rank 12 of 16 with TP8 PP2 is on the second stage."""
    words = (log, "llama3-70b", "--gpus", "16xH100", "--tp", "8", "--pp", "2", "--recompute", "none")
    found = json.loads(ask(*words, "--json").output)
    assert found["predicted"]["stage"] == 1
    assert found["predicted"]["verdict"] == "does-not-fit"
    assert found["changes"][0]["verdict"] == "fits"
    assert "What to change" in ask(*words).output


def test_a_log_without_such_an_error_is_a_wrong_question():
    assert isinstance(ask(given="iteration 137: loss 2.3").exception, QuestionError)


def test_a_missing_file_is_a_wrong_question():
    assert isinstance(ask("/nowhere/run.log").exception, QuestionError)


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(bytes(range(256)) * 100 + ERROR.encode() + b"\xff\xfe\x00")
    assert ask(str(path)).exit_code == 0
