"""Pricing the rows of a space: their pipeline splits, in pieces whose working arrays stay small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import MemoryTable, memory
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView, distinct_stages
from meshwright.cost.steptime import step_time
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.pipeline import split_table
from meshwright.layout.stages import recompute_code
from meshwright.layout.table import Floats, Ints, LayoutTable, SplitTable
from meshwright.planner.space import Geometries

PIECE_BYTES = 32 * 1024**2
"""Largest working array [rows, stages, chunks, kinds] of one piece."""
MOST_ROWS = 16384
WIDTHS = (1, 4)
"""Interleaving degrees up to which splits share an array: padding to the widest costs time and memory."""
FEW_ROWS = 2048
"""Up to this many rows one piece is cheaper than one for each width."""
ANY_WIDTH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows of a space under some executions. All results are [n], n the number of rows.

    rows  what the caller calls them
    """

    question: Question
    rows: Ints
    table: LayoutTable
    view: StageView

    def memory(self) -> MemoryTable:
        return memory(self.question, self.table, self.view)

    def floor(self) -> Floats:
        """Bytes of state and saved activations of the fullest stage, at the low end of the band."""
        used = self.memory()
        kept = sum(values for name, values in used.terms.items() if name != "other")
        return np.asarray(np.where(used.exists, kept, 0.0).max(axis=1) * (1 - used.band))

    def seconds(self, inside: Ints | slice = slice(None)) -> Floats:
        """Step time of all rows, or of those `inside`."""
        return step_time(self.question, self.table.rows(inside), self.view).step


@dataclass(frozen=True, slots=True)
class Pricer:
    """Cuts the rows of one space into pieces; splits are built once for each kind of recompute."""

    question: Question
    space: Geometries
    _splits: dict[object, tuple[SplitTable, StageView, Ints]] = field(default_factory=dict)

    def pieces(self, rows: Ints, executions: tuple[Execution, ...]) -> Iterator[Piece]:
        """Rows of the space crossed with executions that share one recompute set.

        rows  index of the execution times the size of the space, plus the index of the geometry
        """
        geometry, code = rows % max(len(self.space), 1), rows // max(len(self.space), 1)
        width = self._width(self.space.table.vpp[geometry])
        if len(rows) <= FEW_ROWS:
            width = np.full(len(rows), ANY_WIDTH)
        for kind in np.unique(width).tolist():
            own = np.flatnonzero(width == kind)
            splits, view, code_of = self._splits_of(int(kind), executions[0].recompute)
            row_bytes = 8 * int(np.prod(view.counts.shape[1:]))
            step = max(16, min(MOST_ROWS, PIECE_BYTES // row_bytes))
            for start in range(0, len(own), step):
                index = own[start : start + step]
                table = replace(
                    self.space.table.rows(geometry[index]), executions=executions, execution=code[index],
                    splits=splits, split=code_of[self.space.pipeline[geometry[index]]],
                )  # fmt: skip
                yield Piece(question=self.question, rows=rows[index], table=table, view=view)

    def _splits_of(self, kind: int, recompute: Recompute) -> tuple[SplitTable, StageView, Ints]:
        """Splits of the pipelines of one width, their view, and the split of each pipeline."""
        key = (kind, recompute_code(recompute))
        if key not in self._splits:
            vpp = np.array([pipeline.vpp for pipeline in self.space.pipelines])
            own = np.flatnonzero((self._width(vpp) == kind) | (kind == ANY_WIDTH))
            pipelines = [self.space.pipelines[i] for i in own.tolist()]
            splits, codes = split_table(self.question.model, [(p.pp, p.vpp, p, recompute) for p in pipelines])
            code_of = np.zeros(len(vpp), dtype=np.int64)
            code_of[own] = codes
            self._splits[key] = splits, distinct_stages(splits), code_of
        return self._splits[key]

    @staticmethod
    def _width(vpp: Ints) -> Ints:
        return np.digitize(vpp, np.array(WIDTHS), right=True)

    def together(self, rows: Ints, codes: Ints, executions: tuple[Execution, ...]) -> LayoutTable:
        """One table of rows under several executions (`codes` index them), with all their splits."""
        kinds = {recompute_code(e.recompute): e.recompute for e in reversed(executions)}
        kind_of = np.array([list(kinds).index(recompute_code(e.recompute)) for e in executions])
        wanted = self.space.pipeline[rows] * len(kinds) + kind_of[codes]
        distinct, split = np.unique(wanted, return_inverse=True)
        asked = []
        for code in distinct.tolist():
            pipeline = self.space.pipelines[code // len(kinds)]
            asked.append((pipeline.pp, pipeline.vpp, pipeline, list(kinds.values())[code % len(kinds)]))
        splits, of_asked = split_table(self.question.model, asked)
        return replace(
            self.space.table.rows(rows), execution=codes, executions=executions, splits=splits,
            split=of_asked[split],
        )  # fmt: skip
