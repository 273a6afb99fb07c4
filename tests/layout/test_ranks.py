"""Ranks and groups: the worked example that was made with Megatron Core's own generator, and speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from meshwright.errors import LayoutError, QuestionError
from meshwright.layout.layout import Layout
from meshwright.layout.ranks import TP_PP_DP_ORDER, RankGrid

EXAMPLE = Layout(tp=2, cp=2, pp=2, ep=4)
DEFAULT = {
    "tp": "0,1 2,3 4,5 6,7 8,9 10,11 12,13 14,15",
    "cp": "0,2 1,3 4,6 5,7 8,10 9,11 12,14 13,15",
    "dp": "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15",
    "pp": "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15",
    "dp-cp": "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15",
    "tp-cp": "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15",
    "tp-dp": "0,1,4,5 2,3,6,7 8,9,12,13 10,11,14,15",
    "tp-dp-cp": "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15",
    "tp-pp": "0,1,8,9 2,3,10,11 4,5,12,13 6,7,14,15",
    "ep": "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15",
    "tp-ep": "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15",
    "edp": "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15",
    "tp-ep-pp": "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15",
    "embd": "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15",
    "pos-embd": "0 1 2 3 4 5 6 7",
}
MAPPED = {
    "pp": "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15",
    "dp": "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15",
    "edp": "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15",
    "dp-cp": "0,2,8,10 1,3,9,11 4,6,12,14 5,7,13,15",
    "tp-dp-cp": "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15",
    "tp-dp": "0,1,8,9 2,3,10,11 4,5,12,13 6,7,14,15",
    "tp-ep-pp": "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15",
    "pos-embd": "0 1 2 3 8 9 10 11",
}
TWO_INSTANCES = {
    "intra-dp-cp": "0,2 4,6 1,3 5,7 8,10 12,14 9,11 13,15",
    "inter-edp": "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15",
    "dist-opt": "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15",
}


def written(grid: RankGrid, name: str) -> str:
    return " ".join(",".join(map(str, row)) for row in grid.groups[name].tolist())


@pytest.mark.parametrize(("name", "lists"), DEFAULT.items())
def test_worked_example_default_order(name: str, lists: str) -> None:
    assert written(RankGrid(layout=EXAMPLE, world=16), name) == lists


@pytest.mark.parametrize(("name", "lists"), MAPPED.items())
def test_worked_example_tp_pp_dp_mapping(name: str, lists: str) -> None:
    assert written(RankGrid(layout=EXAMPLE, world=16, order=TP_PP_DP_ORDER), name) == lists


@pytest.mark.parametrize(("name", "lists"), TWO_INSTANCES.items())
def test_worked_example_two_optimizer_instances(name: str, lists: str) -> None:
    grid = RankGrid(layout=EXAMPLE, world=16, distributed_optimizer_instances=2)
    assert written(grid, name) == lists
    assert grid.groups["intra-edp"].shape == (16, 1)


def test_hierarchical_context_groups() -> None:
    grid = RankGrid(layout=Layout(tp=2, cp=4), world=8, hierarchical_cp=(2, 2))
    assert grid.groups["cp"][0].tolist() == [0, 2, 4, 6]
    assert grid.groups["hcp-0"][:2].tolist() == [[0, 2], [4, 6]]
    assert grid.groups["hcp-1"][:2].tolist() == [[0, 4], [2, 6]]


def test_only_the_pipeline_crosses_nodes_in_the_worked_example() -> None:
    grid = RankGrid(layout=EXAMPLE, world=16, gpus_per_node=8)
    crossing = {name for name in grid.groups if grid.reach(name).crossing_nodes > 0}
    assert crossing == {"pp", "tp-pp", "tp-ep-pp", "embd", "dist-opt"}


def test_on_72_gpu_racks_data_parallel_groups_span_two_racks_and_tensor_parallel_ones_none() -> None:
    """TP4 DP16 PP4: stages are 64 ranks; racks begin at 72, 144 and 216, inside all stages but the first."""
    grid = RankGrid(layout=Layout(tp=4, pp=4), world=256, gpus_per_node=4, nvlink_domain=72)
    spanning = grid.domain[grid.groups["dp"]]
    assert sorted({int(row // 4) for row in np.flatnonzero(np.ptp(spanning, axis=1))}) == [1, 2, 3]
    assert grid.reach("tp").crossing_domains == 0


def test_weight_sharding_axis_shrinks_data_parallelism() -> None:
    """gtp sits next to tp in the decoder grid and is a factor of the world of its own."""
    grid = RankGrid(layout=Layout(tp=2, cp=2), world=16, gtp=2)
    assert grid.dp == 2
    assert grid.groups["gtp"][0].tolist() == [0, 2]
    assert grid.groups["cp"][0].tolist() == [0, 4]


def test_every_rank_is_in_exactly_one_group_of_each_whole_kind() -> None:
    grid = RankGrid(layout=Layout(tp=2, pp=3, cp=2, ep=4, etp=1), world=96)
    partial = {"embd", "pos-embd"}
    for name, members in grid.groups.items():
        if name not in partial:
            assert sorted(members.ravel().tolist()) == list(range(96)), name


def test_coordinates_number_the_ranks() -> None:
    at = RankGrid(layout=EXAMPLE, world=16).coordinates
    assert (at["tp"] + 2 * at["cp"] + 4 * at["dp"] + 8 * at["pp"]).tolist() == list(range(16))
    assert (at["ep"] + 4 * at["edp"] + 8 * at["pp"]).tolist() == list(range(16))


def test_json_has_the_documented_fields() -> None:
    answer = RankGrid(layout=EXAMPLE, world=16).as_json()
    assert answer["world_size"] == 16
    assert {"tp", "cp", "dp", "dp-cp", "pp", "ep", "etp", "edp", "embd"} <= set(answer["groups"])
    expected = {"rank": 9, "node": 1, "tp": 1, "cp": 0, "dp": 0, "pp": 1, "ep": 1, "etp": 0, "edp": 0}
    assert expected.items() <= answer["ranks"][9].items()


@pytest.mark.parametrize(
    ("layout", "more", "says"),
    [
        (EXAMPLE, {"world": 20}, "multiple of 8"),
        (Layout(tp=2, cp=2, pp=2, ep=8), {"world": 32, "order": TP_PP_DP_ORDER}, "dp 4 and edp 2"),
        (EXAMPLE, {"world": 16, "order": "tp-cp-pp-ep-dp"}, "pipeline groups of the decoder and the expert"),
        (EXAMPLE, {"world": 16, "order": "tp-ep-dp-pp"}, "leaves out cp"),
        (EXAMPLE, {"world": 16, "distributed_optimizer_instances": 4}, "edp = 2"),
        (Layout(cp=4), {"world": 8, "hierarchical_cp": (2, 4)}, "must be cp = 4"),
    ],
)  # fmt: skip
def test_worlds_that_megatron_refuses(layout: Layout, more: dict[str, object], says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        RankGrid(layout=layout, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["tp-xx-pp", "", "tp-tp-cp-ep-dp-pp"])
def test_an_order_that_makes_no_sense_is_a_wrong_question(order: str) -> None:
    with pytest.raises(QuestionError):
        RankGrid(layout=EXAMPLE, world=16, order=order)


@pytest.mark.parametrize(("world", "limit"), [(16_384, 1.0), (98_304, 4.0)])
def test_large_worlds_are_fast(world: int, limit: float) -> None:
    begun = time.process_time()
    grid = RankGrid(layout=Layout(tp=2, pp=16, cp=2, ep=64), world=world)
    assert sum(members.size for members in grid.groups.values()) > 10 * world
    assert all(grid.reach(name).size for name in grid.groups)
    assert time.process_time() - begun < limit
