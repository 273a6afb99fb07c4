"""Answers: everything one layout is told about, as frozen values that every door shows alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from meshwright.cost.calibration import default_calibration
from meshwright.cost.memory import MemoryTable, memory
from meshwright.cost.model_flops import job_flops, trained_share
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.cost.simulation import simulated_step
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TimeTable
from meshwright.job.defaults import Assumption
from meshwright.job.spec import Execution
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.rules import Finding
from meshwright.layout.table import LayoutTable
from meshwright.model.parameters import count_parameters
from meshwright.model.serial import to_dict
from meshwright.planner.again import one_row
from meshwright.planner.budget import Budget
from meshwright.planner.explaining import Explained
from meshwright.planner.memory_detail import MemoryDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of the ranks of one pipeline stage [bytes]."""

    stage: int
    parameters: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    other_bytes: int
    total_bytes: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a layout against the card [bytes]; the peak is that of the fullest stage."""

    verdict: str
    usable_bytes: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    peak_allocated_bytes: int
    per_stage: tuple[StageMemory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Time of one step, and the rates that follow from it. `terms` sum to `step_seconds`."""

    step_seconds: float
    low_seconds: float
    high_seconds: float
    tokens_per_second_per_gpu: float
    model_tflops_per_gpu: float
    mfu: float
    mfu_peak: str
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """A layout with everything that follows from it; a degree that is not whole stays a fraction."""

    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    dp: float
    edp: float
    mbs: int
    gbs: int
    num_microbatches: float
    sp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One layout: whether it can start, what each stage holds, how long a step takes, and why."""

    question: Question
    execution: Execution
    layout: Degrees
    pipeline_layout: str
    min_gpus: int
    guide_min_gpus: int
    wrong_product: int
    valid: bool
    findings: tuple[Finding, ...] = ()
    memory: Memory | None = None
    time: Time | None = None
    assumptions: tuple[Assumption, ...] = ()
    binding: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    tied: bool = False
    explanation: Explained | None = None
    """Where the step goes and what would shorten it, where that was asked for."""
    budget: Budget | None = None
    """Days and GPU hours of a token budget, where there is one."""
    detail: MemoryDetail | None = None
    """Memory in detail: of a single estimate, and of the first plan."""

    @property
    def fits(self) -> bool:
        """It can start, and nothing says that memory runs out."""
        engine = self.detail.rl if self.detail is not None else None
        if engine is not None and not engine.engine_fits:
            return False
        return self.valid and self.memory is not None and self.memory.verdict != "does-not-fit"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form of the contract."""
        return {
            "valid": self.valid,
            "findings": [finding.as_dict() for finding in self.findings],
            "layout": asdict(self.layout),
            "min_gpus": self.min_gpus,
            "guide_min_gpus": self.guide_min_gpus,
            "wrong_product": self.wrong_product,
            "memory": asdict(self.memory) if self.memory else None,
            "time": _time_dict(self.time) if self.time else None,
            "model": model_dict(self.question),
            "cluster": cluster_dict(self.question),
            "job": job_dict(self.question),
            "execution": execution_dict(self.execution, self.pipeline_layout),
            "assumptions": [a.as_dict() for a in self.assumptions],
            "binding": list(self.binding),
            "reasons": list(self.reasons),
            "tied": self.tied,
            "calibration": calibration_dict(self.question),
            **({"explanation": self.explanation.as_dict()} if self.explanation else {}),
            **({"budget": self.budget.as_dict()} if self.budget else {}),
            **(self.detail.as_dict() if self.detail else {}),
        }


def _time_dict(timed: Time) -> dict[str, Any]:
    return {item.name: getattr(timed, item.name) for item in fields(timed)} | {"terms": dict(timed.terms)}


