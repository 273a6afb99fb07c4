"""Step time: sums, tables against loops, and what must cost more than what."""

from __future__ import annotations

import time as clock
from dataclasses import replace

import numpy as np
import pytest
from tests.cost.asking_time import PLAIN, ask, seconds, times

from meshwright.cost.explain import explain, other_flags, training_days
from meshwright.cost.mixers import attended_keys
from meshwright.cost.observing import Observation, fit, predicted
from meshwright.cost.simulation import simulated_step, timeline
from meshwright.cost.stages import all_stages, distinct_stages
from meshwright.cost.steptime import TERMS, step_time
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import split_table
from meshwright.layout.table import LayoutTable

OVERLAPPED = Execution(overlaps=frozenset({"dp", "tp"}))
BIG = {"seq": 8192, "batch": 128, "execution": OVERLAPPED}


def test_terms_sum_to_the_step_and_none_is_negative():
    timed = times("deepseek-v3", "256xH100", Layout(pp=8, ep=32), batch=1024)
    assert tuple(timed.terms) == TERMS
    assert sum(float(values[0]) for values in timed.terms.values()) == pytest.approx(float(timed.step[0]))
    assert all(float(values[0]) >= 0 for values in timed.terms.values())


def test_the_gemms_of_a_step_by_hand():
    """One micro-batch of 8,192 tokens through Llama-3-8B on one H100, no factor: 6 FLOPs a weight and token.

    32 layers of 218.1e6 weights and a head of 128,256 x 4,096 at 86 % of 989 TFLOP/s, within the ramps.
    """
    timed = times("llama-3-8b", "1xH100", Layout(), seq=8192, batch=1, calibration=PLAIN)
    flops = 6 * 8192 * (32 * 218.1e6 + 128256 * 4096)
    assert float(timed.terms["gemm"][0]) == pytest.approx(flops / (0.864 * 989e12), rel=0.08)


def test_a_table_is_as_its_rows_one_by_one():
    question, _ = ask("qwen3-30b-a3b", "64xH100", Layout(), batch=256)
    layouts = [
        Layout(ep=8), Layout(tp=2, ep=8, sp=True), Layout(pp=4, ep=4, mbs=2), Layout(pp=2, vpp=2, ep=8),
        Layout(tp=4, cp=2, ep=8, sp=True),
    ]  # fmt: skip
    rows = [ask("qwen3-30b-a3b", "64xH100", layout, batch=256)[1] for layout in layouts]
    alone = [float(step_time(question, row, all_stages(row.splits)).step[0]) for row in rows]
    joined = table_of(question.model, layouts, 64, 256)
    assert step_time(question, joined, distinct_stages(joined.splits)).step == pytest.approx(alone)


def table_of(model, layouts, world, gbs, execution=None):
    execution = execution or Execution()
    splits, codes = split_table(model, [(one.pp, one.vpp, None, execution.recompute) for one in layouts])
    columns = {
        name: np.array([getattr(one, name) for one in layouts])
        for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "sp")
    }
    size = len(layouts)
    return LayoutTable(
        world=np.full(size, world), gbs=np.full(size, gbs), **columns,
        execution=np.zeros(size, dtype=np.int64),
        executions=(execution,), split=codes, splits=splits,
    )  # fmt: skip


def test_100_000_layouts_take_less_than_a_second():
    question, _ = ask("deepseek-v3", "2048xH100", Layout(ep=64), batch=16384)
    rows = [
        Layout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, mbs=mbs, sp=tp > 1)
        for tp in (1, 2, 4, 8) for cp in (1, 2, 4, 8) for pp in (1, 2, 4, 8, 16)
        for vpp in ((1,) if pp == 1 else (1, 2, 3)) for ep in (8, 16, 32, 64) for mbs in (1, 2, 4, 8)
    ]  # fmt: skip
    few = table_of(question.model, rows, 2048, 16384)
    many = few.rows(np.sort(np.resize(np.arange(len(rows)), 100_000)))
    view = distinct_stages(many.splits)
    step_time(question, many.rows(slice(0, 100)), view)
    best = np.inf
    for _ in range(3):
        start = clock.process_time()
        for piece in many.chunks(8192):
            step_time(question, piece, view)
        best = min(best, clock.process_time() - start)
    assert best < 1.0


# what a search must not get for free


