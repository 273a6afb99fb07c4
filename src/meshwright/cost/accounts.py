"""What the memory of layouts is made of, before it is summed. Bytes.

Arrays are [N, D], a row a layout, a column a scored stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.activations import BlockMemory, block_memory, vocabulary
from meshwright.cost.keys import distinct_keys
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.cost.resident import resident_bytes
from meshwright.cost.sizes import Sizes, sizes_of
from meshwright.cost.stages import Flight, StageView, flight
from meshwright.cost.state import State, rank_state
from meshwright.layout.table import Floats, LayoutTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What the memory of N layouts at D stages is made of, before it is summed. [N, D] bytes

    activations  kept by all micro-batches in flight
    moment       most bytes beyond `activations` at any moment of forward and backward passes
    resident     workspaces and buffers that stay, and what graphed parts need while they run
    pool         of `activations`, what CUDA graphs hold from step to step
    """

    sizes: Sizes
    flying: Flight
    state: State
    blocks: BlockMemory
    activations: Floats
    moment: Floats
    resident: Floats
    pool: Floats

    @property
    def floor(self) -> Floats:
        """Allocated whatever runs, beside activations."""
        return self.state.total + self.resident

    @property
    def between(self) -> Floats:
        """Allocated between steps."""
        return self.floor + self.pool

    @property
    def passes(self) -> Floats:
        """Allocated at the fullest moment of forward and backward passes."""
        return self.floor + self.state.unsharded + self.activations + self.moment

    @property
    def update(self) -> Floats:
        """Allocated during the optimizer step."""
        return self.between + self.state.update


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
        resident=resident_bytes(question, sizes, table, flying)
        + flying.largest(flying.held > 0, blocks.graph_working, keys),
        pool=flying.total(flying.passes, blocks.graphed, keys),
    )


def forward_bytes(parts: Accounts) -> Floats:
    """Most bytes of one block's forward pass where nothing is kept: its own tensors, the loss's logits."""
    flying, blocks, keys = parts.flying, parts.blocks, parts.sizes.keys
    held = flying.held > 0
    ends = np.array([name == "head" or name.startswith("mtp") for name in flying.kinds])
    inside = flying.largest(held & ~ends, np.maximum(blocks.kept, blocks.working), keys)
    loss = flying.largest(held & ends, blocks.kept + blocks.working, keys)
    return np.maximum(inside, loss)


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
