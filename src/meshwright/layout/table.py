"""Many layouts at once, as a struct of arrays: one array a degree, one entry a layout.

Cost functions are written over this table; one layout is a table with one row. What is ragged (the
contents of pipeline stages) lives in a deduplicated `SplitTable` beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.job.spec import Execution
from meshwright.layout.layout import DEGREES, Layout

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """The distinct pipeline splits of a table: what each rank's chunks hold.

    counts      [U, stages, chunks, kinds]  how many blocks of each kind a chunk holds; stages and
                chunks beyond a split's own pp and vpp are zero
    kinds       names of the last axis (see `stages.block_kinds`)
    stage_mask  [U, stages]  True where the stage exists
    layouts     the layout string of each split, in Megatron's notation
    """

    counts: NDArray[np.int16]
    kinds: tuple[str, ...]
    stage_mask: Bools
    layouts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTable:
    """N layouts. Every array is [N]; `executions[execution[i]]` are the flags of row i."""

    world: Ints
    gbs: Ints
    tp: Ints
    pp: Ints
    vpp: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    mbs: Ints
    sp: Bools
    execution: Ints
    executions: tuple[Execution, ...]
    split: Ints
    splits: SplitTable

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def dp(self) -> Ints:
        return self.world // (self.tp * self.pp * self.cp)

    @property
    def edp(self) -> Ints:
        return self.world // (self.pp * self.ep * self.etp)

    @property
    def num_microbatches(self) -> Ints:
        return self.gbs // (self.mbs * self.dp)

    def rows(self, index: Ints | slice) -> LayoutTable:
        """The chosen rows, sharing executions and splits."""
        return LayoutTable(
            world=self.world[index],
            gbs=self.gbs[index],
            **{name: getattr(self, name)[index] for name in (*DEGREES, "sp", "execution", "split")},
            executions=self.executions,
            splits=self.splits,
        )

    def chunks(self, size: int) -> Iterator[LayoutTable]:
        """The table in pieces of at most `size` rows."""
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def layout(self, row: int) -> Layout:
        """One row as a `Layout`."""
        return Layout(**{name: int(getattr(self, name)[row]) for name in DEGREES}, sp=bool(self.sp[row]))

    def flag(self, values: Sequence[object]) -> NDArray[np.generic]:
        """One value an execution, spread to one value a row."""
        return np.asarray(values)[self.execution]
