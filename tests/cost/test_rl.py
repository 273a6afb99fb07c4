"""Trainer, reference and rollout engine on one set of GPUs, or on two."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cost.rl import PHASES, Rollout, rl_memory
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout

FULL = Execution(recompute=Recompute(granularity="full"))


@pytest.fixture
def asked(ask):
    return ask("qwen3-8b", "8xH100", Layout(tp=4, sp=True), seq=8192, execution=FULL)


def phases(asked, **changes):
    return rl_memory(asked.question, asked.table, asked.view, Rollout(gpus=4, **changes))


def test_every_phase_is_there_and_the_engine_takes_its_share(asked):
    found = phases(asked)
    assert tuple(found.phases) == PHASES
    assert found.engine == 0.5 * found.usable
    assert found.weights == pytest.approx(2 * 8.19e9 / 4, rel=0.01)


def test_an_engine_that_sleeps_gives_its_share_back_in_training(asked):
    awake, asleep = phases(asked, sleeps=False), phases(asked)
    given = awake.phases["training"] - asleep.phases["training"]
    assert np.allclose(given, awake.engine - 2 * 2**30)


def test_offloading_the_trainer_frees_its_state_in_the_rollout_phase(asked):
    kept = phases(asked, offloads_gradients=False, offloads_optimizer=False)
    moved = phases(asked)
    freed = kept.phases["rollout"] - moved.phases["rollout"]
    state = asked.memory.terms["gradients"] + asked.memory.terms["optimizer"]
    assert np.allclose(freed, state)


def test_a_reference_policy_is_the_weights_once_more(asked):
    more = phases(asked).phases["training"] - phases(asked, reference=False).phases["training"]
    assert np.allclose(more, 2 * asked.memory.parameters)


def test_apart_the_trainer_has_its_gpus_to_itself(asked):
    apart = phases(asked, colocated=False, reference=False)
    beside = asked.memory.allocated[0, 0]
    assert apart.phases["training"][0, 0] > beside
    assert apart.phases["training"][0, 0] < asked.memory.total[0, 0] * 1.01


def test_weights_that_outgrow_the_engines_share_leave_no_cache(ask):
    asked = ask("llama-3-70b", "8xH100", Layout(tp=8, sp=True), execution=FULL)
    rollout = Rollout(gpus=2, memory_share=0.5)
    assert rl_memory(asked.question, asked.table, asked.view, rollout).cache < 0


def test_a_share_above_one_is_refused():
    with pytest.raises(QuestionError, match="between 0 and 1"):
        replace(Rollout(), memory_share=1.5)
