"""Peaks told apart, host memory and a stage over a step, as an estimate carries them."""

import pytest

import meshwright as mw
from meshwright.cost.timeline import schedule
from meshwright.job.spec import Recompute
from meshwright.planner.again import one_row
from meshwright.planner.memory_detail import SHOWN_PASSES

GIB = 1024**3


@pytest.fixture(scope="module")
def dense():
    return mw.estimate("llama3-70b", "64xH100", mw.Options(tp=4, pp=4, vpp=5, global_batch=128))


def test_adams_moments_are_what_iteration_two_holds_more(dense):
    """Megatron's distributed optimizer: 12 bytes over d of state, 8 of them made by the first step."""
    for row, stage in zip(dense.detail.peaks, dense.memory.per_stage, strict=True):
        more = row.later_iterations_bytes - row.first_iteration_bytes
        assert more == pytest.approx(8 * stage.parameters / 4, rel=1e-6)
        assert row.later_iterations_bytes == pytest.approx(stage.allocated_bytes, rel=1e-6)


def test_evaluation_and_saving_hold_the_state_and_no_activations_of_other_micro_batches(dense):
    for row, stage in zip(dense.detail.peaks, dense.memory.per_stage, strict=True):
        state = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
        assert state < row.checkpoint_save_bytes <= row.evaluation_bytes < row.later_iterations_bytes


def test_the_timeline_is_that_of_the_fullest_stage_and_reaches_its_peak(dense):
    line = dense.detail.timeline
    fullest = max(dense.memory.per_stage, key=lambda stage: stage.total_bytes)
    assert line.stage == fullest.stage
    assert line.highest_bytes == pytest.approx(fullest.allocated_bytes, abs=1)
    assert line.passes == 2 * 5 * 32
    assert line.held_bytes[-1] == pytest.approx(line.floor_bytes, abs=2**20)


def test_a_long_step_is_shown_without_its_repeating_middle():
    """Warm-up and cool-down are whole; what is left out is steady."""
    answer = mw.estimate("llama3-8b", "8xH100", mw.Options(pp=8, vpp=2, global_batch=1024))
    line = answer.detail.timeline
    assert line.passes == 2 * 2 * 1024 > SHOWN_PASSES >= len(line.forward)
    table = one_row(answer.question, mw_layout(answer), answer.execution, None)
    whole = [phase for *_, phase in schedule(table, line.stage)]
    for phase in ("warm-up", "cool-down"):
        assert line.phase.count(phase) == whole.count(phase)
    assert max(line.peak_bytes) == pytest.approx(line.highest_bytes, abs=1)


def mw_layout(answer):
    from meshwright.planner.answer import layout_of

    return layout_of(answer)


def test_an_offloaded_optimizer_lives_in_host_memory():
    """16 bytes a parameter: fp32 weight, gradient and both moments; 8.03 B parameters over 8 ranks."""
    options = mw.Options(tp=2, execution={"optimizer_offload": 1.0}, seq_length=4096, global_batch=64)
    host = mw.estimate("llama3-8b", "8xH100", options).detail.host
    assert host.optimizer_bytes == pytest.approx(16 * 8.03e9 / 8, rel=0.01)
    assert host.node_bytes == pytest.approx(8 * host.rank_bytes, abs=8)


def test_remedies_are_there_exactly_where_memory_does_not_surely_fit(dense):
    assert dense.memory.verdict == "fits"
    assert dense.detail.remedies == ()
    full = mw.estimate("llama3-70b", "16xH100", mw.Options(tp=8, recompute=Recompute()))
    assert full.memory.verdict == "does-not-fit"
    assert full.detail.remedies[0].verdict == "fits"


def test_the_first_plan_has_the_detail_and_the_json_shows_it():
    plans = mw.plan("llama3-8b", "8xH100", top=2).as_dict()["plans"]
    assert {"peaks", "host", "memory_timeline", "remedies"} <= set(plans[0])
    assert "peaks" not in plans[1]


def test_a_longer_packed_sequence_needs_memory_and_no_time():
    """Twice the tokens of a micro-batch: twice the activations; the step is that of the mean."""
    options = {
        "tp": 2,
        "seq_length": 4096,
        "global_batch": 64,
        "task": "sft",
        "execution": {"cuda_graphs": "none"},
    }
    none = mw.estimate("llama3-8b", "8xH100", mw.Options(**options))
    longest = mw.estimate("llama3-8b", "8xH100", mw.Options(**options, longest_packed_sequence=8192))
    twice = mw.estimate("llama3-8b", "8xH100", mw.Options(**options | {"seq_length": 8192}))
    assert longest.time.step_seconds == none.time.step_seconds
    assert longest.memory.per_stage == twice.memory.per_stage


def test_a_longest_sequence_below_the_mean_makes_no_sense():
    with pytest.raises(mw.QuestionError, match="fewer than the sequence length 4,096"):
        mw.estimate("llama3-8b", "8xH100", mw.Options(seq_length=4096, longest_packed_sequence=2048))


def test_the_fullest_expert_rank_has_more_tokens_but_never_more_than_all():
    """Twice the share: more activations; with ep 2 nothing beyond twice; with ep 1 nothing at all."""

    def activations(ep, imbalance):
        options = mw.Options(pp=4, ep=ep, seq_length=4096, global_batch=64, mbs=1, recompute=Recompute(),
                             execution={"expert_imbalance": imbalance})  # fmt: skip
        answer = mw.estimate("qwen3-30b-a3b", "8xH100", options)
        return answer.memory.per_stage[0].activations_bytes

    assert activations(2, 2.0) > 1.2 * activations(2, 1.0)
    assert activations(2, 9.0) == activations(2, 2.0)
    assert activations(1, 9.0) == activations(1, 1.0)


@pytest.mark.parametrize(("optimizer", "left"), [("adam-precision-aware", 0), ("adam", 4)])
def test_an_offloaded_optimizer_takes_its_masters_along_where_it_is_precision_aware(optimizer, left):
    """distrib_optimizer.py makes no shard of them then; Bridge's own plain run freed two thirds of 12."""
    options = {"tp": 2, "seq_length": 4096, "global_batch": 64, "optimizer": optimizer}
    answer = mw.estimate("llama3-8b", "8xH100", mw.Options(**options, execution={"optimizer_offload": 1.0}))
    stage = answer.memory.per_stage[0]
    assert stage.optimizer_bytes == pytest.approx(left * stage.parameters / 4, rel=1e-6)
