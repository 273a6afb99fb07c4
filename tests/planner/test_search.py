"""What must hold of a search, whatever the costs are."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import LayoutError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import default_pipeline
from meshwright.layout.rules import View, check
from meshwright.model.catalog import find
from meshwright.planner import search as search_module
from meshwright.planner.again import one_row
from meshwright.planner.flags import is_lighter
from meshwright.planner.pricing import Piece
from meshwright.planner.search import search
from meshwright.planner.space import Axes, Range, free_flags, recompute_choices

SHARED = Execution(overlaps=frozenset({"dp"}))


def question(
    name: str = "llama-3-8b", gpus: str = "16xH100", batch: int = 64, sequence: int = 4096
) -> Question:
    return Question(
        model=find(name), cluster=parse_cluster(gpus), job=Job(seq_length=sequence, global_batch=batch)
    )


def by_hand(asked: Question, sets: tuple[Recompute, ...], fsdp: tuple[bool, ...]) -> dict[str, float]:
    """Every layout one at a time, with no table, bound or shortcut: how many start, fit, and the fastest."""
    world, powers = asked.cluster.world, [1, 2, 4, 8]
    experts = powers if asked.model.is_moe else [1]
    found = {"valid": 0, "fitting": 0, "best": np.inf}
    grid = itertools.product(powers, powers, [1, 2, 4, 8], powers, experts, experts, [1, 2, 4], sets, fsdp)
    for tp, pp, vpp, cp, ep, etp, mbs, recompute, sharded in grid:
        layout = Layout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, mbs=mbs, sp=tp > 1)
        execution = replace(SHARED, recompute=recompute, fsdp=sharded)
        if not starts(asked, layout, execution) or (sharded and (pp > 1 or world == tp)):
            continue
        found["valid"] += 1
        one = one_row(asked, layout, execution, None)
        used = memory(asked, one, all_stages(one.splits))
        if used.may_fit[0]:
            found["fitting"] += 1
            found["best"] = min(found["best"], step_time(asked, one, all_stages(one.splits)).step[0])
    return found


def starts(asked: Question, layout: Layout, execution: Execution) -> bool:
    pipeline = default_pipeline(asked.model, layout.pp, layout.vpp)
    if pipeline is None:
        return False
    try:
        layout.num_microbatches(asked.cluster.world, asked.job.global_batch)
    except LayoutError:
        return False
    if layout.cp > 1 and asked.job.seq_length // layout.cp < 1024:
        return False
    if asked.model.is_moe and layout.ep == 1 and layout.etp != layout.tp:
        return False  # experts train wrongly there, which the space leaves out
    said = {}
    if asked.model.num_layers % (layout.pp * layout.vpp):
        said = {"pipeline_model_parallel_layout": pipeline.string()}
    view = View.of(
        said, layout=layout, model=asked.model, cluster=asked.cluster, job=asked.job, execution=execution,
        framework="megatron-bridge", release="26.06",
    )  # fmt: skip
    return not any(finding.severity == "error" for finding in check(view))


SETS = (
    Recompute(),
    Recompute(granularity="selective", modules=("layernorm",)),
    Recompute(granularity="full"),
)
SPACES = {
    "dense": (question("llama-3.2-1b", "4xA100-40GB", 16), SETS, (False, True)),
    "moe": (question("olmoe-1b-7b", "4xH100", 16), (SETS[0], SETS[2]), (False,)),
    "little memory": (question("llama-3-8b", "8xA100-40GB", 8, 8192), SETS, (False, True)),
}


@pytest.mark.parametrize("name", SPACES)
def test_the_search_finds_what_a_loop_over_single_layouts_finds(name: str):
    asked, sets, fsdp = SPACES[name]
    hand = by_hand(asked, sets, fsdp)
    axes = Axes(execution=SHARED, recompute=sets, flags={"fsdp": fsdp}, mbs=(1, 2, 4), vpp=(1, 2, 4, 8))
    whole, bounded = search(asked, axes, keep=np.inf), search(asked, axes)
    assert (whole.valid, whole.fitting) == (hand["valid"], hand["fitting"])
    assert whole.step.min() == pytest.approx(hand["best"], rel=1e-12)
    assert bounded.step.min() == whole.step.min()
    assert bounded.valid == bounded.searched == whole.searched
    assert bounded.scored < whole.scored


@pytest.mark.parametrize(
    "asked", [question("llama-3-70b", "32xH100", 128), question("qwen3-30b-a3b", "16xH100", 256)]
)
def test_bounds_leave_the_best_layouts_and_their_order_alone(asked: Question):
    axes = Axes(flags=free_flags(Execution()), splits="both")
    whole, bounded = search(asked, axes, keep=np.inf), search(asked, axes)
    assert bounded.searched == whole.searched
    assert bounded.scored + sum(bounded.excluded.values()) == bounded.searched
    first = [
        (found.table.layout(0), found.table.executions[found.table.execution[0]])
        for found in (whole, bounded)
    ]
    assert first[0] == first[1]
    assert set(np.round(bounded.step, 12)) <= set(np.round(whole.step, 12))


@pytest.mark.parametrize(
    "asked", [question("llama-3-70b", "32xH100", 128), question("deepseek-v2-lite", "16xH100", 256)]
)
def test_no_recompute_set_is_faster_than_a_lighter_one_or_smaller_than_the_floor(
    asked: Question, monkeypatch: pytest.MonkeyPatch
):
    """What the bounds claim, held against every priced layout."""
    times, sizes, floors = {}, {}, {}

    def seconds(piece: Piece, inside: object = slice(None)) -> np.ndarray:
        found = step_time(asked, piece.table, piece.view).step
        times.setdefault(piece.table.executions[0].recompute, {}).update(
            zip(piece.rows.tolist(), found, strict=True)
        )
        return found[inside]

    def floor(piece: Piece) -> np.ndarray:
        found = original(piece)
        floors.update(zip(piece.rows.tolist(), found, strict=True))
        return found * 0

    def scored(piece: Piece, *rest: object) -> None:
        used = piece.memory()
        sizes.setdefault(piece.table.executions[0].recompute, {}).update(
            zip(piece.rows.tolist(), used.peak * (1 - used.band), strict=True)
        )
        piece.seconds()

    original = Piece.floor
    monkeypatch.setattr(Piece, "seconds", seconds)
    monkeypatch.setattr(Piece, "floor", floor)
    monkeypatch.setattr(search_module, "_score", scored)
    search(asked, Axes(flags={"fsdp": (False, True)}, vpp=(1, 2)), keep=np.inf)
    pairs = [(a, b) for a in times for b in times if a != b and is_lighter(a, b)]
    assert len(pairs) > 4
    for lighter, heavier in pairs:
        both = times[lighter].keys() & times[heavier].keys()
        assert all(times[lighter][row] <= times[heavier][row] * (1 + 1e-12) for row in both)
    assert floors
    assert all(floors[row] <= size for rows in sizes.values() for row, size in rows.items())


def test_more_memory_never_loses_a_layout():
    small = question("llama-3-70b", "32xH100", 128)
    gpu = replace(small.cluster.gpu, usable_memory=small.cluster.gpu.usable_memory * 1.2)
    large = replace(small, cluster=replace(small.cluster, gpu=gpu))
    rows = [
        {
            (
                *(int(getattr(found.table, n)[i]) for n in DEGREES),
                found.table.executions[found.table.execution[i]],
            )
            for i in range(found.fitting)
        }
        for found in (search(asked, Axes(), keep=np.inf) for asked in (small, large))
    ]
    assert rows[0]
    assert rows[0] < rows[1]


def test_every_layout_that_is_found_divides_the_world_and_the_batch():
    asked = question("qwen3-30b-a3b", "16xH100", 512)
    table = search(asked, Axes()).table
    for row in range(0, len(table), 37):
        layout: Layout = table.layout(row)
        assert 16 % layout.min_gpus == 0
        assert 512 % (layout.mbs * layout.dp(16)) == 0
        assert 128 % layout.ep == 0


def test_a_fixed_axis_stays_fixed_a_list_within_it_and_a_bound_holds():
    table = search(question(), Axes(tp=(2,), pp=(1, 2), bounds={"mbs": Range(least=2, most=4)})).table
    assert set(table.tp.tolist()) == {2}
    assert set(table.pp.tolist()) <= {1, 2}
    assert set(table.mbs.tolist()) == {2, 4}


def test_where_nothing_fits_the_layout_that_needs_least_is_shown():
    found = search(question("llama-3.1-405b", "8xA100-40GB", 8), Axes())
    assert found.fitting == 0
    assert len(found.table) == 1
    assert found.peak[0] > found.table.world[0]


def test_where_nothing_is_legal_there_is_no_layout():
    found = search(question("llama-3-8b", "7xH100", 64), Axes(tp=(7,)))
    assert (len(found.table), found.valid) == (0, 0)
    assert found.reasons["tp-divides-heads"] > 0


def test_two_searches_of_one_question_agree_in_every_row():
    asked, axes = question("qwen3-30b-a3b", "16xH100", 256), Axes(flags=free_flags(Execution()))
    one, two = search(asked, axes), search(asked, axes)
    assert np.array_equal(one.step, two.step)
    assert np.array_equal(one.peak, two.peak)
    assert [one.table.layout(i) for i in range(50)] == [two.table.layout(i) for i in range(50)]


def test_an_interrupted_search_keeps_what_it_found():
    calls = []

    def stop(done: int, whole: int) -> None:
        calls.append(done)
        if len(calls) == 2:
            raise KeyboardInterrupt

    asked = question("llama-3-70b", "64xH100", 128)
    found = search(asked, Axes(), stop)
    assert found.partial
    assert 0 < found.searched < search(asked, Axes()).searched
    assert found.fitting


def test_an_interrupt_before_anything_is_found_is_passed_on():
    def stop(done: int, whole: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(
            question("llama-3.1-405b", "64xH100", 64),
            Axes(recompute=recompute_choices(find("llama-3-8b"))[:1]),
            stop,
        )
