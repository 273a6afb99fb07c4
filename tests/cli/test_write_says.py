"""`write` and `convert` as data, and what they warn of."""

import json
from pathlib import Path

from typer.testing import CliRunner

from meshwright.cli.main import app

CORPUS = Path(__file__).parents[1] / "frameworks" / "data"


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_a_plan_that_does_not_fit_is_written_with_a_warning():
    # 70e9 parameters with Adam on eight cards of 80 GB
    words = ["write", "llama3-70b", "--gpus", "8xH100", "--tp", "2", "--to", "megatron-lm"]
    done = run(*words)
    assert done.exit_code == 0
    assert "warning: this plan does not fit" in done.stderr
    assert "does not fit" not in done.stdout
    data = json.loads(run(*words, "--json").stdout)
    assert "does not fit" in data["warnings"][0]
    assert set(data["files"]) == {"train.sh"}


def test_written_as_data():
    done = run("write", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--to", "torchtitan", "--json")
    data = json.loads(done.stdout)
    assert data["framework"] == "torchtitan"
    assert data["files"]["train.toml"].startswith("# ")
    assert data["warnings"] == []
    assert all({"option", "value", "files"} == set(entry) for entry in data["not_expressed"])


def test_saved_files_are_named_in_the_data(tmp_path):
    done = run("write", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--to", "slurm", "--json", "--out",
               str(tmp_path / "o"))  # fmt: skip
    assert json.loads(done.stdout)["paths"] == [str(tmp_path / "o" / "train.sbatch")]


def test_what_is_left_out_is_said_when_files_are_saved(tmp_path):
    words = [
        "write",
        "llama3-8b",
        "--gpus",
        "8xH100",
        "--tp",
        "2",
        "--recompute",
        "selective",
        "--to",
        "torchtitan",
    ]
    done = run(*words, "--out", str(tmp_path / "o"))
    assert "left out, for torchtitan has no word: " in done.stderr


def test_conversion_as_data():
    done = run("convert", str(CORPUS / "02_tern_moe_4nodes.sh"), "--to", "megatron-bridge", "--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert "mock_data" in {entry["option"] for entry in data["not_expressed"]}
    assert {"train.sh", "overrides.yaml", "recipe.py"} == set(data["files"])


def test_converting_what_cannot_run_warns():
    done = run("convert", str(CORPUS / "19_wren_moe.sh"), "--to", "megatron-bridge")
    assert done.exit_code == 0
    assert "warning: what was read cannot run: " in done.stderr


def test_rescaling_does_not_trip_over_a_variable_that_it_writes_itself(tmp_path):
    # TP 4 before Blackwell wants CUDA_DEVICE_MAX_CONNECTIONS=1, which the script does not export
    script = tmp_path / "train.sh"
    script.write_text(
        "# H100\ntorchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 "
        "--global-batch-size 256 --tensor-model-parallel-size 4 --sequence-parallel --bf16 "
        "--use-distributed-optimizer\n"
    )
    done = run("convert", str(script), "--gpus", "64xH100", "--to", "megatron-lm")
    assert done.exit_code == 0, done.exception
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in done.stdout
    data = json.loads(run("convert", str(script), "--gpus", "64xH100", "--json").stdout)
    assert data["rescaled"]["changes"]["world"] == {"old": 32, "new": 64}
