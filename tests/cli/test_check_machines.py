"""`check` where the files do not say on how many machines a run starts."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

ARGUMENTS = (
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 "
    "--use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel"
)


def checked(tmp_path, script: str, *words: str) -> dict:
    file = tmp_path / "run.sh"
    file.write_text(script)
    return json.loads(CliRunner().invoke(app, ["check", str(file), "--json", *words]).stdout)


@pytest.mark.parametrize(("script", "words", "world"), [
    (f"python {ARGUMENTS}\n", ["--nodes", "4"], 32),  # boards of 8
    (f"# GB200\npython {ARGUMENTS}\n", ["--nodes", "4"], 16),  # trays of 4
    (f"python {ARGUMENTS}\n", ["--nodes", "4", "--gpu", "GB300"], 16),
    (f"python {ARGUMENTS}\n", ["--nodes", "4", "--gpus-per-node", "6"], 24),
    (f"torchrun --nproc_per_node 4 --nnodes $N {ARGUMENTS}\n", ["--nodes", "3"], 12),
    (f"torchrun --nnodes 2 --nproc-per-node gpu {ARGUMENTS}\n", ["--gpus-per-node", "8"], 16),
])  # fmt: skip
def test_machines_settle_the_number_of_gpus(tmp_path, script, words, world):
    assert checked(tmp_path, script, *words)["layout"]["world"] == world


def test_what_is_missing_is_asked_for(tmp_path):
    said = checked(tmp_path, f"torchrun --nnodes 2 --nproc-per-node gpu {ARGUMENTS}\n")
    assert said["verdict"] == "unknown"
    assert any("--gpus-per-node" in need for need in said["unknown"])
    assert any("--nodes" in need for need in checked(tmp_path, f"python {ARGUMENTS}\n")["unknown"])


def test_four_gpus_a_node_may_be_meant_as_nodes(tmp_path):
    """12 GPUs are no multiple of TP 8; 12 trays of 4 are 48."""
    script = f"# GB200\ntorchrun --nproc_per_node 4 --nnodes $N {ARGUMENTS}\n".replace("size 2", "size 8")
    said = checked(tmp_path, script, "--gpus", "12")
    assert said["verdict"] == "invalid"
    (asked,) = [finding for finding in said["findings"] if finding["rule"] == "gpus-or-nodes"]
    assert "12 trays would be 48 GPUs" in asked["message"]
    assert checked(tmp_path, script, "--nodes", "12")["layout"]["world"] == 48


def test_nodes_and_gpus_are_one_question(tmp_path):
    for words in (["--nodes", "2", "--gpus", "16"], ["--nodes", "0"]):
        file = tmp_path / "run.sh"
        file.write_text(f"python {ARGUMENTS}\n")
        done = CliRunner().invoke(app, ["check", str(file), *words])
        assert isinstance(done.exception, QuestionError)
