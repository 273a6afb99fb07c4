"""What the space of layouts holds: odd degrees, ranges, free flags, splits, and every size of world."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.planner.again import one_row
from meshwright.planner.flags import combinations_of, differs, free_flags, is_lighter, recompute_choices
from meshwright.planner.search import search
from meshwright.planner.space import Axes, Range, busiest, geometries, pipelines_of
from meshwright.planner.values import divisors, mbs_values


def question(name: str, gpus: str, batch: int, sequence: int = 4096) -> Question:
    return Question(
        model=find(name), cluster=parse_cluster(gpus), job=Job(seq_length=sequence, global_batch=batch)
    )


def degrees(asked: Question, name: str, axes: Axes | None = None) -> set[int]:
    return set(getattr(search(asked, axes or Axes(), keep=np.inf).table, name).tolist())


def test_odd_worlds_get_odd_degrees_where_heads_and_layers_allow():
    # 96 heads on 96 GPUs in nodes of 8: tp 3 and 6 divide both
    assert {1, 2, 3, 4, 6, 8} == set(
        geometries(question("gpt3-175b", "96xH100", 1536), Axes()).table.tp.tolist()
    )
    assert {3, 6} <= degrees(question("gpt3-175b", "96xH100", 1536), "tp")
    # 112 heads of BLOOM: tp 7 on nodes of 7 GPUs
    seven = replace(question("bloom-176b", "448xH100", 448), cluster=parse_cluster("64x7xH100"))
    assert 7 in degrees(seven, "tp")
    # 80 layers on 1,000 GPUs: pp 5, 10, 20
    assert {5, 10, 20} <= degrees(question("llama-3-70b", "1000xH100", 2000), "pp")


def test_uneven_depths_are_split_automatically():
    asked = question("deepseek-v3", "72xGB200", 2304)
    assert {3, 9} <= set(geometries(asked, Axes()).table.pp.tolist())
    for pipeline in pipelines_of(asked.model, Axes(), 9):
        assert pipeline.num_layers == 61


def test_a_heavy_head_gets_a_split_of_its_own_beside_the_even_one():
    # vocabulary 128,256 over hidden 4,096: the head is worth more than two of 32 layers
    model = find("llama-3-8b")
    even, automatic = pipelines_of(model, Axes(vpp=(1,), splits="both"), 4)
    assert even.layers_per_rank == (8, 8, 8, 8)
    assert automatic.layers_per_rank[-1] < 8
    assert busiest(model, automatic) < busiest(model, even)
    assert pipelines_of(model, Axes(vpp=(1,)), 4) == [even]


def test_micro_batches_beyond_eight_for_short_sequences():
    assert 32 in mbs_values(question("llama-3.2-1b", "8xH100", 512, 512))
    assert 16 not in mbs_values(question("llama-3.2-1b", "8xH100", 512, 8192))
    assert mbs_values(question("llama-3.2-1b", "8xH100", 8, 131072)) == [1]


@pytest.mark.parametrize(
    ("name", "gpus", "batch"),
    [
        ("llama-3.2-1b", "1xH100", 64),
        ("llama-3-70b", "120xH100", 240),
        ("llama-3.1-405b", "16384xH100", 16384),
        ("llama-3.1-405b", "100000xH100", 100000),
    ],
)
def test_every_size_of_world_is_searched(name: str, gpus: str, batch: int):
    asked = question(name, gpus, batch)
    found = search(asked, Axes())
    assert found.fitting
    layout = found.table.layout(0)
    assert asked.cluster.world % layout.min_gpus == 0
    assert batch % (layout.mbs * layout.dp(asked.cluster.world)) == 0


def test_bounds_of_a_degree_hold_and_a_given_list_wins_within_them():
    asked = question("llama-3-8b", "16xH100", 64)
    assert degrees(asked, "tp", Axes(bounds={"tp": Range(most=2)})) <= {1, 2}
    assert degrees(asked, "mbs", Axes(mbs=(1, 2, 4), bounds={"mbs": Range(least=2)})) <= {2, 4}
    with pytest.raises(QuestionError, match="at least 4 and at most 2"):
        Range(least=4, most=2)
    with pytest.raises(QuestionError, match="'dp' is not a degree"):
        search(asked, Axes(bounds={"dp": Range(most=2)}))


def test_a_flag_is_tried_only_where_it_changes_something():
    asked = question("llama-3-8b", "16xH100", 64)
    axes = Axes(flags=free_flags(Execution()))
    table = geometries(asked, axes).table
    for one in combinations_of(axes):
        rows, one = differs(one, axes, table), one.execution
        if one.cp_comm == "a2a":
            assert (table.cp[rows] > 1).all()
        if one.fsdp:
            assert (table.pp[rows] == 1).all()
            assert (table.dp[rows] * table.cp[rows] > 1).all()
        assert rows.any()


def test_fsdp_as_the_base_does_not_lose_layouts_with_a_pipeline():
    axes = Axes(execution=Execution(fsdp=True), flags=free_flags(Execution(fsdp=True)), pp=(2,))
    found = search(question("llama-3-8b", "16xH100", 64), axes)
    assert found.fitting
    assert not any(found.table.executions[code].fsdp for code in set(found.table.execution.tolist()))


def test_overlap_and_graphs_of_the_stack_can_be_dropped_and_freed_flags_are_all_tried():
    base = Execution(overlaps=frozenset({"dp", "ep"}), cuda_graphs="moe")
    free = free_flags(base)
    assert free["overlaps"] == (frozenset({"dp", "ep"}), frozenset({"dp"}))
    assert free["cuda_graphs"] == ("moe", "none")
    assert set(free_flags(base, ["dispatcher"])["dispatcher"]) == {
        "alltoall",
        "allgather",
        "deepep",
        "hybridep",
    }
    assert frozenset({"dp", "tp"}) in free_flags(base, ["overlaps"])["overlaps"]
    assert {"optimizer_offload", "cp_comm", "overlaps", "dispatcher"} <= free_flags(base, ["all"]).keys()
    with pytest.raises(QuestionError, match="did you mean dispatcher"):
        free_flags(base, ["dispatchr"])


def test_the_optimizer_is_offloaded_only_where_that_helps():
    axes = Axes(flags={"optimizer_offload": (0.0, 0.5, 1.0)})
    roomy = search(question("llama-3.2-1b", "8xH100", 64), axes)
    assert {flags.optimizer_offload for flags in roomy.table.executions} == {0.0}
    assert roomy.excluded["saving"] > 0
    asked = question("llama-3-8b", "1xH100", 8)
    assert not search(asked, Axes()).fitting
    short = search(asked, axes)
    assert short.fitting
    assert {short.table.executions[code].optimizer_offload for code in short.table.execution.tolist()} <= {
        0.5,
        1.0,
    }


def test_without_expert_ranks_the_flex_dispatcher_and_its_overlap_are_dropped():
    # Megatron Core asserts tp*ep > 1 for the flex dispatcher, and ep > 1 for the overlap
    base = Execution(dispatcher="hybridep", overlaps=frozenset({"dp", "ep"}))
    found = search(question("qwen3-30b-a3b", "16xH100", 256), Axes(execution=base, flags=free_flags(base)))
    assert {1, 8} <= set(found.table.ep.tolist())
    for row in range(0, len(found.table), 7):
        flags = found.table.executions[found.table.execution[row]]
        alone = found.table.ep[row] == 1
        assert flags.dispatcher == ("alltoall" if alone else "hybridep")
        assert not (alone and "ep" in flags.overlaps)


def test_recompute_sets_run_from_none_to_full_and_say_which_is_lighter():
    sets = recompute_choices(find("deepseek-v3"))
    none, full = sets[0], sets[-1]
    assert (none.granularity, full.granularity) == ("none", "full")
    assert all(is_lighter(none, other) and is_lighter(other, full) for other in sets)
    blocks = [one for one in sets if one.method == "block"]
    assert all(is_lighter(a, b) for a, b in itertools.pairwise(blocks))
    assert not is_lighter(blocks[0], sets[1])


def test_part_of_the_layers_is_recomputed_only_where_a_chunk_has_more():
    found = search(question("llama-3-70b", "64xH100", 128), Axes(), keep=np.inf)
    for row in range(0, len(found.table), 11):
        recompute = found.table.executions[found.table.execution[row]].recompute
        if recompute.method == "block":
            layout = found.table.layout(row)
            assert recompute.num_layers < -(-80 // (layout.pp * layout.vpp)) + 1


def test_what_saves_memory_costs_time():
    asked = question("llama-3-70b", "64xH100", 128, 8192)

    def price(execution: Execution, layout: Layout) -> tuple[float, float]:
        one = one_row(asked, layout, execution, None)
        view = all_stages(one.splits)
        return memory(asked, one, view).peak[0], step_time(asked, one, view).step[0]

    deep = Layout(tp=4, pp=4, vpp=5, cp=2, sp=True)
    plain = price(Execution(), deep)
    lean = [Execution(recompute=recompute) for recompute in recompute_choices(asked.model)[1:]]
    lean += [Execution(optimizer_offload=share) for share in (0.5, 1.0)]
    for peak, step in (price(execution, deep) for execution in lean if not _covers_nothing(execution)):
        assert peak < plain[0]
        assert step > plain[1] * 1.001
    flat = Layout(tp=4, cp=2, sp=True)
    whole, sharded = price(Execution(), flat), price(Execution(fsdp=True), flat)
    assert sharded[0] < whole[0]
    assert sharded[1] > whole[1]


def _covers_nothing(execution: Execution) -> bool:
    """Block recompute of as many layers as a chunk of the test has is full recompute."""
    return execution.recompute.method == "block" and (execution.recompute.num_layers or 0) > 4


@pytest.mark.parametrize("number", [1, 2, 97, 96, 1000, 16384, 100000])
def test_divisors(number: int):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]
