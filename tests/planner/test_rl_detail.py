"""`--task rl`: trainer, reference and rollout engine in one answer."""

import pytest

import meshwright as mw

GIB = 1024**3
BASE = {"tp": 4, "seq_length": 8192, "global_batch": 64}
ASLEEP = 2 * GIB


def ask(**rollout):
    return mw.estimate("qwen3-8b", "8xH100", mw.Options(**BASE, task="rl", rollout=rollout))


def sft():
    """Fine-tuning with the cross entropy of reinforcement learning: Megatron's own, which is not fused."""
    loss = {"cross_entropy_fusion": False, "cross_entropy_impl": "native"}
    return mw.estimate("qwen3-8b", "8xH100", mw.Options(**BASE, task="sft", execution=loss))


def test_training_holds_the_reference_and_a_sleeping_engine_beside_the_trainer():
    """Two bytes for each of 8.19 B parameters over TP 4, and what an engine keeps that has given all back."""
    more = ask().detail.rl.phases["training"][0] - sft().memory.per_stage[0].total_bytes
    assert more == pytest.approx(2 * 8.19e9 / 4 + ASLEEP, rel=0.01)


def test_apart_and_without_a_reference_it_is_fine_tuning():
    alone = ask(colocated=False, reference=False)
    assert alone.memory.peak_bytes == pytest.approx(sft().memory.peak_bytes, abs=2)


def test_the_peak_of_the_layout_is_that_of_its_fullest_phase():
    for rollout in ({}, {"memory_share": 0.9}, {"offloads_weights": True}, {"sleeps": False}):
        answer = ask(**rollout)
        phases = answer.detail.rl.phases.values()
        assert answer.memory.peak_bytes == pytest.approx(max(max(p) for p in phases), abs=8)


def test_an_engine_that_stays_awake_takes_the_room_of_training():
    assert ask(sleeps=False, memory_share=0.8).memory.verdict == "does-not-fit"
    assert ask(sleeps=False, memory_share=0.8, colocated=False).memory.verdict == "fits"


def test_what_leaves_the_gpu_is_in_host_memory():
    """4 bytes of gradients over TP 4, 12 of optimizer state over the 8 ranks that share it."""
    host = ask().detail.host
    assert host.rollout_bytes == pytest.approx(8.19e9 * (4 / 4 + 12 / 8), rel=0.01)
    assert ask(offloads_gradients=False, offloads_optimizer=False).detail.host.rollout_bytes == 0


def test_the_engine_is_spread_until_its_weights_leave_a_cache():
    """Llama 70B: 141 GB of weights; half a card is 42 GB, of which 70 % may be weights: 8 GPUs."""
    answer = mw.estimate("llama3-70b", "64xH100", mw.Options(tp=8, pp=4, task="rl"))
    assert answer.question.job.rollout.gpus == 8
    assert answer.detail.rl.engine_fits


def test_an_engine_whose_weights_leave_no_cache_is_no_answer():
    answer = ask(colocated=False, gpus=1, memory_share=0.1)
    assert answer.memory.verdict == "fits"
    assert not answer.detail.rl.engine_fits
    assert not answer.fits


def test_a_plan_for_rl_fits_in_every_phase_and_comes_back_from_its_json():
    plans = mw.plan("qwen3-8b", "8xH100", mw.Options(seq_length=8192, global_batch=64, task="rl"), top=1)
    assert plans.fitting
    again = mw.estimate_again(plans.best.as_dict())
    assert again.memory == plans.best.memory
    assert again.detail.rl == plans.best.detail.rl


def test_a_rollout_engine_belongs_to_reinforcement_learning():
    with pytest.raises(mw.QuestionError, match="belongs to --task rl"):
        mw.estimate("qwen3-8b", "8xH100", mw.Options(**BASE, rollout={"gpus": 2}))
