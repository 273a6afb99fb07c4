"""Memory of reinforcement learning: trainer, reference policy and rollout engine, together or apart. Bytes.

A step has four phases: the rollout engine generates; trainer and reference compute log-probabilities;
the trainer trains; new weights are sent to the engine. On shared GPUs each phase holds what the others
leave behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.memory import accounts
from meshwright.cost.peaks import forward_bytes
from meshwright.cost.question import Question
from meshwright.cost.resident import outside_bytes
from meshwright.cost.stages import StageView
from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import fraction, positive
from meshwright.layout.table import Floats, LayoutTable
from meshwright.model.parameters import count_parameters

PHASES = ("rollout", "log-probabilities", "training", "weight sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rollout engine and how it shares GPUs with the trainer.

    gpus                GPUs over which one copy of the weights is spread (its TP times PP, or EP)
    memory_share        share of a GPU that the engine takes for weights and key-value cache
    colocated           trainer and engine use the same GPUs
    sleeps              the engine gives its cache (and weights) back while the trainer works
    offloads_weights    in the rollout phase the trainer's weights go to host memory
    offloads_gradients  ... its gradient buffers too
    offloads_optimizer  ... its optimizer state too
    reference           a frozen reference policy is held
    offloads_reference  ... in host memory outside of its phase
    sync_bucket         bytes of one bucket of weights on their way to the engine
    """

    gpus: int = 1
    memory_share: float = 0.5
    colocated: bool = True
    sleeps: bool = True
    offloads_weights: bool = False
    offloads_gradients: bool = True
    offloads_optimizer: bool = True
    reference: bool = True
    offloads_reference: bool = False
    sync_bucket: float = 2.0**30

    def __post_init__(self) -> None:
        positive("GPUs of one rollout copy", self.gpus)
        fraction("the engine's share of a GPU", self.memory_share)
        if self.sync_bucket <= 0:
            raise QuestionError(f"the weight bucket is {self.sync_bucket} bytes; it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RlMemory:
    """Memory of the phases on the trainer's GPUs, and of the engine's own where they are apart.

    phases   {phase: [N, D]} total bytes of a GPU
    engine   bytes of a GPU of the rollout engine: its share of the card
    weights  of `engine`, its weights
    usable   bytes the card offers
    """

    phases: dict[str, Floats]
    engine: float
    weights: float
    usable: float

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
    parts = accounts(question, table, view)
    state, usable = parts.state, question.cluster.gpu.usable_memory
    weights = 2.0 * count_parameters(question.model).everything / rollout.gpus
    engine = rollout.memory_share * usable
    asleep = load_json("meshwright.cost", "memory.json")["engine_asleep_bytes"]["value"]
    beside = np.zeros_like(state.weights) + (asleep if rollout.sleeps else engine) * rollout.colocated
    outside = outside_bytes(question, parts.sizes, table) + parts.resident
    reference = 2.0 * state.parameters * rollout.reference
    waiting = reference * (not rollout.offloads_reference)
    resting = (
        outside
        + waiting
        + (
            state.weights * (not rollout.offloads_weights)
            + state.gradients * (not rollout.offloads_gradients)
            + state.optimizer * (not rollout.offloads_optimizer)
        )
    )
    forward = outside + state.total + state.unsharded + reference + forward_bytes(parts)
    training = outside + waiting + np.maximum(parts.passes, parts.update) - parts.resident
    sync = resting + np.where(rollout.offloads_weights, state.weights, 0.0) + 2 * rollout.sync_bucket
    return RlMemory(
        phases={
            "rollout": resting + engine * rollout.colocated,
            "log-probabilities": forward + beside,
            "training": training + beside,
            "weight sync": sync + (max(weights, asleep) if rollout.colocated else 0.0),
        },
        engine=engine,
        weights=weights,
        usable=usable,
    )