def model_dict(question: Question) -> dict[str, Any]:
    model = question.model
    counted = count_parameters(model)
    return {
        "name": model.name,
        "hugging_face_id": model.hugging_face_id,
        "parameters": counted.total,
        "active_parameters": counted.active,
        "num_layers": model.num_layers,
        "source": model.source,
        "description": to_dict(model),
    }


def cluster_dict(question: Question) -> dict[str, Any]:
    cluster = question.cluster
    return {
        "gpu": cluster.gpu.name,
        "gpus": cluster.world,
        "nodes": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "nvlink_domain": cluster.nvlink_domain,
        "network_gbps": cluster.network * 8 / 1e9,
        "usable_memory_bytes": int(cluster.gpu.usable_memory),
        "gpu_description": {item.name: getattr(cluster.gpu, item.name) for item in fields(cluster.gpu)}
        | {"peak": dict(cluster.gpu.peak)},
    }


def job_dict(question: Question) -> dict[str, Any]:
    stack = question.stack
    return {
        **asdict(question.job),
        "stack": stack.release,
        "framework": stack.framework,
        "framework_version": stack.framework_version,
    }


def calibration_dict(question: Question) -> dict[str, Any] | None:
    """A calibration that was learned from own runs, whole; None for the one that ships."""
    own = question.calibration
    if own == default_calibration():
        return None
    return {item.name: getattr(own, item.name) for item in fields(own)} | {
        "factors": dict(own.factors), "measured": dict(own.measured),
    }  # fmt: skip


