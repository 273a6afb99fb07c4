"""What `verify` answers: levels of evidence, each with its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from meshwright.errors import LayoutError

GPUS_ONLY = "runs on GPUs only"
"""What the stand-ins of `verify/engine/standin` say where only a GPU can do the work."""

Verdict = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the proof.

    number    0 starts, 1 keeps in memory what was said, 2 trains, 3 runs on GPUs
    why       one sentence: what was shown, what failed, or why nothing ran
    evidence  plain values, for JSON and for the table
    """

    number: int
    name: str
    verdict: Verdict
    why: str
    seconds: float = 0.0
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "level": self.number,
            "name": self.name,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "why": self.why,
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All levels that were asked for. It passes when none failed and at least one passed."""

    levels: tuple[Level, ...]
    fault: str | None = None

    @property
    def verdict(self) -> Verdict:
        verdicts = {level.verdict for level in self.levels}
        if "fail" in verdicts:
            return "fail"
        return "pass" if "pass" in verdicts else "skipped"

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    @property
    def seconds(self) -> float:
        return sum(level.seconds for level in self.levels)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form of the contract."""
        answer: dict[str, Any] = {
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "levels": [level.as_dict() for level in self.levels],
        }
        return answer | ({"injected_fault": self.fault} if self.fault else {})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a level found, before it is timed."""

    verdict: Verdict
    why: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


def timed(number: int, name: str, work: Callable[[], Outcome]) -> Level:
    """Run one level; what it cannot do is an outcome like any other (a wrong question is not)."""
    start = time.perf_counter()
    try:
        outcome = work()
    except LayoutError as error:
        outcome = refusal(error)
    return Level(
        number=number,
        name=name,
        verdict=outcome.verdict,
        why=outcome.why,
        seconds=time.perf_counter() - start,
        evidence=outcome.evidence,
    )


def refusal(error: LayoutError) -> Outcome:
    """The engine has no module for the model: skipped; it refuses the plan: failed, with its reason."""
    from meshwright.verify.engine_fields import CannotBuild
    from meshwright.verify.process import EngineError

    if isinstance(error, CannotBuild):
        return Outcome("skipped", str(error), {"engine_cannot": error.what})
    # Megatron Core raises NotImplementedError as well, for plans that it refuses: those are failures
    if isinstance(error, EngineError) and GPUS_ONLY in str(error):
        return Outcome("skipped", f"not possible on CPUs: {error}", {"engine_cannot": str(error)})
    if isinstance(error, EngineError):
        where = f" ({error.where})" if error.where else ""
        evidence = {"engine_error": error.kind, "engine_says": str(error), "where": error.where}
        return Outcome("fail", f"the engine refuses: {error}{where}", evidence)
    return Outcome("fail", str(error))
