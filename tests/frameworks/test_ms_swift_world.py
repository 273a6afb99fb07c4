"""What `megatron sft` starts: swift/cli/_megatron and its main.py of ms-swift 4."""

from __future__ import annotations

import pytest

from meshwright.frameworks.check import check_reading
from meshwright.frameworks.read import read_text

COMMAND = (
    "megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 8 --sequence_parallel true "
    "--expert_model_parallel_size 8 --micro_batch_size 1 --global_batch_size 16 --max_length 4096\n"
)


@pytest.mark.parametrize(
    ("variables", "world"),
    [("NPROC_PER_NODE=8 ", 8), ("NNODES=2 NPROC_PER_NODE=8 ", 16), ("NNODES=$N NPROC_PER_NODE=8 ", None)],
)
def test_ranks_alone_start_one_node(variables: str, world: int | None) -> None:
    (reading,) = read_text(variables + COMMAND, "run.sh")
    assert check_reading(reading).layout()["world"] == world
