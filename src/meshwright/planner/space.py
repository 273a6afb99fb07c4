"""The space of layouts: every combination of the axes that nobody fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import DEGREES
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.split import default_costs
from meshwright.layout.table import Ints, LayoutTable, SplitTable
from meshwright.model.spec import Model
from meshwright.planner import values
from meshwright.planner.flags import free_flags, recompute_choices
from meshwright.planner.values import Degrees, Range, Values, table

__all__ = ["Axes", "Geometries", "Range", "free_flags", "geometries", "recompute_choices"]

Splits = Literal["default", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What a search may vary: for each axis its values, or None to let the search choose.

    bounds     {degree: range} for degrees that are left to the search
    sp         None: on where TP > 1 and the sequence divides over it
    execution  the flags that candidates share
    recompute  recompute sets to try
    flags      {field of Execution: values to try}; a value that changes nothing on a layout (a CP
               communication at cp 1) is tried there once only
    pipeline   a pipeline layout that fixes pp and vpp
    splits     both: where the automatic split balances the stages better than Megatron's even one,
               try it as well
    """

    tp: Values | None = None
    pp: Values | None = None
    vpp: Values | None = None
    cp: Values | None = None
    ep: Values | None = None
    etp: Values | None = None
    mbs: Values | None = None
    bounds: Mapping[str, Range] = field(default_factory=dict)
    sp: bool | None = None
    execution: Execution = field(default_factory=Execution)
    recompute: tuple[Recompute, ...] | None = None
    flags: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    pipeline: PipelineLayout | None = None
    splits: Splits = "default"

    @property
    def degrees(self) -> Degrees:
        """What is said about the degrees."""
        given = {name: getattr(self, name) for name in DEGREES}
        return Degrees(values=given, bounds=self.bounds, pipeline=self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometries:
    """Layouts without their execution flags, ordered so that those with equal layers are together.

    table      [N], without pipeline splits
    pipeline   [N] the pipeline layout of each row, as an index into `pipelines`
    """

    table: LayoutTable
    pipeline: Ints
    pipelines: tuple[PipelineLayout, ...]

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, index: Ints) -> Geometries:
        """The chosen rows."""
        return Geometries(
            table=self.table.rows(index), pipeline=self.pipeline[index], pipelines=self.pipelines
        )


NO_SPLITS = SplitTable(
    counts=np.zeros((0, 1, 1, 1), dtype=np.int16),
    kinds=(),
    stage_mask=np.zeros((0, 1), dtype=np.bool_),
    layouts=(),
)


def geometries(question: Question, axes: Axes) -> Geometries:
    """Every layout whose grids divide the world and whose batch is whole.

    The rules of the engine are applied by the caller; here only the arithmetic that keeps the table small.
    """
    world, said = question.cluster.world, axes.degrees
    tp, cp, ep, etp, pp = _grid(
        said.among("tp", lambda: values.tp_values(question)),
        said.among("cp", lambda: values.cp_values(question)),
        said.among("ep", lambda: values.ep_values(question)),
        said.among("etp", lambda: values.etp_values(question)),
        said.among("pp", lambda: [axes.pipeline.pp] if axes.pipeline else values.pp_values(question)),
    )
    fits = world % (pp * np.lcm(tp * cp, ep * etp)) == 0
    if axes.etp is None and question.model.is_moe:
        # releases before Megatron Core 0.19 train experts wrongly there (rule etp-equals-tp-without-ep)
        fits &= (ep > 1) | (etp == tp)
    tp, cp, ep, etp, pp = (x[fits] for x in (tp, cp, ep, etp, pp))
    sizes = said.among("mbs", lambda: values.mbs_values(question))
    row, mbs = np.repeat(np.arange(len(tp)), len(sizes)), np.tile(sizes, len(tp))
    dp = (world // (tp * cp * pp))[row]
    whole = question.job.global_batch % (mbs * dp) == 0
    row, mbs = row[whole], mbs[whole]
    columns = [x[row] for x in (tp, cp, ep, etp)] + [mbs, pp[row]]
    return _with_pipelines(question, axes, columns)


def _with_pipelines(question: Question, axes: Axes, columns: list[Ints]) -> Geometries:
    """Cross the degrees with the pipeline layouts of each pp."""
    *_, pp = columns
    pipelines: list[PipelineLayout] = []
    of_pp: dict[int, Ints] = {}
    for stages in np.unique(pp).tolist():
        own = pipelines_of(question.model, axes, int(stages))
        of_pp[int(stages)] = np.arange(len(pipelines), len(pipelines) + len(own))
        pipelines += own
    counts = np.array([len(of_pp[p]) for p in pp.tolist()], dtype=np.int64)
    row = np.repeat(np.arange(len(pp)), counts)
    pipeline = np.concatenate([of_pp[p] for p in pp.tolist()]) if len(row) else np.zeros(0, dtype=np.int64)
    tp, cp, ep, etp, mbs, pp = (x[row] for x in columns)
    vpp = np.array([p.vpp for p in pipelines], dtype=np.int64)[pipeline] if len(row) else pp
    order = np.lexsort((pipeline, pp, mbs, etp, ep, cp, tp))
    tp, cp, ep, etp, mbs, pp, vpp = (x[order] for x in (tp, cp, ep, etp, mbs, pp, vpp))
    n = len(tp)
    found = LayoutTable(
        world=np.full(n, question.cluster.world), gbs=np.full(n, question.job.global_batch),
        tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, mbs=mbs,
        sp=values.sp_values(question, tp, cp) if axes.sp is None else np.full(n, axes.sp),
        execution=np.zeros(n, dtype=np.int64), executions=(axes.execution,),
        split=np.zeros(n, dtype=np.int64), splits=NO_SPLITS,
    )  # fmt: skip
    return Geometries(table=found, pipeline=pipeline[order], pipelines=tuple(pipelines))


def pipelines_of(model: Model, axes: Axes, pp: int) -> list[PipelineLayout]:
    """The pipeline layouts to try with `pp` stages: for each vpp the default one, and a better split."""
    if axes.pipeline is not None:
        return [axes.pipeline] if axes.pipeline.pp == pp else []
    found = []
    for vpp in axes.degrees.among("vpp", lambda: values.vpp_values(model.num_layers, pp)).tolist():
        found += _splits_of(model, pp, int(vpp), both=axes.splits == "both")
    return found


def _splits_of(model: Model, pp: int, vpp: int, *, both: bool) -> list[PipelineLayout]:
    """Even where Megatron divides evenly, else automatic; with `both` a better automatic one as well."""
    if pp == 1:
        return [PipelineLayout.even(model.num_layers, 1, 1, len(model.mtp))] if vpp == 1 else []
    even = None
    if model.num_layers % (pp * vpp) == 0:
        even = PipelineLayout.even(model.num_layers, pp, vpp, len(model.mtp))
        if not both or model.is_hybrid:
            return [even]
    automatic = PipelineLayout.automatic(model, pp, vpp)
    if automatic is None:
        return [even] if even else []
    if even is None:
        return [automatic]
    gain = busiest(model, even) / busiest(model, automatic) - 1
    return [even, automatic] if gain > table()["uneven_gain"]["value"] else [even]


def busiest(model: Model, pipeline: PipelineLayout) -> float:
    """Load of the busiest stage, in decoder layers (the head weighs what its GEMM does)."""
    weights = default_costs(model).seconds
    return float((pipeline.counts(model).sum(axis=1) @ weights).max())


def _grid(*axes: Ints) -> list[Ints]:
    return [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