def test_tp_8_costs_a_70b_more_than_a_fifth_where_tp_4_is_enough():
    """Published: 704 against 508.7 TFLOP/s a GPU (fine-tuning, FP8, 4,096 tokens, 32 H100)."""
    job = {"seq": 4096, "batch": 32, "precision": "fp8-current", "task": "sft"}
    flags = Execution(overlaps=frozenset({"tp"}), cuda_graphs="mlp")
    four = seconds("llama-3-70b", "32xH100", Layout(tp=4, pp=4, vpp=5, sp=True), execution=flags, **job)
    eight = seconds("llama-3-70b", "32xH100", Layout(tp=8, pp=4, vpp=5, sp=True), execution=flags, **job)
    assert 1.2 < eight / four < 1.6


def test_tensor_parallelism_across_nodes_is_ruined():
    inside = seconds("llama-3-70b", "64xH100", Layout(tp=8, pp=4, vpp=5, sp=True), **BIG)
    across = seconds("llama-3-70b", "64xH100", Layout(tp=16, pp=4, vpp=5, sp=True), **BIG)
    assert across > 1.3 * inside


def test_expert_exchange_across_nodes_costs_several_times_that_inside():
    flags = Execution(dispatcher="alltoall", cuda_graphs="full")
    inside, across = (
        float(times("qwen3-30b-a3b", "16xH100", Layout(ep=ep), batch=1024, execution=flags).terms["ep"][0])
        for ep in (8, 16)
    )
    assert across > 3 * inside


def test_expert_exchange_stays_cheap_inside_an_nvl72_rack():
    flags = Execution(dispatcher="hybridep", cuda_graphs="full")
    small, wide = (
        seconds("qwen3-235b-a22b", "64xGB200", Layout(pp=2, ep=ep), batch=1024, execution=flags)
        for ep in (8, 32)
    )
    assert wide < 1.15 * small


def test_few_micro_batches_pay_for_the_bubble():
    """Bubble (pp-1)/M of the work: 7/8 at 8 micro-batches, 7/64 at 64."""
    for batch, micro in ((16, 8), (128, 64)):
        timed = times(
            "llama-3-70b", "64xH100", Layout(tp=4, pp=8, sp=True), seq=8192, batch=batch, execution=OVERLAPPED
        )
        work = sum(
            float(timed.terms[name][0]) for name in ("gemm", "attention", "memory_bound", "tp", "host")
        )
        assert float(timed.terms["bubble"][0]) == pytest.approx(7 / micro * work, rel=0.08)


def test_interleaving_shrinks_the_bubble_and_never_everything():
    bubbles = [
        float(
            times(
                "llama-3-70b", "64xH100", Layout(tp=4, pp=8, vpp=vpp, sp=True), **{**BIG, "batch": 32}
            ).terms["bubble"][0]
        )
        for vpp in (1, 2, 5, 10)
    ]
    assert bubbles == sorted(bubbles, reverse=True)
    assert bubbles[1] == pytest.approx(bubbles[0] / 2, rel=0.02)


def test_huge_vpp_pays_for_its_messages():
    few, many = (
        times("llama-3-70b", "64xH100", Layout(tp=4, pp=8, vpp=vpp, sp=True), **BIG) for vpp in (2, 10)
    )
    assert float(many.terms["pp"][0]) == pytest.approx(5 * float(few.terms["pp"][0]), rel=0.02)


def test_tiny_micro_batches_of_small_experts_wait_for_the_host():
    small, large = (times("qwen3-30b-a3b", "8xB200", Layout(ep=8, mbs=mbs), batch=512) for mbs in (1, 4))
    assert float(small.terms["host"][0]) > 0.2 * float(small.step[0])
    assert float(small.step[0]) > 1.4 * float(large.step[0])


def test_expert_tensor_parallelism_is_not_free():
    one, four = (
        seconds(
            "mixtral-8x7b", "64xH100", Layout(tp=4, ep=8, etp=etp, sp=True), batch=256, execution=OVERLAPPED
        )
        for etp in (1, 4)
    )
    assert four > 1.05 * one


def test_context_parallelism_is_cheap_for_long_sequences_and_not_for_short():
    long = [
        seconds("llama-3-8b", "32xH100", Layout(cp=cp), seq=65536, batch=32, execution=OVERLAPPED)
        for cp in (4, 16)
    ]
    short = [
        seconds("llama-3-8b", "32xH100", Layout(cp=cp), seq=4096, batch=256, execution=OVERLAPPED)
        for cp in (4, 16)
    ]
    assert short[1] / short[0] > long[1] / long[0] > 1.0


