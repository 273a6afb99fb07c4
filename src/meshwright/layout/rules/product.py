"""Checking a table of layouts under many executions: a rule is worked out once for all that look alike to it.

Two executions look alike to a rule when they agree in every option that it read. What a rule reads is
watched while it runs; a rule is a function of what it reads, so that nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from meshwright.layout.rules import effective, sources, versions
from meshwright.layout.rules.mask import DEGREES, broken_rows
from meshwright.layout.rules.registry import ALL_RULES
from meshwright.layout.rules.rule import Rule
from meshwright.layout.rules.view import View
from meshwright.layout.table import Bools, Ints, LayoutTable

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Job, Stack
    from meshwright.model.spec import Model

ABSENT = "absent"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """Which of N layouts can start under which of X executions.

    Layouts that no rule tells apart under any of them are one class.

    of_row   [N] class of each layout; first  [C] a layout of each class; size  [C] how many are of it
    legal    [X, C] whether it can start
    broken   {rule: [X, C] whether it is refused by this rule}
    """

    of_row: Ints
    first: Ints
    size: Ints
    legal: Bools
    broken: Mapping[str, Bools]

    def refused(self, tried: Bools) -> dict[str, int]:
        """How many of the layouts that are tried each rule refuses. tried  [X, C]"""
        counts = {name: int((tried & rows).sum(axis=0) @ self.size) for name, rows in self.broken.items()}
        return {name: count for name, count in counts.items() if count}


def legality(
    model: Model, cluster: Cluster | None, job: Job, table: LayoutTable, stack: Stack,
    executions: Sequence[Execution], apart: Sequence[Bools] = (),
) -> Legality:  # fmt: skip
    """Every layout of a table under every execution, as `legal_mask` finds them one execution at a time.

    apart  [N] masks in which all layouts of a class shall agree
    """
    base = sources.collect(layout=None, model=model, cluster=cluster, job=job, execution=None)
    base |= {"pipeline_split": "automatic"} | {name: getattr(table, c) for name, c in DEGREES.items()}
    date = versions.code_date(stack.framework, stack.framework_version, stack.release)
    views = _Views(base, [sources.execution_options(one, model) for one in executions], stack, date, model)
    found: dict[str, tuple[list[Bools], Ints]] = {}
    nowhere = np.zeros(len(executions), dtype=np.int64)
    for rule in ALL_RULES:
        if not rule.mask:
            continue
        if rule.per_execution:
            found[rule.id] = views.worked_out(partial(_refuses, rule, len(table)))
        else:
            found[rule.id] = [broken_rows(rule, views.bare, len(table))], nowhere
    found = {name: pair for name, pair in found.items() if any(rows.any() for rows in pair[0])}
    columns = [rows for each, _ in found.values() for rows in each]
    of_row, first = _classes([*columns, *apart], len(table))
    broken = {name: np.stack(each)[:, first][of] for name, (each, of) in found.items()}
    legal = np.ones((len(executions), len(first)), dtype=bool)
    for rows in broken.values():
        legal &= ~rows
    size = np.bincount(of_row, minlength=len(first))
    return Legality(of_row=of_row, first=first, size=size, legal=legal, broken=broken)


def _refuses(rule: Rule, rows: int, view: View) -> Bools:
    return broken_rows(rule, view, rows)


def _classes(columns: Sequence[Bools], rows: int) -> tuple[Ints, Ints]:
    """Rows that agree in every column: the class of each, and the first row of each class."""
    distinct = list({column.tobytes(): column for column in columns}.values())
    if not distinct or not rows:
        return np.zeros(rows, dtype=np.int64), np.zeros(min(rows, 1), dtype=np.int64)
    packed = np.ascontiguousarray(np.packbits(np.stack(distinct, axis=1), axis=1))
    codes = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    return np.asarray(of_row, dtype=np.int64), np.asarray(first, dtype=np.int64)


class _Watched(Mapping[str, Any]):
    """A mapping that notes which names are read."""

    def __init__(self, values: Mapping[str, Any], seen: set[str]) -> None:
        self.values_, self.seen = values, seen

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        self.seen.update(self.values_)
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


class _Views:
    """The views of a table under several executions, made as far as they are needed."""

    def __init__(
        self, base: Mapping[str, Any], said: list[dict[str, Any]], stack: Stack, date: str, model: Model
    ) -> None:
        self.base, self.said, self.stack, self.date, self.model = base, said, stack, date, model
        self.options: dict[int, dict[str, Any]] = {}
        self.bare = self._view(base, effective.effective(base, stack.framework, date)[0], set())
        self.codes = self._codes()
        classes, _, self.read_by_filling = self._closure(self._filled, frozenset())
        self.written = frozenset(
            name for name in {n for _, names in classes for n in names} if _varies(name, classes)
        )

    def _view(self, said: Mapping[str, Any], options: Mapping[str, Any], seen: set[str]) -> View:
        return View(
            options=_Watched(options, seen), said=_Watched(said, seen), framework=self.stack.framework,
            code_date=self.date, model=self.model,
        )  # fmt: skip

    def _codes(self) -> dict[str, Ints]:
        """Of each option in which executions differ, a number for each value. {name: [X]}"""
        names = sorted({name for row in self.said for name in row})
        codes: dict[str, Ints] = {}
        for name in names:
            numbers: dict[str, int] = {}
            values = [repr(row.get(name, ABSENT)) for row in self.said]
            codes[name] = np.array([numbers.setdefault(value, len(numbers)) for value in values])
        return {name: code for name, code in codes.items() if code.any()}

    def _filled(self, number: int, seen: set[str]) -> tuple[dict[str, Any], set[str]]:
        """Effective options of an execution, and which of them are not as they were said or by default."""
        said = {**self.base, **self.said[number]}
        options = effective.effective(said, self.stack.framework, self.date, seen)[0]
        plain = effective.merged(said, self.stack.framework)
        return options, {name for name, value in dict.items(options) if value is not plain.get(name)}

    def worked_out(self, rule: Callable[[View], Result]) -> tuple[list[Result], Ints]:
        """The distinct results of a rule, and which of them each execution has. [X]"""

        def evaluate(number: int, seen: set[str]) -> Result:
            said = {**self.base, **self.said[number]}
            if number not in self.options:
                self.options[number] = effective.effective(said, self.stack.framework, self.date)[0]
            found = rule(self._view(said, self.options[number], seen))
            if seen & self.written:
                seen |= self.read_by_filling
            return found

        results, of, _ = self._closure(evaluate, frozenset())
        return results, of

    def _closure(
        self, evaluate: Callable[[int, set[str]], Result], names: frozenset[str]
    ) -> tuple[list[Result], Ints, frozenset[str]]:
        """Results by what is read: grow the names until no result reads another one."""
        known: dict[int, Result] = {}
        while True:
            first, of = self._groups(names)
            grown = names
            for number in first.tolist():
                if number not in known:
                    seen: set[str] = set()
                    known[number] = evaluate(number, seen)
                    grown |= seen & self.codes.keys()
            if grown == names:
                return [known[number] for number in first.tolist()], of, names
            names = grown

    def _groups(self, names: frozenset[str]) -> tuple[Ints, Ints]:
        """Executions that agree in some options: the first of each group, and the group of each. [X]"""
        if not names or not self.said:
            return np.zeros(min(len(self.said), 1), dtype=np.int64), np.zeros(len(self.said), dtype=np.int64)
        rows = np.stack([self.codes[name] for name in sorted(names)], axis=1)
        _, first, of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return np.asarray(first, dtype=np.int64), np.asarray(of, dtype=np.int64).ravel()


def _varies(name: str, classes: Sequence[tuple[Mapping[str, Any], set[str]]]) -> bool:
    """Whether filling in gives an option different values."""
    first = classes[0][0].get(name, ABSENT)
    return any(not np.array_equal(first, options.get(name, ABSENT)) for options, _ in classes)