def execution_dict(execution: Execution, pipeline_layout: str) -> dict[str, Any]:
    row = asdict(execution)
    row["overlaps"] = sorted(execution.overlaps)
    row["recompute"]["modules"] = list(execution.recompute.modules)
    return {"pipeline_layout": pipeline_layout or None, **row, "imbalance": execution.expert_imbalance}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Ranked plans, best first, and how much of the space was looked at."""

    plans: tuple[Estimate, ...]
    ties: int
    searched: int
    scored: int
    valid: int
    fitting: int
    seconds: float
    refused: Mapping[str, int] = field(default_factory=dict)
    """Why layouts were refused: {rule: how many}."""
    min_gpus_fitting: int | None = None
    min_gpus_tight: int | None = None
    """Of `fit`: a smaller number on which memory may suffice, where there is one."""
    tight: Estimate | None = None
    """The best layout on that smaller number."""
    capacity: Mapping[str, Any] | None = None
    """Of `fit --longest-sequence` and `--largest-micro-batch`: what is asked, and the most that fits."""
    references: tuple[Mapping[str, Any], ...] = ()
    """What the guide and the nearest recipe would have chosen, with the predicted cost of it."""
    advice: tuple[str, ...] = ()
    """What to change about the number of GPUs, the batch, or (where nothing fits) the memory."""

    partial: bool = False
    """The search was interrupted: what it had found until then."""
    front: tuple[Mapping[str, Any], ...] = ()
    """Layouts that none beats in step time and memory at once, fastest first."""

    @property
    def best(self) -> Estimate | None:
        return self.plans[0] if self.plans else None

    def as_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "plans": [plan.as_dict() for plan in self.plans],
            "ties": self.ties,
            "searched": self.searched,
            "scored": self.scored,
            "valid": self.valid,
            "fitting": self.fitting,
            "seconds": self.seconds,
            "refused": dict(self.refused),
        }
        row |= {"partial": self.partial, "front": [dict(one) for one in self.front]}
        row |= {"references": [dict(one) for one in self.references], "advice": list(self.advice)}
        if self.min_gpus_fitting is not None:
            row["min_gpus_fitting"] = self.min_gpus_fitting
        if self.min_gpus_tight is not None:
            row["min_gpus_tight"] = self.min_gpus_tight
            row["tight_plan"] = self.tight.as_dict() if self.tight else None
        if self.capacity is not None:
            row["capacity"] = dict(self.capacity)
        return row


def layout_of(answer: Estimate) -> Layout:
    """The degrees of an answer as a layout."""
    row = answer.layout
    return Layout(**{name: getattr(row, name) for name in DEGREES}, sp=row.sp)


def said_pipeline(answer: Estimate) -> PipelineLayout | None:
    """The pipeline layout that an answer states; None where it has one stage."""
    text = answer.pipeline_layout
    return PipelineLayout.parse(text, answer.layout.pp) if text else None


def degrees(layout: Layout, world: int, gbs: int) -> Degrees:
    """The layout with dp, edp and M, whole or not."""
    dp = _whole(world / (layout.pp * layout.dense_grid))
    return Degrees(
        tp=layout.tp, pp=layout.pp, vpp=layout.vpp, cp=layout.cp, ep=layout.ep, etp=layout.etp,
        dp=dp, edp=_whole(world / (layout.pp * layout.expert_grid)), mbs=layout.mbs, gbs=gbs,
        num_microbatches=_whole(gbs / (layout.mbs * dp)), sp=layout.sp,
    )  # fmt: skip


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def estimates(question: Question, table: LayoutTable) -> tuple[Estimate, ...]:
    """One estimate a row of a table of legal layouts, with every stage shown.

    Each row is priced as a table of its own: the same layout gives the same digits whatever it stood beside.
    """
    return tuple(_estimate(question, table, row) for row in range(len(table)))


def _estimate(question: Question, table: LayoutTable, row: int) -> Estimate:
    layout, execution = table.layout(row), table.executions[int(table.execution[row])]
    text = table.splits.layouts[int(table.split[row])] if layout.pp > 1 else ""
    alone = one_row(question, layout, execution, PipelineLayout.parse(text, layout.pp) if text else None)
    view = all_stages(alone.splits)
    used = memory(question, alone, view)
    return Estimate(
        question=question,
        execution=execution,
        layout=degrees(layout, question.cluster.world, question.job.global_batch),
        pipeline_layout=text,
        min_gpus=layout.min_gpus,
        guide_min_gpus=layout.guide_min_gpus,
        wrong_product=layout.wrong_product,
        valid=True,
        memory=_memory(used, 0, str(used.verdicts()[0])),
        time=_time(question, simulated_step(question, alone), 0),
    )


def _memory(used: MemoryTable, row: int, verdict: str) -> Memory:
    stages = []
    for stage in range(int(used.exists[row].sum())):
        terms = {f"{name}_bytes": round(values[row, stage]) for name, values in used.terms.items()}
        stages.append(
            StageMemory(
                stage=stage,
                parameters=round(used.parameters[row, stage]),
                **terms,
                total_bytes=sum(terms.values()),
                allocated_bytes=round(used.allocated[row, stage]),
            )
        )
    peak = max(stage.total_bytes for stage in stages)
    return Memory(
        verdict=verdict,
        usable_bytes=round(used.usable),
        peak_bytes=peak,
        low_bytes=round(peak * (1 - used.band)),
        high_bytes=round(peak * (1 + used.band)),
        peak_allocated_bytes=max(stage.allocated_bytes for stage in stages),
        per_stage=tuple(stages),
    )


def _time(question: Question, timed: TimeTable, row: int) -> Time:
    terms = {name: float(values[row]) for name, values in timed.terms.items()}
    step = float(np.sum(list(terms.values())))
    world, job = question.cluster.world, question.job
    tokens = job.tokens_per_step / step / world
    tflops = tokens * job_flops(question)[1] / 1e12 * trained_share(question)
    fmt = recipe_for(job.precision, question.cluster.gpu).gemm
    return Time(
        step_seconds=step,
        low_seconds=step / (1 + timed.band),
        high_seconds=step * (1 + timed.band),
        tokens_per_second_per_gpu=tokens,
        model_tflops_per_gpu=tflops,
        mfu=tflops * 1e12 / question.cluster.gpu.peak[fmt],
        mfu_peak=fmt,
        terms=terms,
    )
