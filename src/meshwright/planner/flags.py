"""The execution flags that a search varies: recompute sets, and the flags that are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.errors import QuestionError, did_you_mean
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.table import Bools, LayoutTable
from meshwright.model.spec import Mla, Model
from meshwright.planner.values import table

if TYPE_CHECKING:
    from meshwright.planner.space import Axes

FULL = Recompute(granularity="full")


def recompute_choices(model: Model, *, blocks: bool = True) -> tuple[Recompute, ...]:
    """Recompute sets worth trying, from none to full; `blocks`: full recompute of some layers too."""
    name = "dense"
    if model.is_moe:
        name = "mla" if any(isinstance(kind.mixer, Mla) for kind in model.kinds) else "moe"
    sets = tuple(
        Recompute(granularity=row["granularity"], modules=tuple(row.get("modules", ())))
        for row in table()["recompute"][name]
    )
    if not blocks:
        return sets
    layers = [n for n in table()["block_layers"]["values"] if n < model.num_layers]
    return (
        *sets[:-1],
        *(Recompute(granularity="full", method="block", num_layers=n) for n in layers),
        sets[-1],
    )


def is_lighter(one: Recompute, other: Recompute) -> bool:
    """Whether `one` provably computes no more again than `other`."""
    if one.granularity == "none" or other == FULL:
        return True
    if one.granularity == other.granularity == "selective":
        return set(one.modules) <= set(other.modules)
    blocks = one.method == other.method == "block" and "full" == one.granularity == other.granularity
    return blocks and (one.num_layers or 0) <= (other.num_layers or 0)


def free_flags(execution: Execution | None = None, free: Iterable[str] = ()) -> dict[str, tuple[object, ...]]:
    """Execution flags that a search varies when nobody fixes them, each with its base value first.

    execution  the base; where it overlaps expert communication or graphs kernels, the search also tries
               without, since both cost memory and are not legal everywhere
    free       further flags to vary: dispatcher, overlaps, cuda_graphs, distributed_optimizer,
               optimizer_offload, cpu_offload_layers, cp_comm; `all` frees every one
    """
    wanted = tuple(free)
    base = execution or Execution()
    known = [name for name in table()["freed"] if name != "source"] + ["overlaps"]
    if "all" in wanted:
        wanted = tuple(known)
    for name in wanted:
        if name not in known:
            raise QuestionError(
                f"{name[:40]!r} cannot be freed{did_you_mean(name[:40], known) or '.'} "
                f"Known: {', '.join(known)}, all"
            )
    found: dict[str, tuple[object, ...]] = {
        name: tuple(values) for name, values in table()["flags"].items() if name != "source"
    }
    if execution is not None:
        if "ep" in base.overlaps:
            found["overlaps"] = (base.overlaps, base.overlaps - {"ep"})
        if base.cuda_graphs != "none":
            found["cuda_graphs"] = (base.cuda_graphs, "none")
    found |= {name: tuple(table()["freed"][name]) for name in wanted if name != "overlaps"}
    if "overlaps" in wanted:
        found["overlaps"] = _subsets(base.overlaps | {"tp", "dp", "ep"})
    return {name: tuple(dict.fromkeys((getattr(base, name), *values))) for name, values in found.items()}


def _subsets(kinds: frozenset[Any]) -> tuple[frozenset[Any], ...]:
    """Every subset, the whole set first; gradients and parameters overlap in all of them."""
    others = sorted(kinds - {"dp"})
    kept = kinds & {"dp"}
    return tuple(
        frozenset(chosen) | kept
        for size in range(len(others), -1, -1)
        for chosen in combinations(others, size)
    )


def combinations_of(axes: Axes) -> Iterator[Execution]:
    """The base execution with every combination of the free flags."""
    names = [item.name for item in fields(Execution)]
    found = [axes.execution]
    for name, values in axes.flags.items():
        if name not in names:
            raise QuestionError(f"{name[:40]!r} is not a flag of the execution")
        found = [replace(one, **{name: value}) for one in found for value in values]  # type: ignore[arg-type]
    return iter(dict.fromkeys(found))


def recompute_sets(model: Model, axes: Axes) -> tuple[Recompute, ...]:
    """The recompute sets of the space."""
    return axes.recompute if axes.recompute is not None else recompute_choices(model)


def executions(model: Model, axes: Axes) -> tuple[Execution, ...]:
    """The distinct executions of the space: every combination of flags with every recompute set."""
    sets = recompute_sets(model, axes)
    return tuple(replace(one, recompute=recompute) for one in combinations_of(axes) for recompute in sets)


def differs(one: Execution, axes: Axes, rows: LayoutTable) -> Bools:
    """Rows on which the flags are worth trying. [N]

    A value beyond the first of its list is tried only where it changes something; sharding by FSDP is left
    to layouts without a pipeline, since nobody ships the two together.
    """
    keep = np.ones(len(rows), dtype=bool)
    for name, values in axes.flags.items():
        if name == "fsdp":
            shards = (rows.pp == 1) & (rows.dp * rows.cp > 1)
            keep &= shards if one.fsdp else ~shards | (False in values)
        elif getattr(one, name) != values[0]:
            keep &= _matters(name, one, values[0], rows)
    return keep


def _matters(name: str, one: Execution, first: object, rows: LayoutTable) -> Bools:
    """Rows on which a flag changes anything. [N]"""
    match name:
        case "cp_comm":
            return np.asarray(rows.cp > 1)
        case "dispatcher":
            return np.asarray(rows.ep > 1)
        case "distributed_optimizer":
            return np.asarray((rows.dp * rows.cp > 1) & (not one.fsdp))
        case "overlaps":
            degree = {"tp": rows.tp, "ep": rows.ep, "pp": rows.pp, "dp": rows.dp * rows.cp}
            apart = one.overlaps ^ (first if isinstance(first, frozenset) else frozenset())
            return np.asarray(np.all([degree[kind] > 1 for kind in sorted(apart)], axis=0))
    return np.ones(len(rows), dtype=bool)
