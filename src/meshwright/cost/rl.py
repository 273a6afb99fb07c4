"""Memory of reinforcement learning: trainer, reference policy and rollout engine, together or apart. Bytes.

A step has four phases: the rollout engine generates; trainer and reference compute log-probabilities;
the trainer trains; new weights are sent to the engine. On shared GPUs each phase holds what the others
leave behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cluster.spec import Cluster
from meshwright.cost.accounts import Accounts, accounts, forward_bytes
from meshwright.cost.question import Question
from meshwright.cost.resident import outside_bytes
from meshwright.cost.stages import StageView
from meshwright.facts import load_json
from meshwright.job.spec import Rollout
from meshwright.layout.table import Floats, LayoutTable
from meshwright.model.parameters import count_parameters
from meshwright.model.spec import Model

__all__ = ["PHASES", "RlMemory", "Rollout", "residency", "rl_memory"]

PHASES = ("rollout", "log-probabilities", "training", "weight sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class RlMemory:
    """Memory of the phases on the trainer's GPUs, and of the engine's own where they are apart.

    phases   {phase: [N, D]} total bytes of a GPU
    engine   bytes of a GPU of the rollout engine: its share of the card
    weights  of `engine`, its weights
    usable   bytes the card offers
    offloaded  [N, D] bytes that are in host memory while the engine generates
    """

    phases: dict[str, Floats]
    engine: float
    weights: float
    usable: float
    offloaded: Floats

    @property
    def peak(self) -> Floats:
        """Bytes of the fullest phase. [N, D]"""
        return np.asarray(np.max(list(self.phases.values()), axis=0))

    @property
    def cache(self) -> float:
        """Bytes that are left for the key-value cache; below 0 where the engine's weights do not fit."""
        return self.engine - self.weights


def rl_memory(question: Question, table: LayoutTable, view: StageView, rollout: Rollout) -> RlMemory:
    """Residency of trainer, reference and rollout engine in every phase."""
    return residency(question, table, accounts(question, table, view), rollout)


def residency(
    question: Question, table: LayoutTable, parts: Accounts, rollout: Rollout | None,
    fragmentation: Floats | float = 0.0,
) -> RlMemory:  # fmt: skip
    """The same from the parts of the trainer's memory.

    fragmentation  what the trainer's allocator reserves beyond its tensors while it trains [N, D]
    """
    rollout = rollout or Rollout()
    state, usable = parts.state, question.cluster.gpu.usable_memory
    weights = 2.0 * count_parameters(question.model).everything / rollout.gpus
    engine = rollout.memory_share * usable
    asleep = load_json("meshwright.cost", "memory.json")["engine_asleep_bytes"]["value"]
    beside = np.zeros_like(state.weights) + (asleep if rollout.sleeps else engine) * rollout.colocated
    outside = outside_bytes(question, parts.sizes, table) + parts.resident + parts.pool
    reference = 2.0 * state.parameters * rollout.reference
    waiting = reference * (not rollout.offloads_reference)
    resting = outside + waiting + state.total - offloaded_bytes(parts, rollout)
    forward = outside + state.total + state.unsharded + reference + forward_bytes(parts)
    alone = np.maximum(parts.passes, parts.update) - parts.resident - parts.pool
    training = outside + waiting + alone + fragmentation
    sync = resting + np.where(rollout.offloads_weights, state.weights, 0.0) + 2 * rollout.sync_bucket
    return RlMemory(
        phases={
            "rollout": resting + max(engine, weights) * rollout.colocated,
            "log-probabilities": forward + beside,
            "training": training + beside,
            "weight sync": sync + (max(weights, asleep) if rollout.colocated else 0.0),
        },
        engine=engine,
        weights=weights,
        usable=usable,
        offloaded=offloaded_bytes(parts, rollout) + reference * rollout.offloads_reference,
    )


def offloaded_bytes(parts: Accounts, rollout: Rollout) -> Floats:
    """Bytes of the trainer that are in host memory while the engine generates. [N, D]"""
    state = parts.state
    return np.asarray(
        state.weights * rollout.offloads_weights
        + state.gradients * rollout.offloads_gradients
        + state.optimizer * rollout.offloads_optimizer
    )


def engine_gpus(model: Model, cluster: Cluster, memory_share: float) -> int:
    """The fewest GPUs (a power of two) that hold a copy of the weights and leave room for the cache."""
    share = load_json("meshwright.cost", "memory.json")["engine_weights_share"]["value"]
    weights, room = 2.0 * count_parameters(model).everything, share * memory_share * cluster.gpu.usable_memory
    gpus = 1
    while weights / gpus > room and gpus < cluster.world:
        gpus *= 2
    return gpus
