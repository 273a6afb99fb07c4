"""`deepspeed --include`: the resource filter of deepspeed/launcher/runner.py."""

from __future__ import annotations

import pytest

from meshwright.frameworks.check import check_reading
from meshwright.frameworks.read import read_text


@pytest.mark.parametrize(
    ("include", "world"),
    [("localhost:0,1,2,3", 4), ("worker-0:0,2@worker-1:0,1,2,3", 6), ("worker-0@worker-1", None)],
)
def test_slots_are_ranks(include: str, world: int | None) -> None:
    (reading,) = read_text(
        f"deepspeed --include {include} pretrain_gpt.py --deepspeed --num-layers 8 --micro-batch-size 1\n",
        "run.sh",
    )
    assert check_reading(reading).layout()["world"] == world
