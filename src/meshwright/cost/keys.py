"""Distinct layer keys of a table: layer costs are computed once for each, however many rows share it.

The cost of one layer depends on (tp, cp, ep, etp, mbs, sp, execution) and on nothing else of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meshwright.job.spec import Execution
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable

_FIELDS = ("tp", "cp", "ep", "etp", "mbs", "sp", "execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Q distinct layer keys; every array is [Q]."""

    tp: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    mbs: Ints
    sp: Bools
    execution: Ints
    executions: tuple[Execution, ...]
    of_row: Ints
    """[N] the key of each row of the table."""

    def __len__(self) -> int:
        return len(self.tp)

    def flag(self, read: Callable[[Execution], bool]) -> Bools:
        """One boolean a key, read from its execution."""
        values: Bools = np.array([read(e) for e in self.executions], dtype=bool)[self.execution]
        return values

    def number(self, read: Callable[[Execution], float]) -> Floats:
        """One number a key, read from its execution."""
        values: Floats = np.array([read(e) for e in self.executions], dtype=float)[self.execution]
        return values

    def recomputes(self, module: str) -> Bools:
        """Where selective recompute includes `module`."""
        return self.flag(lambda e: e.recompute.granularity == "selective" and module in e.recompute.modules)

    def offloads(self, module: str) -> Bools:
        """Where fine-grained offloading moves the input of `module` to host memory."""
        return self.flag(lambda e: module in e.offload_modules)


def distinct_keys(table: LayoutTable) -> Keys:
    """The distinct layer keys of a table, and the key of each row."""
    code = np.zeros(len(table), dtype=np.int64)
    for name in _FIELDS:
        _, position = np.unique(getattr(table, name), return_inverse=True)
        code = code * (int(position.max(initial=0)) + 1) + position
    _, first, of_row = np.unique(code, return_index=True, return_inverse=True)
    columns = {name: getattr(table, name)[first] for name in _FIELDS}
    return Keys(**columns, executions=table.executions, of_row=of_row)
