"""The space of layouts: every legal combination of the axes that nobody fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.question import Question
from meshwright.facts import load_json
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.pipeline import PipelineLayout, default_pipeline, split_table
from meshwright.layout.table import Bools, Ints, LayoutTable, SplitTable
from meshwright.model.spec import Mla, Model

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What a search may vary: for each axis its values, or None to let the search choose.

    execution  the flags that candidates share
    recompute  recompute sets to try
    flags      {field of Execution: values to try}; a value that changes nothing on a layout (a CP
               communication at cp 1) is tried there once only
    pipeline   a pipeline layout that fixes pp and vpp
    """

    tp: Values | None = None
    pp: Values | None = None
    vpp: Values | None = None
    cp: Values | None = None
    ep: Values | None = None
    etp: Values | None = None
    mbs: Values | None = None
    sp: bool | None = None
    execution: Execution = field(default_factory=Execution)
    recompute: tuple[Recompute, ...] | None = None
    flags: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    pipeline: PipelineLayout | None = None


def recompute_choices(model: Model) -> tuple[Recompute, ...]:
    """Recompute sets worth trying on a model, from none to full."""
    sets = load_json("meshwright.planner", "space.json")["recompute"]
    name = "dense"
    if model.is_moe:
        name = "mla" if any(isinstance(kind.mixer, Mla) for kind in model.kinds) else "moe"
    return tuple(
        Recompute(granularity=row["granularity"], modules=tuple(row.get("modules", ()))) for row in sets[name]
    )


def free_flags() -> dict[str, tuple[object, ...]]:
    """Execution flags that a search varies when nobody fixes them."""
    return {name: tuple(values) for name, values in _table()["flags"].items() if name != "source"}


def executions(question: Question, axes: Axes) -> tuple[Execution, ...]:
    """The distinct executions of the space: the base flags with each recompute set and each free flag."""
    sets = axes.recompute if axes.recompute is not None else recompute_choices(question.model)
    found = [replace(axes.execution, recompute=recompute) for recompute in sets]
    for name, values in axes.flags.items():
        found = [replace(execution, **{name: value}) for execution in found for value in values]  # type: ignore[arg-type]
    return tuple(dict.fromkeys(found))


def _matters(name: str, table: LayoutTable) -> Bools:
    """Rows on which a flag changes anything. [N]"""
    match name:
        case "cp_comm":
            return np.asarray(table.cp > 1)
        case "dispatcher":
            return np.asarray(table.ep > 1)
        case "fsdp":
            return np.asarray((table.pp == 1) & (table.dp > 1))
        case "distributed_optimizer":
            return np.asarray(table.dp * table.cp > 1)
    return np.ones(len(table), dtype=bool)


def geometries(question: Question, axes: Axes) -> LayoutTable:
    """Every layout whose grids divide the world and whose batch is whole; one execution, to be crossed later.

    The rules of the engine are applied by the caller; here only the arithmetic that keeps the table small.
    """
    world = question.cluster.world
    tp, pp, cp, ep, etp = _grid(
        _values(axes.tp, _tp_values(question)),
        _values(axes.pp, _pp_values(question, axes)),
        _values(axes.cp, _cp_values(question)),
        _values(axes.ep, _divisors(question.model.num_experts) if question.model.is_moe else [1]),
        _values(axes.etp, _table()["etp"] if question.model.is_moe else [1]),
    )
    fits = world % (pp * np.lcm(tp * cp, ep * etp)) == 0
    tp, pp, cp, ep, etp = (x[fits] for x in (tp, pp, cp, ep, etp))
    row, mbs = _cross(len(tp), _values(axes.mbs, _table()["mbs"]))
    tp, pp, cp, ep, etp = (x[row] for x in (tp, pp, cp, ep, etp))
    dp = world // (tp * pp * cp)
    whole = question.job.global_batch % (mbs * dp) == 0
    tp, pp, cp, ep, etp, mbs = (x[whole] for x in (tp, pp, cp, ep, etp, mbs))
    vpp_of = {int(p): _vpp_values(question.model, int(p), axes) for p in np.unique(pp)}
    counts = np.array([len(vpp_of[int(p)]) for p in pp], dtype=np.int64)
    row = np.repeat(np.arange(len(pp)), counts)
    vpp = np.array([v for p in pp for v in vpp_of[int(p)]], dtype=np.int64)
    return _assemble(question, axes, [x[row] for x in (tp, pp, cp, ep, etp, mbs)], vpp)


