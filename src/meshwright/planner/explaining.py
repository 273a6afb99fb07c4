"""Where the step of one layout goes, what limits it, and which single changes would make it shorter.

Every time here is a simulated one, like the one that is shown; a change is listed only where the rules
allow it, with what it does to memory beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from meshwright.cost.explain import NOTICEABLE, Explanation, Gain, explain, other_flags
from meshwright.cost.memory import memory
from meshwright.cost.model_flops import job_flops, trained_share
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.cost.simulation import simulated_step
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TimeTable
from meshwright.errors import MeshwrightError
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.rules import legal_mask
from meshwright.planner.again import one_row

MFU_FORMULA = (
    "MFU = model FLOPs a token x tokens/s/GPU / peak FLOP/s of the number format. Model FLOPs: 6 a weight "
    "that a token passes (of the experts the chosen and the shared ones; logits and MTP modules count, "
    "the embedding look-up does not) and causal attention counted half; recomputation is not counted"
)
MOST_CHANGES = 8

PARTS = {
    "memory_bound": "memory-bound kernels",
    "recompute": "recomputed activations",
    "tp": "exposed tensor-parallel traffic",
    "cp": "exposed context-parallel traffic",
    "ep": "exposed expert exchange",
    "pp": "exposed messages between stages",
    "dp": "exposed gradient and weight traffic",
    "bubble": "pipeline bubble",
    "imbalance": "unequal pipeline stages",
    "host": "waiting for kernel launches",
    "offload": "exposed offload of activations to host memory",
    "optimizer": "optimizer step",
    "fixed": "fixed work and waiting for the slowest rank",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the step that is not model FLOPs at the peak: its words, seconds and share of the step."""

    name: str
    words: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to the layout or its flags.

    options  as they are typed, "" where there is no option of that name
    kind     flag | layout
    seconds  what it saves a step; share: of the step
    verdict  fits | tight | does-not-fit, with the change
    peak     bytes of the fullest stage with the change
    """

    change: str
    options: str
    kind: str
    seconds: float
    share: float
    verdict: str
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The explanation of one layout.

    explanation  terms and groups of the step
    efficiency   from the peak to what is reached: the first part is model FLOPs at the peak (the MFU), the
                 others say what takes the rest; shares sum to 1
    gemm_rate, attention_rate  share of the peak that matrix products and attention reach
    slowest      the pipeline stage that sets the pace; stage_seconds: each stage for one micro-batch
    limit        what limits the step, in words
    changes      that would shorten it, largest gain first, those that fit before those that do not
    limits       what would be saved if a cost vanished: out of reach, but a bound
    """

    explanation: Explanation
    efficiency: tuple[Part, ...]
    gemm_rate: float
    attention_rate: float
    slowest: int
    stage_seconds: tuple[float, ...]
    limit: str
    changes: tuple[Change, ...]
    limits: tuple[Gain, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        told = self.explanation
        return {
            "step_seconds": told.step_seconds,
            "limited_by": told.limited_by,
            "limit": self.limit,
            "groups": [asdict(one) for one in told.groups],
            "terms": [asdict(one) for one in told.terms],
            "efficiency": [asdict(one) for one in self.efficiency],
            "gemm_share_of_peak": self.gemm_rate,
            "attention_share_of_peak": self.attention_rate,
            "slowest_stage": self.slowest,
            "stage_seconds": list(self.stage_seconds),
            "changes": [asdict(one) for one in self.changes],
            "limits": [asdict(one) for one in self.limits],
            "mfu_formula": MFU_FORMULA,
        }


def explained(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None
) -> Explained:
    """Everything about the step of one legal layout."""
    table = one_row(question, layout, execution, pipeline)
    timed = simulated_step(question, table)
    told = explain(question, table, timed)
    seconds = {share.name: share.seconds for share in told.terms}
    efficiency, gemm, attention = _efficiency(question, seconds, told.step_seconds)
    stages = tuple(float(value) for value in timed.stage[0, : layout.pp])
    found = list(_changes(question, layout, execution, pipeline, told.step_seconds))
    found.sort(key=lambda one: (one.verdict == "does-not-fit", -one.seconds))
    return Explained(
        explanation=told,
        efficiency=efficiency,
        gemm_rate=gemm,
        attention_rate=attention,
        slowest=int(np.argmax(stages)),
        stage_seconds=stages,
        limit=_limit(question, told, efficiency, gemm),
        changes=tuple(found[:MOST_CHANGES]),
        limits=told.gains,
    )


def _efficiency(
    question: Question, seconds: Mapping[str, float], step: float
) -> tuple[tuple[Part, ...], float, float]:
    """From the peak to the MFU, and the rates of matrix products and of attention."""
    job, cluster = question.job, question.cluster
    peak = cluster.gpu.peak[recipe_for(job.precision, cluster.gpu).gemm]
    scale = job.tokens_per_step / cluster.world / peak * trained_share(question)
    core, whole = job_flops(question)
    at_peak, of_core = whole * scale, core * scale
    products = max(seconds["gemm"], 1e-12)
    attention = max(seconds["attention"], 1e-12)

    def part(name: str, words: str, value: float) -> Part:
        return Part(name=name, words=words, seconds=value, share=value / step)

    rest = [
        part("gemm", "matrix products below the peak", seconds["gemm"] - (at_peak - of_core)),
        part("attention", "attention below the peak", seconds["attention"] - of_core),
        *(part(name, words, seconds[name]) for name, words in PARTS.items()),
    ]
    rest.sort(key=lambda one: -one.seconds)
    return (
        (part("model_flops", "model FLOPs at the peak (the MFU)", at_peak), *rest),
        (at_peak - of_core) / products,
        of_core / attention,
    )


def _limit(question: Question, told: Explanation, efficiency: tuple[Part, ...], gemm: float) -> str:
    """What limits a step, in one sentence."""
    fmt = recipe_for(question.job.precision, question.cluster.gpu).gemm
    largest = told.terms[0]
    overhead = next(part for part in efficiency[1:] if part.name not in ("gemm", "attention"))
    if largest.name == "gemm":
        head = f"matrix products take {largest.share:.0%} of the step, at {gemm:.0%} of the {fmt} peak"
    else:
        words = PARTS.get(largest.name, largest.name)
        head = f"{words} takes {largest.share:.0%} of the step"
        if overhead.name == largest.name:
            return head
    return f"{head}; the largest overhead is {overhead.words}: {overhead.share:.0%}"


def _changes(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None, step: float
) -> Iterator[Change]:
    """Single changes that are legal and shorten the step."""
    for words, options, kind, new_layout, new_execution in _candidates(question, layout, execution):
        split = pipeline
        if (new_layout.pp, new_layout.vpp) != (layout.pp, layout.vpp):
            split = default_pipeline(question.model, new_layout.pp, new_layout.vpp)
            if split is None and new_layout.pp > 1:
                continue
        priced = _priced(question, new_layout, new_execution, split)
        if priced is None:
            continue
        timed, peak, verdict = priced
        saved = step - float(timed.step[0])
        if saved > NOTICEABLE * step:
            yield Change(
                change=words, options=options, kind=kind, seconds=saved, share=saved / step,
                verdict=verdict, peak=peak,
            )  # fmt: skip


def _priced(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None
) -> tuple[TimeTable, float, str] | None:
    """Time, peak [bytes] and verdict; None where the engine refuses."""
    try:
        layout.num_microbatches(question.cluster.world, question.job.global_batch)
        layout.check_world(question.cluster.world)
        table = one_row(question, layout, execution, pipeline)
        legal, _ = legal_mask(question.model, question.cluster, question.job, table, question.stack)
        if not legal[0]:
            return None
        used = memory(question, table, all_stages(table.splits))
        return simulated_step(question, table), float(used.peak[0]), str(used.verdicts()[0])
    except MeshwrightError:
        return None


Candidate = tuple[str, str, str, Layout, Execution]


def _candidates(question: Question, layout: Layout, execution: Execution) -> Iterator[Candidate]:
    """Flags that are off and could be on, and each degree one step down and up."""
    for words, options, flags in other_flags(question, layout, execution):
        yield words, options, "flag", layout, flags
    names = ["mbs", "tp", "pp", "vpp", "cp"] + (["ep"] if question.model.is_moe else [])
    for name in names:
        value = getattr(layout, name)
        for other in {value * 2, value // 2} - {0, value}:
            degrees: dict[str, int] = {name: other}
            if name == "pp" and other == 1:
                degrees["vpp"] = 1
            changed = replace(layout, **degrees)  # type: ignore[arg-type]
            changed = replace(changed, sp=changed.tp > 1)
            if question.model.is_moe and layout.ep == 1 and layout.etp == layout.tp:
                changed = replace(changed, etp=changed.tp)
            yield (
                f"{name.upper()} {other} instead of {value}",
                f"--{name} {other}",
                "layout",
                changed,
                execution,
            )
    if layout.pp > 1 and layout.vpp == 1:
        for vpp in _divisors(question.model.num_layers // layout.pp):
            changed = replace(layout, vpp=vpp)
            yield f"VPP {vpp} (interleaved stages)", f"--vpp {vpp}", "layout", changed, execution


def _divisors(count: int) -> tuple[int, ...]:
    """Chunks a stage may have beyond two, of equal depth."""
    return tuple(d for d in (3, 4, 5, 8) if count and count % d == 0)
