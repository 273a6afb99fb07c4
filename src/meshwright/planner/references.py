"""What others would have chosen: the guide's starting point and the nearest shipped recipe, priced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.spec import GIB
from meshwright.cost.question import Question
from meshwright.job.precedents import Recipe, precedents
from meshwright.layout.layout import Layout
from meshwright.model.parameters import count_parameters
from meshwright.planner.answer import Estimate, estimates
from meshwright.planner.guide import GuideQuestion
from meshwright.planner.guide.start import working_layout
from meshwright.planner.place import Wanted, refused, seconds_of
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A choice of somebody else for the same question.

    who       "guide" or "recipe"
    layout    its degrees
    source    where it stands
    estimate  the best layout with those degrees on these GPUs; None where there is none
    excluded  why there is none, or why it does not fit
    slower    its step time over that of the plan, minus 1
    """

    who: str
    layout: Layout
    source: str
    estimate: Estimate | None
    excluded: tuple[str, ...]
    slower: float | None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "who": self.who,
            "layout": str(self.layout),
            "source": self.source,
            "excluded": list(self.excluded),
            "slower": self.slower,
            "estimate": self.estimate.as_dict() if self.estimate else None,
        }

    def __str__(self) -> str:
        name = f"the {self.who} ({self.source}): {self.layout}"
        if self.excluded:
            return f"{name}: {self.excluded[0]}"
        if self.estimate is None or self.estimate.time is None or self.slower is None:
            return name
        step = self.estimate.time.step_seconds
        if abs(self.slower) < 0.005:
            return f"{name}: {step:.4g} s a step, as fast"
        return (
            f"{name}: {step:.4g} s a step, {abs(self.slower):.1%} {'slower' if self.slower > 0 else 'faster'}"
        )


def references(
    question: Question, axes: Axes, found: Found, names: Sequence[str], best: Estimate | None = None
) -> tuple[Reference, ...]:
    """The guide's choice, and that of the nearest recipe of the model (none where there is no recipe).

    names  every name of the model
    best   the plan to compare with; the first of the found layouts where it is not given
    """
    if best is None and found.fitting:
        best = estimates(question, found.table.rows(slice(0, 1)))[0]
    given = [_guide(question)]
    near = precedents(
        names, question.cluster.gpu, question.job.task, question.cluster.world,
        precision=question.job.precision, count=1,
    )  # fmt: skip
    given += [("recipe", _layout_of(recipe), f"{recipe.recipe}, {recipe}") for recipe in near]
    return tuple(_priced(question, axes, best, *one) for one in given)


def _guide(question: Question) -> tuple[str, Layout, str]:
    counted = count_parameters(question.model)
    asked = GuideQuestion(
        model=question.model, total_params=float(counted.total), active_params=float(counted.active),
        gpus=question.cluster, seq_length=question.job.seq_length,
    )  # fmt: skip
    layout, source = working_layout(asked)
    return "guide", layout, source.removeprefix("the guide's ")


def _layout_of(recipe: Recipe) -> Layout:
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "sp")
    return Layout(**{name: getattr(recipe, name) for name in names})


def _priced(
    question: Question, axes: Axes, best: Estimate | None, who: str, layout: Layout, source: str
) -> Reference:
    """The degrees of somebody else under this question; micro-batch, recompute and flags are the best."""
    named = ("tp", "pp", "cp", "ep", "etp") + (("vpp",) if who == "recipe" else ())
    degrees = {name: getattr(layout, name) for name in named}
    wanted = Wanted(degrees=degrees, sp=None, flags={}, recompute=None)
    open_axes = replace(axes, vpp=None, mbs=None, bounds={}, pipeline=None)
    mine = search(question, wanted.axes(open_axes))
    estimate = estimates(question, mine.table.rows(slice(0, 1)))[0] if len(mine.table) else None
    excluded: tuple[str, ...] = ()
    slower = None
    if estimate is None:
        excluded = refused(question, wanted, axes)
    elif not mine.fitting and estimate.memory is not None:
        peak = estimate.memory.peak_bytes / GIB
        excluded = (f"does not fit: {peak:.1f} of {estimate.memory.usable_bytes / GIB:.1f} GiB",)
    elif best is not None:
        slower = seconds_of(estimate) / seconds_of(best) - 1
    return Reference(
        who=who, layout=layout, source=source, estimate=estimate, excluded=excluded, slower=slower
    )
