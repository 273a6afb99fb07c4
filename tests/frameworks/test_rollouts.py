"""Reinforcement-learning runs: what is trained, and the engine beside it."""

import pytest

from meshwright.frameworks.check import Beside, check_reading
from meshwright.frameworks.read import read_command

WORDS = [
    "python3", "-m", "verl.trainer.main_ppo", "--config-name=ppo_megatron_trainer",
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B", "data.train_batch_size=64",
    "data.max_prompt_length=1024", "data.max_response_length=7168", "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", "trainer.n_gpus_per_node=8", "trainer.nnodes=1",
]  # fmt: skip


OFFLOADS = [
    f"actor_rollout_ref.actor.megatron.{name}_offload=True" for name in ("param", "grad", "optimizer")
]
AWAY = [*OFFLOADS, "actor_rollout_ref.rollout.gpu_memory_utilization=0.3"]


def checked(*more: str):
    return check_reading(read_command([*WORDS, *more])[0], Beside(world=8, gpu="H100"))


def test_prompt_and_response_are_one_trained_sequence_and_the_engine_has_its_share():
    """8,192 tokens of Qwen3 8B on TP4: 8.2e9 / 4 x (2 + 4 + 12/2) bytes of state at least."""
    memory = checked().memory
    assert memory.peak_bytes > 8.19e9 / 4 * 12
    assert memory.verdict == "fits"


def test_an_engine_that_does_not_sleep_takes_its_share_of_training_too():
    awake = checked(*AWAY, "actor_rollout_ref.rollout.free_cache_engine=False")
    more = awake.memory.peak_bytes - checked(*AWAY).memory.peak_bytes
    assert more == pytest.approx(0.3 * awake.memory.usable_bytes - 2 * 2**30, rel=0.01)


def test_a_kl_loss_needs_the_reference_beside_it():
    more = checked("actor_rollout_ref.actor.use_kl_loss=True").memory.peak_bytes - checked().memory.peak_bytes
    assert more == pytest.approx(2 * 8.19e9 / 4, rel=0.01)


def test_without_lengths_there_is_no_estimate():
    words = [word for word in WORDS if not word.startswith("data.max")]
    assert check_reading(read_command(words)[0], Beside(world=8, gpu="H100")).memory is None
