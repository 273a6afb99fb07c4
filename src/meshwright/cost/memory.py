"""Memory of one rank of each pipeline stage, as a sum of named terms. Bytes.

One formula for any number of layouts: arrays are [N, D], a row a layout, a column a scored stage.
What is allocated at most is the largest of a few moments of a step: the loss, a layer's backward pass with
every micro-batch in flight, the embedding's gradient, the optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.activations import BlockMemory, block_memory, vocabulary
from meshwright.cost.keys import distinct_keys
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.cost.resident import outside_bytes, resident_bytes
from meshwright.cost.sizes import Sizes, sizes_of
from meshwright.cost.stages import Flight, StageView, flight
from meshwright.cost.state import State, rank_state
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

    def verdicts(self) -> NDArray[np.str_]:
        """fits | tight | does-not-fit. [N]"""
        sure = self.peak * (1 + self.band) <= self.usable
        return np.where(sure, "fits", np.where(self.may_fit, "tight", "does-not-fit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What the memory of N layouts at D stages is made of, before it is summed. [N, D] bytes

    activations  kept by all micro-batches in flight
    moment       most bytes beyond `activations` at any moment of forward and backward passes
    resident     workspaces and buffers that stay
    """

    sizes: Sizes
    flying: Flight
    state: State
    blocks: BlockMemory
    activations: Floats
    moment: Floats
    resident: Floats

    @property
    def floor(self) -> Floats:
        """Allocated between steps."""
        return self.state.total + self.resident

    @property
    def passes(self) -> Floats:
        """Allocated at the fullest moment of forward and backward passes."""
        return self.floor + self.state.unsharded + self.activations + self.moment

    @property
    def update(self) -> Floats:
        """Allocated during the optimizer step."""
        return self.floor + self.state.update


def accounts(question: Question, table: LayoutTable, view: StageView) -> Accounts:
    """The parts of the memory of every layout at every stage of the view."""
    question = replace(question, job=question.job.for_memory)
    keys, gpu = distinct_keys(table), question.cluster.gpu
    recipe = recipe_for(question.job.precision, gpu)
    sizes = sizes_of(question.model, question.job, recipe, keys, gpu)
    flying, blocks = flight(table, view), block_memory(sizes)
    return Accounts(
        sizes=sizes,
        flying=flying,
        state=rank_state(question, table, keys, flying),
        blocks=blocks,
        activations=flying.total(flying.passes, blocks.kept, keys),
        moment=_peak_moment(sizes, flying, blocks),
        resident=resident_bytes(question, sizes, table, flying),
    )


def memory(question: Question, table: LayoutTable, view: StageView) -> MemoryTable:
    """Memory of every layout of a table at every stage of the view."""
    parts = accounts(question, table, view)
    state = parts.state
    allocated = np.maximum(parts.passes, parts.update)
    working = allocated - state.total - parts.activations
    share = load_json("meshwright.cost", "memory.json")["fragmentation"]
    shares = [share["expandable"] if e.expandable_segments else share["fixed"] for e in table.executions]
    fragmentation = table.flag(shares).astype(float)[:, None] * (parts.activations + working)
    return MemoryTable(
        terms={
            "weights": state.weights,
            "gradients": state.gradients,
            "optimizer": state.optimizer,
            "activations": parts.activations,
            "other": working + outside_bytes(question, parts.sizes, table) + fragmentation,
        },
        allocated=allocated,
        fragmentation=fragmentation,
        parameters=state.parameters,
        exists=view.exists[table.split],
        usable=question.cluster.gpu.usable_memory,
        band=question.calibration.memory_band,
    )


def _peak_moment(x: Sizes, flying: Flight, blocks: BlockMemory) -> Floats:
    """Most bytes beyond the activations of all micro-batches in flight, over the moments of a step. [N, D]

    The loss comes first in a backward pass and lets go of its logits; the embedding comes last, when the
    micro-batch has let go of everything else.
    """
    keys, held = x.keys, flying.held > 0  # [F, D, K]
    ends = np.array([name == "head" or name.startswith("mtp") for name in flying.kinds])
    embedding = np.array([name == "embedding" for name in flying.kinds])
    at_loss = flying.largest(held & ends, blocks.working, keys)
    in_layer = flying.largest(held & ~ends & ~embedding, blocks.working, keys)
    in_layer = in_layer - flying.total(flying.passes * ends, blocks.logits, keys)
    one_pass = flying.total(flying.first, blocks.kept, keys)
    at_embedding = flying.largest(held & embedding, blocks.working, keys) - one_pass
    # a tied head's own weight gradient waits for the embedding's
    both = flying.spread((held & embedding).any(axis=2) & (held & ends).any(axis=2))
    waiting = _tied_gradient(x)[keys.of_row][:, None] * both
    return np.asarray(np.maximum(at_loss, np.maximum(in_layer, at_embedding) + waiting))


def _tied_gradient(x: Sizes) -> Floats:
    return 2.0 * x.model.hidden * vocabulary(x) * x.own_wgrad * x.model.tied
