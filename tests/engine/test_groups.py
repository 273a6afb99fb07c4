"""Ranks and groups are those of Megatron Core, in its own order, for random worlds."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import MeshwrightError
from meshwright.layout.groups import kind_of
from meshwright.layout.layout import Layout
from meshwright.layout.ranks import RankGrid

pytestmark = [
    pytest.mark.engine,
    # `make test` and CI always install it; a plain checkout without the extra still runs the other tests
    pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed"),
]

WORLDS = 1250
JUDGE = Path(__file__).with_name("groups_judge.py")
DEGREES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
}
NAMED_OTHERWISE = {
    "HIERARCHICAL_CONTEXT_PARALLEL_GROUP": "hcp-",
    "HYBRID_DP_CP_GROUP_": "hybrid-",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0": "intra-edp",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1": "inter-edp",
}


def draw(seed: int) -> dict[str, Any]:
    """One world: mostly legal, sometimes not."""
    dice = random.Random(seed)
    tp, cp, pp, ep, etp = (dice.choice(sizes) for sizes in (
        (1, 1, 2, 2, 3, 4, 8), (1, 1, 2, 2, 4, 6), (1, 1, 2, 2, 3, 4), (1, 1, 2, 4, 6, 8), (1, 1, 1, 2, 4),
    ))  # fmt: skip
    order = "tp-cp-ep-dp-pp"
    if dice.random() < 0.45:
        order = drawn_order(dice)
        if dice.random() < 0.8:  # both grids alike, which an order that does not end with pp needs
            ep, etp = tp * cp, 1
    unit = pp * math.lcm(tp * cp, ep * etp)
    world = unit * dice.choice((1, 2, 2, 3, 4, 6, 8))
    while world > 96 and world > unit:
        world -= unit
    if dice.random() < 0.05:
        world = max(1, world + dice.choice((-1, 1, 2)))
    shared = math.gcd(max(world // (tp * pp), 1), max(world // (etp * ep * pp), 1))
    instances = dice.choice([n for n in (1, 2, 3, 4, 6) if shared % n == 0 or dice.random() < 0.04])
    arguments: dict[str, Any] = {
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "context_parallel_size": cp,
        "expert_model_parallel_size": ep,
        "expert_tensor_parallel_size": etp,
        "order": order,
        "num_distributed_optimizer_instances": instances,
    }
    if cp >= 4 and dice.random() < 0.7:
        levels = ([2, cp // 2], [cp // 2, 2], [cp], [2, 2] if dice.random() < 0.2 else [1, cp])
        arguments["hierarchical_context_parallel_sizes"] = dice.choice(levels)
    arguments["hybrid_context_parallel"] = dice.random() < (0.3 if world // (tp * pp) % 2 == 0 else 0.03)
    return {"world": world, "rank": dice.randrange(world), "arguments": arguments}


def drawn_order(dice: random.Random) -> str:
    axes = ["tp", "cp", "ep", "dp", "pp"]
    if dice.random() < 0.5:
        return "tp-cp-ep-pp-dp"
    dice.shuffle(axes)
    return "-".join(axes[: dice.choice((5, 5, 5, 5, 4))])


def ours(case: dict[str, Any]) -> RankGrid | None:
    said = case["arguments"]
    try:
        return RankGrid(
            layout=Layout(**{short: said[name] for name, short in DEGREES.items()}),
            world=case["world"],
            order=said["order"],
            distributed_optimizer_instances=said["num_distributed_optimizer_instances"],
            hierarchical_cp=tuple(said.get("hierarchical_context_parallel_sizes", ())),
            hybrid_cp=said["hybrid_context_parallel"],
        )
    except MeshwrightError:
        return None


def short_name(megatron: str, grid: RankGrid) -> str:
    for theirs, short in NAMED_OTHERWISE.items():
        if megatron.startswith(theirs):
            rest = megatron.removeprefix(theirs).removeprefix("_L")
            return short + rest if short.endswith("-") else short
    return next(name for name in grid.groups if kind_of(name).megatron == megatron)


def as_megatron_lists(grid: RankGrid, name: str) -> list[list[int]]:
    return [[rank for rank in row if rank >= 0] for row in grid.groups[name].tolist()]


@pytest.fixture(scope="module")
def judged() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    cases = [draw(seed) for seed in range(WORLDS)]
    answer = subprocess.run(
        [sys.executable, str(JUDGE)], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return list(zip(cases, json.loads(answer.stdout.splitlines()[-1]), strict=True))


def test_worlds_are_refused_exactly_where_megatron_refuses_them(judged: Any) -> None:
    wrong = [(case, said.get("error")) for case, said in judged if (ours(case) is None) != ("error" in said)]
    assert wrong == []
    refused = sum("error" in said for _, said in judged)
    assert refused > 100, "the drawn worlds must try both verdicts"
    assert WORLDS - refused >= 1000, "at least 1,000 worlds must be compared"


def test_every_group_equals_the_one_megatron_creates(judged: Any) -> None:
    differences = []
    for case, said in judged:
        grid = ours(case)
        if grid is None or "error" in said:
            continue
        for megatron, lists in said["created"].items():
            name = short_name(megatron, grid)
            if as_megatron_lists(grid, name) != lists:
                differences.append((case, megatron))
        for name, lists in said["generated"].items():
            if grid.groups[name].tolist() != lists:
                differences.append((case, name))
    assert differences == []


def test_every_kind_of_group_was_compared(judged: Any) -> None:
    seen: set[str] = set()
    for case, said in judged:
        grid = ours(case)
        if grid is not None:
            seen |= {short_name(megatron, grid) for megatron in said.get("created", {})}
    assert {"tp", "cp", "dp-cp", "ep", "edp", "embd", "hcp-0", "hcp-1", "intra-dp-cp", "inter-edp"} <= seen
    assert {"dist-opt", "hybrid-2", "hybrid-4", "tp-ep-pp", "pos-embd", "tp-pp", "etp"} <= seen