def test_graphs_of_the_iteration_take_the_wait_away():
    flags = Execution(dispatcher="alltoall")
    eager, graphed = (
        times("qwen3-30b-a3b", "8xB200", Layout(ep=8), batch=512, execution=replace(flags, cuda_graphs=scope))
        for scope in ("none", "full")
    )
    assert float(graphed.terms["host"][0]) < 0.01 * float(eager.terms["host"][0])


def test_the_fullest_rank_sets_the_time_of_unbalanced_experts():
    even, uneven = (
        times(
            "qwen3-30b-a3b",
            "8xH100",
            Layout(ep=8, mbs=4),
            batch=512,
            execution=Execution(expert_imbalance=factor, cuda_graphs="full"),
        )
        for factor in (1.0, 1.5)
    )
    assert float(uneven.terms["ep"][0]) == pytest.approx(1.5 * float(even.terms["ep"][0]), rel=0.1)
    assert float(uneven.terms["gemm"][0]) > 1.2 * float(even.terms["gemm"][0])


def test_lora_saves_the_weight_gradients_and_the_exchange_of_gradients():
    full, lora = (
        times("llama-3-8b", "8xH100", Layout(), seq=4096, batch=32, task=task) for task in ("sft", "lora")
    )
    assert float(lora.terms["gemm"][0]) == pytest.approx(2 / 3 * float(full.terms["gemm"][0]), rel=0.04)
    assert float(lora.terms["dp"][0]) == 0


def test_full_recompute_runs_the_forward_pass_of_every_layer_again():
    """A third of the compute of the layers. Source: Narayanan et al. 2021, activation recomputation."""
    plain, again = (
        times("llama-3-8b", "8xH100", Layout(), seq=4096, batch=32, execution=Execution(recompute=recompute))
        for recompute in (Recompute(), Recompute(granularity="full"))
    )
    compute = sum(float(plain.terms[name][0]) for name in ("gemm", "attention", "memory_bound"))
    assert 0.24 < float(again.terms["recompute"][0]) / compute < 0.34


# packing


@pytest.mark.parametrize(
    ("packing", "window", "keys"),
    [((), None, 2048), (((1024, 1.0), (2048, 1.0)), None, 768), ((), 128, 126), (((64, 1.0),), 128, 32)],
)
def test_keys_that_a_token_sees(packing, window, keys):
    job = Job(seq_length=4096, global_batch=1, packing=packing)
    assert attended_keys(job, window) == pytest.approx(keys, rel=1e-6)


def test_a_window_counts_what_its_tokens_really_see():
    length, window = 1000, 100
    seen = np.mean([min(token + 1, window) for token in range(length)])
    assert attended_keys(Job(seq_length=length, global_batch=1), window) == pytest.approx(seen, rel=0.01)


def test_packed_samples_longer_than_the_sequence_are_refused():
    with pytest.raises(QuestionError, match="8192 tokens"):
        Job(seq_length=4096, global_batch=1, packing=((8192, 1.0),))


# simulation, explanation, own runs


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        (Layout(pp=8, ep=8), Execution()),
        (Layout(pp=4, vpp=2, ep=16), Execution(overlaps=frozenset({"dp", "ep"}))),
        (Layout(ep=8), Execution(overlaps=frozenset({"dp", "ep"}))),
        (Layout(tp=2, pp=8, sp=True, ep=8), Execution(recompute=Recompute(granularity="full"))),
    ],
)
def test_simulated_and_closed_form_agree_term_by_term(layout, flags):
    question, table = ask("qwen3-235b-a22b", "256xH100", layout, batch=2048, execution=flags)
    closed, simulated = step_time(question, table, all_stages(table.splits)), simulated_step(question, table)
    assert float(simulated.step[0]) == pytest.approx(float(closed.step[0]), rel=0.03)
    for name in set(TERMS) - {"pp", "bubble"}:
        assert float(simulated.terms[name][0]) == float(closed.terms[name][0])


def test_the_timeline_of_a_layout_has_its_stages():
    question, table = ask("llama-3-70b", "64xH100", Layout(tp=4, pp=4, sp=True), batch=64)
    shown = timeline(question, table, most=8)
    assert {slot.stage for slot in shown.slots} == {0, 1, 2, 3}
    assert len(shown.slots) == 4 * 2 * 8


