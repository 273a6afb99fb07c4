"""The memory peaks of a run told apart: first step, later steps, evaluation, checkpoint save. Bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.accounts import Accounts, accounts, forward_bytes
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView
from meshwright.cost.state import kept_weight
from meshwright.layout.table import Floats, LayoutTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Allocated peaks of N layouts at D stages. [N, D]

    first       iteration 1: Adam's moments are allocated by its first step, after the backward pass
    steady      iteration 2 and later
    evaluation  forward passes alone, beside all state
    save        while a checkpoint is written
    """

    first: Floats
    steady: Floats
    evaluation: Floats
    save: Floats


def peaks(question: Question, table: LayoutTable, view: StageView) -> Peaks:
    """Peaks of the phases of a run.

    Source: megatron/core/optimizer (state of the inner optimizer is made by its first step);
    megatron/training/training.py, evaluate (no gradients, one micro-batch a stage at a time).
    """
    parts = accounts(question, table, view)
    without = parts.passes - parts.state.moments
    return Peaks(
        first=np.maximum(without, parts.update),
        steady=np.maximum(parts.passes, parts.update),
        evaluation=parts.between + parts.state.unsharded + forward_bytes(parts),
        save=parts.between + _gathered_weights(question, table, parts),
    )


def _gathered_weights(question: Question, table: LayoutTable, parts: Accounts) -> Floats:
    """bf16 copies of weights that are held in a lower precision, as a checkpoint stores them."""
    recipe = parts.sizes.recipe
    lower = [recipe.quantised and kept_weight(recipe, e) == recipe.weight for e in table.executions]
    return table.flag(lower).astype(float)[:, None] * 2.0 * parts.state.parameters
