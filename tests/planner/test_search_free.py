"""Searches with many free flags: bounds leave what a loop over single layouts finds alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.blocks import block_costs
from meshwright.cost.keys import distinct_keys
from meshwright.cost.machine import machine_for
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import LayoutError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.rules import legal_mask
from meshwright.model.catalog import find
from meshwright.planner.again import one_row
from meshwright.planner.flags import combinations_of, free_flags
from meshwright.planner.least_time import least_seconds
from meshwright.planner.pricing import Pricer
from meshwright.planner.search import TOGETHER, search
from meshwright.planner.space import Axes, geometries

ASKED = Question(
    model=find("olmoe-1b-7b"), cluster=parse_cluster("4xA100-40GB"), job=Job(seq_length=4096, global_batch=16)
)
SETS = (Recompute(), Recompute(granularity="full"))
FLAGS = {
    "cp_comm": ("p2p", "a2a", "allgather"),
    "dispatcher": ("alltoall", "allgather", "deepep"),
    "overlaps": (frozenset({"dp", "tp"}), frozenset({"dp"})),
    "optimizer_offload": (0.0, 1.0),
}
AXES = Axes(
    tp=(1, 2), pp=(1, 2), vpp=(1, 2), cp=(1, 2), ep=(1, 2, 4), etp=(1,), mbs=(1,), recompute=SETS, flags=FLAGS
)  # fmt: skip
BASE = AXES.execution


def by_hand() -> dict[tuple[object, ...], float]:
    """Seconds of every layout that starts and may fit, one at a time."""
    found = {}
    grid = itertools.product((1, 2), (1, 2), (1, 2), (1, 2), (1, 2, 4), SETS, *FLAGS.values())
    for tp, pp, vpp, cp, ep, recompute, cp_comm, dispatcher, overlaps, offload in grid:
        if (ep == 1 and tp > 1) or vpp > pp:
            continue  # experts train wrongly there, which the space leaves out; chunks need a pipeline
        layout = Layout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, sp=tp > 1)
        flags = {"cp_comm": cp_comm, "dispatcher": dispatcher, "overlaps": overlaps}
        # a value that changes nothing is tried once only, so that it is no part of the name
        changing = (cp_comm if cp > 1 else "", dispatcher if ep > 1 else "", overlaps if tp > 1 else "")
        name = (layout, recompute.granularity, offload, *changing)
        one = row_of(layout, replace(BASE, recompute=recompute, optimizer_offload=offload, **flags))
        if name in found or one is None:
            continue
        view = all_stages(one.splits)
        if memory(ASKED, one, view).may_fit[0]:
            found[name] = float(step_time(ASKED, one, view).step[0])
    return found


def row_of(layout: Layout, execution: Execution):
    try:
        layout.num_microbatches(ASKED.cluster.world, ASKED.job.global_batch)
        one = one_row(ASKED, layout, execution, None)
    except LayoutError:
        return None
    legal, _ = legal_mask(ASKED.model, ASKED.cluster, ASKED.job, one, ASKED.stack)
    return one if legal[0] else None


def test_pruned_by_many_bounds_the_search_keeps_all_that_a_loop_finds_near_the_fastest():
    assert len(combinations_of(AXES)) > TOGETHER
    hand, found = by_hand(), search(ASKED, AXES)
    best = min(hand.values())
    near = {name: step for name, step in hand.items() if step <= 1.5 * best}
    assert found.step.min() == pytest.approx(best, rel=1e-12)
    assert len(near) > 20
    # missing are at most those with more recompute or offload than a layout that fits with room needs
    missing = [name for name, step in near.items() if not np.isclose(found.step, step, rtol=1e-9).any()]
    assert all(name[1] != "none" or name[2] > 0 for name in missing)
    assert len(missing) <= found.excluded["saving"]


@pytest.mark.parametrize("name", ["olmoe-1b-7b", "llama-3.2-1b"])
def test_bounds_over_all_flags_leave_the_order_and_the_count_alone(name: str):
    asked = replace(ASKED, model=find(name))
    axes = Axes(flags=free_flags(Execution(), ("all",)), mbs=(1, 2))
    whole, bounded = search(asked, axes, keep=np.inf), search(asked, axes)
    assert len(combinations_of(axes)) > TOGETHER
    assert bounded.valid == bounded.searched == whole.searched
    assert bounded.reasons == whole.reasons
    assert bounded.scored < whole.scored
    first = [
        (found.table.layout(0), found.table.executions[found.table.execution[0]])
        for found in (whole, bounded)
    ]
    assert first[0] == first[1]
    assert bounded.step.min() == whole.step.min()
    assert set(np.round(bounded.step, 12)) <= set(np.round(whole.step, 12))


def test_no_flags_undercut_the_least_time():
    axes = Axes(flags=free_flags(Execution(), ("all",)), mbs=(1, 2))
    space, flags = geometries(ASKED, axes), combinations_of(axes)
    pricer = Pricer(ASKED, space)
    least = least_seconds(pricer, [one.execution for one in flags])
    assert least.min() > 0
    for one in flags:
        for piece in pricer.pieces(np.arange(len(space)), (one.execution,)):
            assert (piece.seconds() >= least[piece.rows] * (1 - 1e-12)).all()


def test_layers_do_not_read_what_their_keys_leave_out():
    axes = Axes(tp=(2,), pp=(1,), ep=(2,))
    space = geometries(ASKED, axes)
    plain = replace(space.table, executions=(BASE,))
    costs = []
    for changes in ({}, {"fsdp": True}, {"optimizer_offload": 1.0}):
        keys = distinct_keys(plain)
        keys = replace(keys, executions=(replace(BASE, **changes),))
        costs.append(block_costs(machine_for(ASKED, keys)).both)
    assert all(np.array_equal(costs[0], other) for other in costs[1:])


@pytest.mark.parametrize("free", [(), ("all",)])
def test_a_space_without_a_single_layout_is_an_empty_answer(free: tuple[str, ...]):
    found = search(ASKED, Axes(tp=(3,), flags=free_flags(Execution(), free)))
    assert (len(found.table), found.valid, found.searched, found.reasons) == (0, 0, 0, {})
