"""Memory of one rank of each pipeline stage, as a sum of named terms. Bytes.

One formula for any number of layouts: arrays are [N, D], a row a layout, a column a scored stage.
What is allocated at most is the largest of a few moments of a step: the loss, a layer's backward pass with
every micro-batch in flight, the embedding's gradient, the optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.accounts import Accounts, accounts
from meshwright.cost.question import Question
from meshwright.cost.resident import outside_bytes
from meshwright.cost.rl import residency
from meshwright.cost.stages import StageView
from meshwright.facts import load_json
from meshwright.layout.table import Bools, Floats, LayoutTable

TERMS = ("weights", "gradients", "optimizer", "activations", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory of N layouts at D scored stages.

    terms       {name: [N, D]} bytes; their sum is what is held against the card
    allocated   [N, D] what torch.cuda.max_memory_allocated would show
    fragmentation  [N, D] what the allocator reserves beyond it (part of `other`)
    parameters  [N, D] trained parameters a rank holds [count]
    exists      [N, D] False where a layout has fewer scored stages
    usable      bytes the card offers
    band        relative half width of the uncertainty of a total
    """

    terms: dict[str, Floats]
    allocated: Floats
    fragmentation: Floats
    parameters: Floats
    exists: Bools
    usable: float
    band: float

    @property
    def total(self) -> Floats:
        """[N, D] bytes."""
        return np.asarray(np.sum(list(self.terms.values()), axis=0))

    @property
    def peak(self) -> Floats:
        """Bytes of the fullest stage. [N]"""
        return np.asarray(np.where(self.exists, self.total, 0.0).max(axis=1))

    @property
    def may_fit(self) -> Bools:
        """False where even the low end of the band exceeds the card. [N]"""
        return np.asarray(self.peak * (1 - self.band) <= self.usable)

    @property
    def surely_fits(self) -> Bools:
        """True where the high end of the band is inside the card. [N]"""
        return np.asarray(self.peak * (1 + self.band) <= self.usable)

    def verdicts(self) -> NDArray[np.str_]:
        """fits | tight | does-not-fit. [N]"""
        return np.where(self.surely_fits, "fits", np.where(self.may_fit, "tight", "does-not-fit"))


def memory(question: Question, table: LayoutTable, view: StageView) -> MemoryTable:
    """Memory of every layout of a table at every stage of the view."""
    parts = accounts(question, table, view)
    state = parts.state
    allocated = np.maximum(parts.passes, parts.update)
    working = allocated - state.total - parts.activations
    share = load_json("meshwright.cost", "memory.json")["fragmentation"]
    shares = [share["expandable"] if e.expandable_segments else share["fixed"] for e in table.executions]
    fragmentation = table.flag(shares).astype(float)[:, None] * (parts.activations + working)
    terms = {
        "weights": state.weights,
        "gradients": state.gradients,
        "optimizer": state.optimizer,
        "activations": parts.activations,
        "other": working + outside_bytes(question, parts.sizes, table) + fragmentation,
    }
    if question.job.task == "rl":
        terms["other"] = terms["other"] + _beside_training(question, table, parts, terms, fragmentation)
    return MemoryTable(
        terms=terms,
        allocated=allocated,
        fragmentation=fragmentation,
        parameters=state.parameters,
        exists=view.exists[table.split],
        usable=question.cluster.gpu.usable_memory,
        band=question.calibration.memory_band,
    )


def _beside_training(
    question: Question, table: LayoutTable, parts: Accounts, terms: dict[str, Floats], fragmentation: Floats
) -> Floats:
    """What the fullest phase of a reinforcement-learning step holds beyond the trainer's own step. [N, D]"""
    alone = np.asarray(np.sum(list(terms.values()), axis=0))
    whole = residency(question, table, parts, question.job.rollout, fragmentation)
    return np.asarray(np.maximum(whole.peak - alone, 0.0))