def _assemble(question: Question, axes: Axes, columns: Sequence[Ints], vpp: Ints) -> LayoutTable:
    tp, pp, cp, ep, etp, mbs = columns
    sp = tp > 1 if axes.sp is None else np.full(len(tp), axes.sp)
    execution = (replace(axes.execution, recompute=Recompute()),)
    splits, codes = _splits(question.model, axes, pp, vpp, execution, np.zeros(len(pp), dtype=np.int64))
    n = len(tp)
    return LayoutTable(
        world=np.full(n, question.cluster.world),
        gbs=np.full(n, question.job.global_batch),
        tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, mbs=mbs, sp=sp,
        execution=np.zeros(n, dtype=np.int64), executions=execution, split=codes, splits=splits,
    )  # fmt: skip


def with_executions(
    question: Question, axes: Axes, table: LayoutTable, wanted: tuple[Execution, ...]
) -> LayoutTable:
    """Every row of a table under every execution that makes a difference to it, with its pipeline split."""
    rows = []
    for one in wanted:
        apart = [name for name, values in axes.flags.items() if getattr(one, name) != values[0]]
        keep = np.ones(len(table), dtype=bool)
        for name in apart:
            keep &= _matters(name, table)
        rows.append(np.flatnonzero(keep))
    row = np.concatenate(rows)
    execution = np.repeat(np.arange(len(wanted)), [len(r) for r in rows])
    crossed = table.rows(row)
    splits, codes = _splits(question.model, axes, crossed.pp, crossed.vpp, wanted, execution)
    return replace(crossed, execution=execution, executions=wanted, split=codes, splits=splits)


def _splits(
    model: Model, axes: Axes, pp: Ints, vpp: Ints, wanted: Sequence[Execution], execution: Ints
) -> tuple[SplitTable, Ints]:
    """One split for each distinct (pp, vpp, recompute)."""
    code = (pp * 4096 + vpp) * len(wanted) + execution
    _, first, of_row = np.unique(code, return_index=True, return_inverse=True)
    asked = [(int(pp[i]), int(vpp[i]), axes.pipeline, wanted[int(execution[i])].recompute) for i in first]
    splits, codes = split_table(model, asked)
    return splits, codes[of_row]


def _table() -> Any:
    return load_json("meshwright.planner", "space.json")


def _values(given: Values | None, free: Iterable[int]) -> NDArray[np.int64]:
    return np.array(sorted(set(free if given is None else given)), dtype=np.int64)


def _grid(*axes: Ints) -> list[Ints]:
    return [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]


def _cross(rows: int, values: Ints) -> tuple[Ints, Ints]:
    return np.repeat(np.arange(rows), len(values)), np.tile(values, rows)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _tp_values(question: Question) -> list[int]:
    """TP stays inside one NVLink domain, or inside a node where there is none."""
    limit = max(question.cluster.nvlink_domain, question.cluster.gpus_per_node)
    return [tp for tp in _table()["tp"] if tp <= limit]


def _cp_values(question: Question) -> list[int]:
    shortest = _table()["min_tokens_per_cp_rank"]["value"]
    return [cp for cp in _table()["cp"] if cp == 1 or question.job.seq_length // cp >= shortest]


def _pp_values(question: Question, axes: Axes) -> list[int]:
    if axes.pipeline is not None:
        return [axes.pipeline.pp]
    most = min(question.model.num_layers, question.cluster.world)
    return [pp for pp in range(1, most + 1) if question.cluster.world % pp == 0]


def _vpp_values(model: Model, pp: int, axes: Axes) -> list[int]:
    """Interleaving degrees to try: those that divide the layers of a stage, else a few automatic splits."""
    if axes.pipeline is not None:
        return [axes.pipeline.vpp]
    if axes.vpp is not None:
        return [v for v in axes.vpp if default_pipeline(model, pp, v) is not None]
    if pp == 1:
        return [1]
    most = int(_table()["max_vpp"])
    if model.num_layers % pp == 0:
        choices = [v for v in _divisors(model.num_layers // pp) if v <= most]
    else:
        choices = [v for v in _table()["uneven_vpp"] if pp * v <= model.num_layers]
    return [v for v in choices if default_pipeline(model, pp, v) is not None]
