"""The place of one layout among all: its rank and what separates it from the best, or what excludes it."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.question import Question
from meshwright.layout.rules import Finding
from meshwright.planner.answer import Estimate
from meshwright.planner.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a layout stands.

    excluded   why it is not in the ranking: broken rules or memory; empty where it is
    position   1 for the fastest; None where it is excluded
    of         how many layouts fit
    slower     step time over the fastest's, minus 1
    terms      {term: seconds more than the fastest's}, largest first
    """

    estimate: Estimate
    excluded: tuple[str, ...]
    position: int | None
    of: int
    slower: float | None
    terms: tuple[tuple[str, float], ...]

    def as_dict(self) -> dict[str, object]:
        return {
            "estimate": self.estimate.as_dict(),
            "excluded": list(self.excluded),
            "position": self.position,
            "of": self.of,
            "slower": self.slower,
            "terms": dict(self.terms),
        }


def place(question: Question, found: Found, best: Estimate | None, estimate: Estimate) -> Place:
    """The place of an estimate in a finished search."""
    excluded = _excluded(question, estimate)
    position = slower = None
    terms: tuple[tuple[str, float], ...] = ()
    if estimate.time is not None and not excluded and found.fitting:
        step = estimate.time.step_seconds
        position = int((found.step < step * (1 - 1e-9)).sum()) + 1
        slower = step / float(found.step.min()) - 1
    if estimate.time is not None and best is not None and best.time is not None:
        ours, theirs = estimate.time.terms, best.time.terms
        change = {name: ours[name] - theirs[name] for name in ours}
        terms = tuple(sorted(change.items(), key=lambda item: -abs(item[1])))
    return Place(
        estimate=estimate, excluded=excluded, position=position, of=found.fitting, slower=slower, terms=terms
    )


def _excluded(question: Question, estimate: Estimate) -> tuple[str, ...]:
    broken: tuple[Finding, ...] = tuple(f for f in estimate.findings if f.severity == "error")
    if broken:
        return tuple(f.message for f in broken)
    if estimate.memory is not None and estimate.memory.verdict == "does-not-fit":
        over = (estimate.memory.peak_bytes - question.cluster.gpu.usable_memory) / 1024**3
        return (
            f"memory: {estimate.memory.peak_bytes / 1024**3:.1f} GiB on the fullest stage, {over:.1f} more than "
            f"the {question.cluster.gpu.usable_memory / 1024**3:.1f} a {question.cluster.gpu.name} offers",
        )
    return ()
