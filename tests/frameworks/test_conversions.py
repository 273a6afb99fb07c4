"""A conversion keeps what was said: data, tokenizer, widths, and nothing made up beside them."""

from __future__ import annotations

import pytest

from meshwright.frameworks.compare import compare
from meshwright.frameworks.plan import plan_from
from meshwright.frameworks.read import read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.write import compose

SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
  --global-batch-size 256 --tensor-model-parallel-size 4 --sequence-parallel --bf16 --swiglu \\
  --use-distributed-optimizer --data-path $DATA --tokenizer-type HuggingFaceTokenizer \\
  --tokenizer-model meta-llama/Meta-Llama-3-8B --lr 3e-4 --lr-decay-style cosine --train-samples 100000 \\
  --save $CKPT/run1
"""


def read(text: str, name: str = "train.sh") -> Reading:
    (reading,) = read_text(text, name)
    return reading


def test_data_and_tokenizer_are_kept_and_nothing_is_made_up() -> None:
    text = compose("megatron-lm", plan_from(read(SCRIPT))).files["train.sh"]
    for said in ("--data-path ${DATA} ", "--save ${CKPT}/run1", "--tokenizer-type HuggingFaceTokenizer"):
        assert said in text
    # min_lr would be 0 and split 969,30,1 in what was read; samples and iterations exclude each other
    for made_up in ("--mock-data", "NullTokenizer", "--min-lr", "--split", "--train-iters"):
        assert made_up not in text


def test_bridge_is_told_what_it_has_words_for() -> None:
    done = compose("megatron-bridge", plan_from(read(SCRIPT)))
    assert {left.option for left in done.not_expressed} == {"data_path"}
    text = done.files["train.sh"]
    assert "scheduler.lr_decay_style=cosine" in text
    assert "tokenizer.tokenizer_model=meta-llama/Meta-Llama-3-8B" in text
    # arguments.py: int(4 x 4096 x 2/3 / 64) x 64; Bridge would take 4 x 4096
    assert "model.ffn_hidden_size=10880" in text


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-bridge", "slurm"])
def test_a_script_and_its_conversion_do_not_differ(framework: str) -> None:
    here = read(SCRIPT)
    name, text = next(iter(compose(framework, plan_from(here)).files.items()))
    assert compare(here, read(text, name)).differs == {}


def test_a_width_of_its_own_differs() -> None:
    there = SCRIPT.replace("--hidden-size 4096", "--hidden-size 4096 --ffn-hidden-size 14336")
    assert set(compare(read(SCRIPT), read(there)).differs) == {"ffn_hidden_size"}
