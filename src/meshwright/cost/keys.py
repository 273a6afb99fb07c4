"""Distinct layer keys of a table: layer costs are computed once for each, however many rows share it.

The cost of one layer depends on (tp, cp, ep, etp, mbs, sp, execution) and on nothing else of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.job.spec import Execution
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable

_FIELDS = ("tp", "cp", "ep", "etp", "mbs", "sp", "execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Q distinct layer keys; every array is [Q].

    What no layer reads of an execution (fsdp, optimizer_offload) is not to be read from a key.
    """

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

    @property
    def expert_imbalance(self) -> Floats:
        """Tokens of the fullest expert-parallel rank over the balanced share: at most all of them."""
        return np.minimum(self.number(lambda e: e.expert_imbalance), self.ep)

    def expert_load(self) -> Floats:
        """The same after tokens beyond the capacity factor are dropped (or padded up to it)."""
        capacity = self.number(lambda e: e.capacity_factor or 0.0)
        return np.asarray(np.where(capacity > 0, capacity, self.expert_imbalance))

    def recomputes(self, module: str) -> Bools:
        """Where selective recompute includes `module`."""
        return self.flag(lambda e: e.recompute.granularity == "selective" and module in e.recompute.modules)

    def offloads(self, module: str) -> Bools:
        """Where fine-grained offloading moves the input of `module` to host memory."""
        return self.flag(lambda e: module in e.offload_modules)


def distinct_keys(table: LayoutTable) -> Keys:
    """The distinct layer keys of a table, and the key of each row.

    Executions that differ only in what no layer reads share their keys.
    """
    seen: dict[Execution, int] = {}
    alike = [
        seen.setdefault(replace(one, fsdp=False, optimizer_offload=0.0), number)
        for number, one in enumerate(table.executions)
    ]
    columns = {name: getattr(table, name) for name in _FIELDS}
    columns["execution"] = np.array(alike, dtype=np.int64)[table.execution]
    first, of_row = distinct_rows(list(columns.values()))
    return Keys(
        **{name: column[first] for name, column in columns.items()}, executions=table.executions,
        of_row=of_row,
    )  # fmt: skip


LARGEST_CODE = 1 << 22
"""Codes below this are told apart by a look-up table; sorting them would take longer."""


def distinct_rows(columns: Sequence[Ints | Bools]) -> tuple[Ints, Ints]:
    """Rows with different values: the first of each, and for every row which of them it equals.

    Columns are non-negative whole numbers, all of one length.
    """
    code, count = _ranked(np.asarray(columns[0], dtype=np.int64))
    for column in columns[1:]:
        own, more = _ranked(np.asarray(column, dtype=np.int64))
        code, count = _ranked(code * more + own)
    first = np.zeros(count, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return first, code


def _ranked(values: Ints) -> tuple[Ints, int]:
    """Values renumbered 0, 1, ... in their own order, and how many there are."""
    most = int(values.max(initial=-1)) + 1
    if most > LARGEST_CODE:
        distinct, code = np.unique(values, return_inverse=True)
        return np.asarray(code, dtype=np.int64), len(distinct)
    there = np.zeros(most, dtype=bool)
    there[values] = True
    rank: Ints = np.cumsum(there) - 1
    return rank[values], int(rank[-1]) + 1 if most else 0
