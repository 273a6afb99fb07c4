"""Host memory of a training job: offloaded state and activations, checkpoints on their way out. Bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.accounts import Accounts, accounts
from meshwright.cost.question import Question
from meshwright.cost.rl import residency
from meshwright.cost.stages import StageView
from meshwright.facts import load_json
from meshwright.layout.table import Floats, LayoutTable


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Host memory of one rank at each stage [N, D], and of the fullest node [N].

    process      Python, CUDA libraries, data loader
    optimizer    weights, gradients and moments of the offloaded fraction
    activations  what fine-grained or layer offloading moves, for all micro-batches in flight
    checkpoint   the copy that an asynchronous save writes from
    rollout      what leaves the GPU while a rollout engine generates (reinforcement learning)
    """

    process: float
    optimizer: Floats
    activations: Floats
    checkpoint: Floats
    rollout: Floats
    gpus_per_node: int

    @property
    def total(self) -> Floats:
        return self.process + self.optimizer + self.activations + self.checkpoint + self.rollout

    @property
    def node(self) -> Floats:
        """All ranks of a node full of the fullest stage. [N]"""
        return np.asarray(self.total.max(axis=1) * self.gpus_per_node)


def host_memory(question: Question, table: LayoutTable, view: StageView) -> HostMemory:
    """Host memory of every layout of a table at every stage of the view."""
    parts = accounts(question, table, view)
    flying, keys = parts.flying, parts.sizes.keys
    state = parts.state
    # a fully parallel save: every rank writes its share of the weights and its own optimizer state
    copies = np.maximum(table.dp * table.cp, 1)[:, None]
    return HostMemory(
        process=float(load_json("meshwright.cost", "memory.json")["host_process_bytes"]["value"]),
        optimizer=state.host,
        activations=flying.total(flying.passes, parts.blocks.hosted, keys),
        checkpoint=2.0 * state.parameters / copies + state.optimizer,
        rollout=_while_generating(question, table, parts),
        gpus_per_node=question.cluster.gpus_per_node,
    )


def _while_generating(question: Question, table: LayoutTable, parts: Accounts) -> Floats:
    if question.job.rollout is None:
        return np.zeros_like(parts.activations)
    return residency(question, table, parts, question.job.rollout).offloaded
