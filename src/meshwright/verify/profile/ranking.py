"""Measured beside predicted: the runs of a store in order of measured time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.verify.profile.runs import Outcome, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run.

    predicted, measured      seconds of a step [s]
    off                      measured over predicted, less 1
    in_band                  measured lies in the band of the prediction
    predicted_place, place   by predicted and by measured time, from 1; None where there is none
    tied                     its typical step is within the range of the fastest run's steps
    """

    id: str
    name: str
    outcome: Outcome | None
    predicted: float | None
    measured: float | None
    off: float | None
    in_band: bool | None
    predicted_place: int | None
    place: int | None
    tied: bool
    predicted_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Runs, the fastest measured first, failures after them, open ones last."""

    folder: str
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        return self.rows[0] if self.rows and self.rows[0].measured is not None else None

    @property
    def open(self) -> int:
        return sum(row.outcome is None for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "folder": self.folder,
            "best": self.best.name if self.best else None,
            "open": self.open,
            "runs": [asdict(row) for row in self.rows],
        }


def ranked(folder: str, records: Sequence[Record]) -> Profile:
    """The runs of a store, ranked by measured time."""
    expected = sorted(
        (r for r in records if r.candidate.predicted), key=lambda r: (r.candidate.predicted or (0, 0, 0))[1]
    )
    places = {record.id: number for number, record in enumerate(expected, 1)}
    measured = sorted((r for r in records if seconds(r) is not None), key=lambda r: seconds(r) or 0.0)
    failed = [r for r in records if r.outcome is not None and seconds(r) is None]
    open_runs = [r for r in records if r.outcome is None]
    limit = (measured[0].outcome.slowest or 0.0) if measured and measured[0].outcome else 0.0
    rows = [row(r, places.get(r.id), n, limit) for n, r in enumerate(measured, 1)]
    rows += [row(r, places.get(r.id), None, limit) for r in (*failed, *open_runs)]
    return Profile(folder=folder, rows=tuple(rows))


def seconds(record: Record) -> float | None:
    """Measured time of a step; a failure has none that counts."""
    outcome = record.outcome
    return outcome.seconds if outcome is not None and outcome.kind == "measured" else None


def row(record: Record, predicted_place: int | None, place: int | None, limit: float) -> Row:
    """One run beside its prediction."""
    measured, band = seconds(record), record.candidate.predicted
    return Row(
        id=record.id,
        name=record.candidate.name,
        outcome=record.outcome,
        predicted=band[1] if band else None,
        measured=measured,
        off=measured / band[1] - 1 if measured and band else None,
        in_band=band[0] <= measured <= band[2] if measured and band else None,
        predicted_place=predicted_place,
        place=place,
        tied=measured is not None and place != 1 and measured <= limit,
        predicted_bytes=record.candidate.predicted_bytes,
    )
