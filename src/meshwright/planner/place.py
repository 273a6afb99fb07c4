"""Why not that layout: its place among all, and what separates it from the best or excludes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.spec import GIB
from meshwright.cost.question import Question
from meshwright.errors import LayoutError, QuestionError, did_you_mean
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import default_pipeline
from meshwright.layout.rules import View, check
from meshwright.planner.answer import Estimate, estimates
from meshwright.planner.ranking import Known
from meshwright.planner.search import Found, Progress, search
from meshwright.planner.space import Axes

LONG = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "expert_tensor_parallel_size": "etp", "micro_batch_size": "mbs",
    "sequence_parallel": "sp",
}  # fmt: skip
SWITCHES = ("sp", "fsdp", "distributed_optimizer")
WORDS = ("dispatcher", "cuda_graphs", "cp_comm")
SAID = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person said of a layout: degrees, and flags of its execution."""

    degrees: Mapping[str, int]
    sp: bool | None
    flags: Mapping[str, Any]
    recompute: Recompute | None

    def axes(self, axes: Axes) -> Axes:
        """The axes of a search with these values fixed; what was not said stays free."""
        free = {name: values for name, values in axes.flags.items() if name not in self.flags}
        fixed: dict[str, Any] = {name: (value,) for name, value in self.degrees.items()}
        return replace(
            axes,
            **fixed,
            bounds={name: bound for name, bound in axes.bounds.items() if name not in self.degrees},
            sp=axes.sp if self.sp is None else self.sp,
            flags=free,
            execution=replace(axes.execution, **self.flags),
            recompute=axes.recompute if self.recompute is None else (self.recompute,),
        )

    @property
    def layout(self) -> Layout:
        """The degrees as they were said; the others are 1."""
        tp = self.degrees.get("tp", 1)
        return Layout(**self.degrees, sp=tp > 1 if self.sp is None else self.sp)


def read_layout(text: str) -> Wanted:
    """A layout from "tp=8,pp=4,recompute=full" or "TP8 PP4"; QuestionError names the word that is none."""
    if len(text) > 1_000:
        raise QuestionError(f"a layout of {len(text):,} characters; write for example tp=8,pp=4,mbs=1")
    degrees: dict[str, int] = {}
    flags: dict[str, Any] = {}
    sp: bool | None = None
    recompute: Recompute | None = None
    for word in filter(None, re.split(r"[\s,;]+", text)):
        name, value = _word(word)
        if name in degrees or name in flags:
            raise QuestionError(f"{name} is said twice in {text[:60]!r}; say it once")
        if name in DEGREES:
            degrees[name] = _degree(name, value)
        elif name == "sp":
            sp = _switch(word, value)
        elif name in SWITCHES:
            flags[name] = _switch(word, value)
        elif name in WORDS:
            flags[name] = value
        elif name == "recompute":
            granularity, _, modules = value.partition(":")
            recompute = Recompute(
                granularity=granularity,  # type: ignore[arg-type]
                modules=tuple(filter(None, modules.split("+")))
                or ("core_attn",) * (granularity == "selective"),
            )
        else:
            known = (*DEGREES, *SWITCHES, *WORDS, "recompute")
            raise QuestionError(
                f"{word[:40]!r} is no part of a layout{did_you_mean(name[:40], known) or '.'} "
                f"Known: {', '.join(known)}; for example tp=8,pp=4,mbs=1,recompute=full"
            )
    if not degrees and not flags and recompute is None and sp is None:
        raise QuestionError("name a layout, for example tp=8,pp=4,mbs=1")
    return Wanted(degrees=degrees, sp=sp, flags=flags, recompute=recompute)


def _word(word: str) -> tuple[str, str]:
    """Name and value of "tp=8", "TP8", "--tp=8" or "fsdp"."""
    plain = word.lstrip("-")
    name, equals, value = plain.partition("=")
    if not equals:
        match = re.fullmatch(r"([A-Za-z]+)(\d+)", plain)
        name, value = (match[1], match[2]) if match else (plain, "true")
    name = name.lower().replace("-", "_")
    return LONG.get(name, name), value


