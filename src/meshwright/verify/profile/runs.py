"""What is measured, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from meshwright.errors import QuestionError

Phase = Literal["new", "submitting", "submitted", "done"]
"""`submitting` is written before the scheduler is asked: who was killed then looks before it asks again."""

KINDS: Mapping[str, str] = {
    "measured": "ran to its end, and the step time is known",
    "oom": "out of memory",
    "nan": "a loss or gradient that is no number",
    "hang": "did not end in time, or a collective timed out",
    "crashed": "ended with an error",
    "cancelled": "ended from outside (scancel, a signal)",
    "node-lost": "a node failed, or the job was preempted",
    "refused": "the scheduler did not take it",
    "wrong": "ran, but not the layout that was meant",
    "incomplete": "ended without a step time",
    "lost": "gone from the scheduler without a trace",
}
"""Kinds of outcome: all but the first are failures, and results all the same."""
NOT_OF_THE_LAYOUT = ("cancelled", "node-lost", "lost", "refused")
"""Failures that say nothing about the layout: worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One run to measure.

    script           text of the batch script (bash), or of what the submit command takes
    degrees, world   what its log must show
    predicted        (low, step, high) time of a step [s]
    predicted_bytes  most memory that a rank allocates [bytes]
    answer           JSON of the estimate, from which the prediction can be made again
    """

    name: str
    script: str
    degrees: Mapping[str, int] = field(default_factory=dict)
    world: int | None = None
    predicted: tuple[float, float, float] | None = None
    predicted_bytes: float | None = None
    answer: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """Candidates with the same script are the same measurement."""
        return hashlib.sha256(self.script.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run; `kind` is one of KINDS, figures are None where the log has none.

    seconds, fastest, slowest  median and range of a step after warm-up [s]
    allocated                  most bytes that a rank allocated [bytes]
    """

    kind: str
    why: str = ""
    seconds: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    tflops: float | None = None
    allocated: float | None = None
    iterations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run as it stands on disk.

    job        the scheduler's id
    limit_hit  we ended it because its time was over
    earlier    outcomes of attempts before this one
    """

    id: str
    candidate: Candidate
    attempt: int = 1
    phase: Phase = "new"
    job: str = ""
    submitted: float | None = None
    limit_hit: bool = False
    outcome: Outcome | None = None
    earlier: tuple[Outcome, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def record_from(data: Mapping[str, Any]) -> Record:
    """A record from its JSON; QuestionError where it is none."""
    try:
        row = dict(data)
        candidate = dict(row.pop("candidate"))
        if candidate.get("predicted") is not None:
            low, step, high = candidate["predicted"]
            candidate["predicted"] = (float(low), float(step), float(high))
        outcome = row.pop("outcome")
        earlier = tuple(Outcome(**one) for one in row.pop("earlier"))
        return Record(
            **row,
            candidate=Candidate(**candidate),
            outcome=Outcome(**outcome) if outcome else None,
            earlier=earlier,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise QuestionError(f"a run's state cannot be read: {error}") from None
