"""`write` and `convert` as data, and what they warn of."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import meshwright as mw
from meshwright.cli.main import app
from meshwright.errors import LayoutError, QuestionError

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
    refused = run(*words, "--out", str(tmp_path / "o")).exception
    assert isinstance(refused, LayoutError)
    assert "ask with --recompute none; --to megatron-bridge or " in str(refused)
    done = run(*words, "--force", "--out", str(tmp_path / "o"))
    assert done.exit_code == 0
    assert "left out, for torchtitan has no word: " in done.stderr


@pytest.mark.parametrize(("framework", "words", "lost"), [
    # stages of its own length without a restriction; sharded by FSDP without one
    ("torchtitan", ["qwen3-32b", "--gpus", "32xH100"], "pipeline_model_parallel_layout"),
    ("nemo-rl", ["llama3-70b", "--gpus", "8xH100", "--task", "lora"], "use_megatron_fsdp"),
    ("nemo", ["llama3-70b", "--gpus", "8xH100", "--task", "lora"], "use_megatron_fsdp"),
])  # fmt: skip
def test_a_search_stays_within_what_the_framework_can_say(framework, words, lost):
    options = mw.Options(task="lora") if "lora" in words else None
    best = mw.plan(words[0], words[2], options, top=1).best
    assert lost in {left.option for left in mw.written(best, framework, force=True).decisive}
    done = run("write", *words, "--to", framework, "--json")
    assert done.exit_code == 0
    assert lost not in {left["option"] for left in json.loads(done.stdout)["not_expressed"]}


def test_a_plan_that_cannot_be_said_is_refused(tmp_path):
    plan = tmp_path / "plan.json"
    asked = ["estimate", "llama3-8b", "--gpus", "8xH100", "--fsdp", "--json"]
    plan.write_text(run(*asked).stdout)
    refused = run("write", "--from", str(plan), "--to", "verl").exception
    assert isinstance(refused, LayoutError)
    assert "use_megatron_fsdp" in str(refused)
    assert "--no-fsdp" in str(refused)
    assert run("write", "--from", str(plan), "--to", "verl", "--force").exit_code == 0


@pytest.mark.parametrize("more", [["--tp", "4"], ["--gpus", "16xH100"], ["llama3-70b"]])
def test_nothing_beside_a_plan_is_ignored(tmp_path, more):
    plan = tmp_path / "plan.json"
    plan.write_text(run("estimate", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--json").stdout)
    done = run("write", *more, "--from", str(plan), "--to", "verl")
    assert isinstance(done.exception, QuestionError)


def test_rescaling_to_what_does_not_fit_is_a_no(tmp_path):
    # 70 billion parameters, weights and gradients in 6 bytes, on TP 2: 210 GB a GPU
    script = tmp_path / "train.sh"
    script.write_text(
        "# H100\ntorchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 80 --hidden-size 8192 "
        "--ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention --num-query-groups 8 "
        "--swiglu --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --bf16 "
        "--global-batch-size 256 --tensor-model-parallel-size 2 --sequence-parallel "
        "--use-distributed-optimizer --untie-embeddings-and-output-weights\n"
    )
    for more in ([], ["--to", "megatron-lm"]):
        assert run("convert", str(script), "--gpus", "32xH100", *more).exit_code == 1


@pytest.mark.parametrize("words", [["--tp", "2"], ["--tp", "2", "--fsdp"], ["--tp", "1"]])
def test_what_is_written_for_bridge_needs_no_advice_on_its_environment(tmp_path, words):
    run("write", "llama3-8b", "--gpus", "16xH100", *words, "--to", "megatron-bridge", "--out", str(tmp_path))
    findings = json.loads(run("check", str(tmp_path / "train.sh"), "--json").stdout)["findings"]
    about = {"layernorm-sm-margin", "max-connections-by-gpu", "sp-connections-warning"}
    assert about & {finding["rule"] for finding in findings} == set()


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
