"""Checking a whole table of layouts at once, with the conditions of the single rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.layout.rules import effective, sources, versions
from meshwright.layout.rules.registry import ALL_RULES
from meshwright.layout.rules.rule import Rule
from meshwright.layout.rules.view import Undecided, View
from meshwright.layout.table import Bools, LayoutTable

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Job, Stack
    from meshwright.model.spec import Model

DEGREES = {
    "world_size": "world",
    "global_batch_size": "gbs",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "micro_batch_size": "mbs",
    "sequence_parallel": "sp",
}


def legal_mask(
    model: Model,
    cluster: Cluster | None,
    job: Job,
    table: LayoutTable,
    stack: Stack,
    *,
    automatic_split: bool = True,
) -> tuple[Bools, dict[str, int]]:
    """Which rows of a table can start [N], and how many rows each rule refuses, by rule id.

    A row that several rules refuse counts for each of them. `world` and `gbs` are the table's own.
    automatic_split: layers that do not divide get a layout, so PP and VPP need not divide them.
    """
    base = sources.collect(layout=None, model=model, cluster=cluster, job=job, execution=None)
    base |= {"pipeline_split": "automatic"} if automatic_split else {}
    legal = np.ones(len(table), dtype=bool)
    reasons: dict[str, int] = {}
    date = versions.code_date(stack.framework, stack.framework_version, stack.release)

    def refuse(rules: list[Rule], options: Mapping[str, Any], rows: Any) -> None:
        view = table_view({**base, **options}, table, rows, stack.framework, date, model)
        for rule in rules:
            broken = broken_rows(rule, view, len(view.tp))
            if broken.any():
                reasons[rule.id] = reasons.get(rule.id, 0) + int(broken.sum())
                legal[rows] &= ~broken

    everywhere = [rule for rule in ALL_RULES if rule.mask and not rule.per_execution]
    refuse(everywhere, {}, slice(None))
    by_execution = [rule for rule in ALL_RULES if rule.mask and rule.per_execution]
    order = np.argsort(table.execution, kind="stable")
    codes, starts = np.unique(table.execution[order], return_index=True)
    for code, rows in zip(codes, np.split(order, starts[1:]), strict=True):
        options = sources.execution_options(table.executions[int(code)], model)
        refuse(by_execution, options, rows)
    return legal, reasons


def table_view(
    options: Mapping[str, Any], table: LayoutTable, rows: Any, framework: Any, date: str, model: Model
) -> View:
    """A view whose degrees are columns of the table."""
    columns = {name: getattr(table, column)[rows] for name, column in DEGREES.items()}
    said = {**options, **columns}
    values, fills = effective.effective(said, framework, date)
    return View(options=values, said=said, framework=framework, code_date=date, model=model, fills=fills)


def broken_rows(rule: Rule, view: View, rows: int) -> Bools:
    """Rows that break a rule [rows]; none where it does not bind or cannot be decided."""
    if not rule.binds(view):
        return np.zeros(rows, dtype=bool)
    try:
        return np.broadcast_to(np.asarray(rule.broken(view), dtype=bool), (rows,))
    except Undecided:
        return np.zeros(rows, dtype=bool)
