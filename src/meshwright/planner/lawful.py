"""Which geometries of a space can start under which flags and savings, without asking for each one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.question import Question
from meshwright.layout.rules.product import Legality, legality
from meshwright.layout.table import Bools, Ints
from meshwright.planner.flags import Candidate, Saving, differs
from meshwright.planner.space import Axes, Geometries


@dataclass(frozen=True, slots=True, kw_only=True)
class Lawful:
    """G geometries under F combinations of flags and S savings. Execution s*F + f has flags f and saving s.

    Geometries that nothing tells apart are one of C classes; `legality` says of which.

    worth  [F, C] whether the flags change anything there
    deep   [S, C] whether the saving does: recompute of fewer layers than the deepest chunk has
    """

    legality: Legality
    worth: Bools
    deep: Bools

    def tried(self, saving: int) -> Bools:
        """Which classes are worth trying. [F, C]"""
        return np.asarray(self.worth & self.deep[saving])

    def legal(self, saving: int) -> Bools:
        """Which classes are worth trying and can start. [F, C]"""
        start = saving * len(self.worth)
        return np.asarray(self.legality.legal[start : start + len(self.worth)] & self.tried(saving))

    def mask(self, flags: Ints, saving: int) -> Bools:
        """The same of every geometry, one of some combinations of flags after the other. [f*G]"""
        return self.legal(saving)[flags][:, self.legality.of_row].ravel()

    def refused(self) -> dict[str, int]:
        """How many layouts each rule refuses."""
        tried = np.stack([self.tried(saving) for saving in range(len(self.deep))])
        return self.legality.refused(tried.reshape(-1, *tried.shape[2:]) if tried.size else tried[0])

    def count(self) -> int:
        """How many layouts can start."""
        size = self.legality.size
        return sum(int(self.legal(saving).sum(axis=0) @ size) for saving in range(len(self.deep)))

    def possible(self) -> Ints:
        """Combinations of flags under which anything can start with any saving."""
        there = self.legality.size > 0
        return np.flatnonzero(
            np.any([self.legal(s)[:, there].any(axis=1) for s in range(len(self.deep))], axis=0)
        )

    def rows(self, kept: Ints) -> Lawful:
        """The chosen geometries."""
        of_row = self.legality.of_row[kept]
        size = np.bincount(of_row, minlength=len(self.legality.size))
        return replace(self, legality=replace(self.legality, of_row=of_row, size=size))


def lawful(
    question: Question, axes: Axes, space: Geometries, flags: Sequence[Candidate], savings: Sequence[Saving]
) -> Lawful:
    """What the rules say of a whole space."""
    worth = [differs(one, axes, space.table) for one in flags]
    deep = [_deep(space, saving) for saving in savings]
    executions = [saving.applied(one.execution) for saving in savings for one in flags]
    found = legality(
        question.model, question.cluster, question.job, space.table, question.stack, executions,
        apart=[*worth, *deep],
    )  # fmt: skip
    return Lawful(
        legality=found,
        worth=np.stack([rows[found.first] for rows in worth]),
        deep=np.stack([rows[found.first] for rows in deep]),
    )


def _deep(space: Geometries, saving: Saving) -> Bools:
    """Geometries with a chunk of more layers than the saving recomputes. [G]"""
    again = saving.recompute
    if again.method != "block" or again.num_layers is None or not len(space):
        return np.ones(len(space), dtype=bool)
    deepest = np.array([max(pipeline.layers_per_chunk) for pipeline in space.pipelines])
    return np.asarray(deepest[space.pipeline] > again.num_layers)
