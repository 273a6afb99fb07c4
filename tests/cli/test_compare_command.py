"""`compare`, `convert --gpus`, `check --resume-from`."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --num-layers 80 --hidden-size 8192 \\
  --num-attention-heads 64 --group-query-attention --num-query-groups 8 --ffn-hidden-size 28672 --swiglu \\
  --vocab-size 128256 --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 \\
  --global-batch-size 128 --bf16 --use-distributed-optimizer --sequence-parallel \\
  --tensor-model-parallel-size {tp} --pipeline-model-parallel-size 4
"""


def run(*words: str):
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def scripts(tmp_path):
    paths = []
    for tp in (4, 8):
        path = tmp_path / f"tp{tp}.sh"
        path.write_text(SCRIPT.format(tp=tp))
        paths.append(str(path))
    return paths


def test_only_what_differs_is_shown(scripts):
    data = json.loads(run("compare", *scripts, "--json").stdout)
    assert data["differs"]["tensor_model_parallel_size"]["left"]["value"] == 4
    assert data["differs"]["tensor_model_parallel_size"]["right"]["value"] == 8
    assert "hidden_size" not in data["differs"]


def test_a_script_on_half_the_gpus_keeps_its_batch_and_stays_legal(scripts):
    done = run("convert", scripts[0], "--gpus", "32xH100", "--to", "megatron-lm")
    assert done.exit_code == 1  # it is written, and memory does not suffice
    assert "a H100-80GB-SXM offers 79" in done.stderr
    assert "--global-batch-size 128" in done.stdout
    assert "--nnodes" in done.stdout


def test_going_on_under_another_tp_is_told_what_reshards(scripts):
    done = run("check", scripts[1], "--resume-from", scripts[0])
    assert "4 -> 8" in done.stdout


def test_resume_takes_one_new_config(scripts):
    done = run("check", *scripts, "--resume-from", scripts[0])
    assert isinstance(done.exception, QuestionError)
