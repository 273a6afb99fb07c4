"""The execution flags that a search varies: recompute sets, and the flags that are free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
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
FLEX = ("deepep", "hybridep")
"""Backends of the flex dispatcher, which needs more than one expert rank."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What trades time for memory: layers computed again, and the part of the optimizer in host memory."""

    recompute: Recompute
    offload: float = 0.0

    @classmethod
    def of(cls, execution: Execution) -> Saving:
        return cls(recompute=execution.recompute, offload=execution.optimizer_offload)

    def applied(self, execution: Execution) -> Execution:
        return replace(execution, recompute=self.recompute, optimizer_offload=self.offload)

    def is_lighter(self, other: Saving) -> bool:
        """Whether it provably costs no more time than the other."""
        return self.offload <= other.offload and is_lighter(self.recompute, other.recompute)


def is_lighter(one: Recompute, other: Recompute) -> bool:
    """Whether `one` provably computes no more again than `other`."""
    if one.granularity == "none" or other == FULL:
        return True
    if one.granularity == other.granularity == "selective":
        return set(one.modules) <= set(other.modules)
    blocks = one.method == other.method == "block" and "full" == one.granularity == other.granularity
    return blocks and (one.num_layers or 0) <= (other.num_layers or 0)


def savings_of(model: Model, axes: Axes) -> tuple[Saving, ...]:
    """The recompute sets of the space, with each offloaded part of the optimizer, lightest first."""
    sets = axes.recompute if axes.recompute is not None else recompute_choices(model)
    shares = axes.flags.get("optimizer_offload", (axes.execution.optimizer_offload,))
    return tuple(
        Saving(recompute=one, offload=share)
        for share in sorted(float(share) for share in shares)  # type: ignore[arg-type]
        for one in sets
    )


def free_flags(execution: Execution | None = None, free: Iterable[str] = ()) -> dict[str, tuple[object, ...]]:
    """Execution flags that a search varies when nobody fixes them, each with its base value first.

    execution  the base; where it overlaps expert communication or graphs kernels, the search also tries
               without, since both cost memory and are not legal everywhere
    free       further flags to vary: cp_comm, dispatcher, overlaps, optimizer_offload, cuda_graphs,
               distributed_optimizer; `all` is the first four
    """
    wanted = tuple(free)
    base = execution or Execution()
    known = [name for name in table()["freed"] if name != "source"] + ["overlaps"]
    if "all" in wanted:
        wanted = (*(name for name in wanted if name != "all"), *table()["all"])
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One combination of the flags (its recompute is set later), and the layouts it is for.

    experts  None: all layouts; True: those that exchange tokens between expert ranks; False: the others
    """

    execution: Execution
    experts: bool | None = None


def combinations_of(axes: Axes) -> tuple[Candidate, ...]:
    """The base execution with every combination of the free flags.

    Where tokens go to no other rank (ep 1), the engine refuses the flex dispatchers and the overlap of
    their exchange; there the same flags without them are tried.
    """
    names = [item.name for item in fields(Execution)]
    found = [axes.execution]
    for name, values in axes.flags.items():
        if name not in names:
            raise QuestionError(f"{name[:40]!r} is not a flag of the execution")
        if name != "optimizer_offload":  # a saving, see `savings_of`
            found = [replace(one, **{name: value}) for one in found for value in values]  # type: ignore[arg-type]
    found = list(dict.fromkeys(found))
    alone = [one for one in dict.fromkeys(map(_without_exchange, found)) if one not in found]
    return (
        *(Candidate(execution=one, experts=True if _without_exchange(one) != one else None) for one in found),
        *(Candidate(execution=one, experts=False) for one in alone),
    )


def _without_exchange(one: Execution) -> Execution:
    dispatcher = "alltoall" if one.dispatcher in FLEX else one.dispatcher
    return replace(one, dispatcher=dispatcher, overlaps=one.overlaps - {"ep"})


def differs(candidate: Candidate, axes: Axes, rows: LayoutTable) -> Bools:
    """Rows on which the flags are worth trying. [N]

    A value is tried only where it changes something. Sharding by FSDP is left to layouts without a
    pipeline, since nobody ships the two together.
    """
    one = candidate.execution
    keep = np.ones(len(rows), dtype=bool)
    if candidate.experts is not None:
        keep &= (rows.ep > 1) == candidate.experts
    for name, values in axes.flags.items():
        keep &= _matters(name, one, values, rows)
    return keep


def _matters(name: str, one: Execution, values: tuple[object, ...], rows: LayoutTable) -> Bools:
    """Rows on which the value that `one` has of a flag is worth trying. [N]"""
    everywhere = np.ones(len(rows), dtype=bool)
    match name:
        case "fsdp":
            shards = (rows.pp == 1) & (rows.dp * rows.cp > 1)
            return np.asarray(shards if one.fsdp else ~shards | (False in values))
        case "overlaps":
            return _overlaps_matter(one, values, rows)
        case "cp_comm" if one.cp_comm != values[0]:
            return np.asarray(rows.cp > 1)
        case "dispatcher" if one.dispatcher != next((v for v in values if v not in FLEX), None):
            return np.asarray(rows.ep > 1)
        case "distributed_optimizer" if one.distributed_optimizer != values[0]:
            return np.asarray((rows.dp * rows.cp > 1) & (not one.fsdp))
    return everywhere


def _overlaps_matter(one: Execution, values: tuple[object, ...], rows: LayoutTable) -> Bools:
    """An overlap that some values have and others lack is tried only where there is such traffic. [N]"""
    sets = [value for value in values if isinstance(value, frozenset)]
    varied = frozenset.union(*sets) - frozenset.intersection(*sets)
    degree = {"tp": rows.tp, "ep": rows.ep, "pp": rows.pp, "dp": rows.dp * rows.cp}
    keep = np.ones(len(rows), dtype=bool)
    for kind in sorted(varied & one.overlaps):
        keep &= degree[kind] > 1
    return keep