def _degree(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < 1:
        raise QuestionError(f"{name} is {value[:40]!r}; a degree is a whole number of at least 1")
    return int(value)


def _switch(word: str, value: str) -> bool:
    if value.lower() not in SAID:
        raise QuestionError(f"{word[:40]!r}: write on or off")
    return SAID[value.lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a layout stands.

    estimate  the layout as it was priced; what was not said of it is what is best for it. None where
              no layout has the degrees
    best      the first of the ranking; None where nothing fits
    excluded  why it is not in the ranking: broken rules or memory; empty where it is
    position  1 for the fastest; None where it is excluded
    of        how many layouts fit
    slower    step time over that of the best, minus 1
    terms     (term, seconds more than the best's), largest first; they sum to the difference in step time
    """

    wanted: Wanted
    estimate: Estimate | None
    best: Estimate | None
    excluded: tuple[str, ...]
    position: int | None
    of: int
    slower: float | None
    terms: tuple[tuple[str, float], ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "estimate": self.estimate.as_dict() if self.estimate else None,
            "excluded": list(self.excluded),
            "position": self.position,
            "of": self.of,
            "slower": self.slower,
            "terms": dict(self.terms),
        }


def why_not(
    question: Question, axes: Axes, text: str, *, whole: Found | None = None, practice: Sequence[Known] = (),
    progress: Progress | None = None,
) -> Place:  # fmt: skip
    """The place of the layout that `text` names among all of the question's.

    axes   of the plan; what the text does not name stays free, and the best of it is taken
    whole  a search of these axes that scored every layout (`keep` inf), where there is one already
    """
    wanted = read_layout(text)
    mine = search(question, wanted.axes(axes), practice=practice, keep=float("inf"))
    if whole is None:
        whole = search(question, axes, progress, practice, keep=float("inf"))
    best = _first(question, whole) if whole.fitting else None
    own = _first(question, mine) if len(mine.table) else None
    if mine.fitting:
        position = int((whole.step < float(mine.step[0]) * (1 - 1e-9)).sum()) + 1
        slower = seconds_of(own) / seconds_of(best) - 1
        return Place(
            wanted=wanted, estimate=own, best=best, excluded=(), position=position, of=whole.fitting,
            slower=slower, terms=difference(own, best),
        )  # fmt: skip
    excluded = _memory_words(question, own) if own is not None else refused(question, wanted, axes)
    return Place(
        wanted=wanted, estimate=own, best=best, excluded=excluded, position=None, of=whole.fitting,
        slower=None, terms=difference(own, best),
    )  # fmt: skip


def seconds_of(estimate: Estimate | None) -> float:
    """Step time of an estimate that has one; nan where it has none."""
    return float("nan") if estimate is None or estimate.time is None else estimate.time.step_seconds


def difference(one: Estimate | None, other: Estimate | None) -> tuple[tuple[str, float], ...]:
    """Seconds that each term of a step takes more in `one` than in `other`, largest first."""
    if one is None or other is None or one.time is None or other.time is None:
        return ()
    change = {name: one.time.terms[name] - other.time.terms[name] for name in one.time.terms}
    return tuple(sorted(change.items(), key=lambda item: -abs(item[1])))


def _first(question: Question, found: Found) -> Estimate:
    return estimates(question, found.table.rows(slice(0, 1)))[0]


def _memory_words(question: Question, estimate: Estimate) -> tuple[str, ...]:
    assert estimate.memory is not None
    peak, usable = estimate.memory.peak_bytes / GIB, question.cluster.gpu.usable_memory / GIB
    fullest = max(estimate.memory.per_stage, key=lambda stage: stage.total_bytes).stage
    return (
        f"memory: {peak:.1f} GiB on stage {fullest} at the least, {peak - usable:.1f} more than the "
        f"{usable:.1f} of a {question.cluster.gpu.name}",
    )


def refused(question: Question, wanted: Wanted, axes: Axes) -> tuple[str, ...]:
    """Why the engine does not start the layout as it was said (degrees that were not named are 1)."""
    layout, model = wanted.layout, question.model
    execution: Execution = wanted.axes(axes).execution
    said = {}
    pipeline = default_pipeline(model, layout.pp, layout.vpp)
    if pipeline is not None and model.num_layers % (layout.pp * layout.vpp):
        said = {"pipeline_model_parallel_layout": pipeline.string()}
    view = View.of(
        said, framework=question.stack.framework, version=question.stack.framework_version,
        release=question.stack.release, layout=layout, model=model, cluster=question.cluster,
        job=question.job, execution=execution,
    )  # fmt: skip
    words = [finding.message for finding in check(view) if finding.severity == "error"]
    if words:
        return tuple(words)
    try:
        layout.num_microbatches(question.cluster.world, question.job.global_batch)
    except LayoutError as error:
        return (str(error),)
    return ("no values of the other degrees make it legal on these GPUs with this batch",)