def test_an_explanation_accounts_for_the_whole_step_and_ranks_gains():
    question, table = ask("qwen3-30b-a3b", "16xH100", Layout(ep=16), batch=1024)
    told = explain(question, table)
    assert sum(share.seconds for share in told.terms) == pytest.approx(told.step_seconds)
    assert sum(share.share for share in told.groups) == pytest.approx(1.0)
    exchange = next(share.seconds for share in told.terms if share.name == "ep")
    gains = {gain.change: gain.seconds for gain in told.gains}
    assert gains["no exposed expert exchange"] == exchange
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert "overlap the expert exchange with compute" in [
        words for words, _, _ in other_flags(question, Layout(ep=16), table.executions[0])
    ]


def test_days_of_a_token_budget():
    # 15e12 tokens at 4 Mi tokens in 10 s on 1,024 GPUs
    days, hours = training_days(10.0, 4 * 2**20, 1024, 15e12)
    assert days == pytest.approx(15e12 / (4 * 2**20) * 10 / 86400)
    assert hours == pytest.approx(days * 24 * 1024)


def test_one_own_run_anchors_the_cluster():
    question, table = ask("llama-3-8b", "8xH100", Layout(), seq=8192, batch=128)
    before = float(step_time(question, table, all_stages(table.splits)).step[0])
    seen = Observation(question=question, table=table, seconds=1.2 * before)
    learnt = fit([seen])
    assert predicted([seen], learnt)[0] == pytest.approx(1.2 * before, rel=0.02)
    assert learnt.time_band[0] < question.calibration.time_band[0]


def test_several_own_runs_tell_a_slow_network_from_a_slow_gpu():
    layouts = {1: Layout(mbs=1), 2: Layout(tp=2, sp=True), 8: Layout(tp=8, sp=True)}
    seen, truth = [], None
    for layout in layouts.values():
        for gpus in ("8xH100", "32xH100"):
            question, table = ask("llama-3-8b", gpus, layout, seq=2048, batch=128)
            truth = replace(question.calibration, factors={**question.calibration.factors, "network": 1.6})
            slow = replace(question, calibration=truth)
            step = float(step_time(slow, table, all_stages(table.splits)).step[0])
            seen.append(Observation(question=question, table=table, seconds=step))
    learnt = fit(seen)
    assert learnt.factors["network"] > 1.1
    assert learnt.factors["gemm"] == pytest.approx(seen[0].question.calibration.factors["gemm"], rel=0.05)


def test_observations_that_are_none_are_refused():
    question, table = ask("llama-3-8b", "8xH100", Layout())
    with pytest.raises(QuestionError, match="above 0"):
        Observation(question=question, table=table, seconds=0.0)
    assert fit([]) is question.calibration


def test_gpus_without_measured_tables_have_a_wider_band():
    measured, inherited = (times("llama-3-8b", f"8x{gpu}", Layout()).band for gpu in ("H100", "H20"))
    assert inherited == pytest.approx(1.5 * measured)


def test_sharding_inside_each_node_spares_the_network():
    def dp(instances: int) -> float:
        flags = Execution(fsdp=True, optimizer_instances=instances)
        timed = times("llama-3-8b", "1024xH100", Layout(), batch=8192, execution=flags)
        return float(timed.terms["dp"][0])

    assert dp(128) < 0.8 * dp(1)


def test_weights_sharded_over_more_gpus_are_gathered_in_smaller_messages():
    def share(gpus: int) -> float:
        timed = times("llama-3-70b", f"{gpus}xH100", Layout(), batch=2 * gpus, execution=Execution(fsdp=True))
        return float(timed.terms["dp"][0] / timed.step[0])

    assert share(2048) > 1.2 * share(64)


def test_ring_attention_adds_up_its_steps_in_memory_bound_kernels():
    def memory_bound(comm: str) -> float:
        flags = Execution(cp_comm=comm)
        timed = times(
            "llama-3-8b", "8xH100", Layout(cp=2), calibration=PLAIN, batch=4, execution=flags, seq=8192
        )
        return float(timed.terms["memory_bound"][0])

    # 32 layers x 4096 queries of 4096 x ((10 x 1.75 + 6) + 6 x 1.75 x 1.5) bytes
    moved = 32 * 4096 * (4096 * 23.5 + 10.5 * (4096 + 2048))
    extra = memory_bound("p2p") - memory_bound("a2a")
    kernels = 32 * 2 * 3 * 1.75 * 3e-6  # launches
    assert extra == pytest.approx(moved / (3.35e12 * 0.62) + kernels, rel=0.01)
