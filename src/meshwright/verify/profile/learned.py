"""Measured steps as a calibration of one's own cluster, in one small file.

The file keeps the runs themselves, so that more of them refine the fit and none counts twice; factors are
stored relative to those that ship, for each kind of GPU.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import QuestionError
from meshwright.verify.profile.store import read_json, write_atomically

if TYPE_CHECKING:
    from meshwright.cost.calibration import Calibration

PROJECT_FILE = "meshwright-calibration.json"
MOST_RUNS = 200
"""Runs that are kept for each kind of GPU, the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One measured run: the JSON of its estimate, and the seconds of a step.

    digest  of its log: the same log counts once
    """

    answer: Mapping[str, Any]
    seconds: float
    digest: str
    source: str = ""

    @property
    def gpu(self) -> str:
        return str(self.answer["cluster"]["gpu"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the runs of one kind of GPU say.

    before, after  root mean square of log(predicted / measured), as shipped and as calibrated
    """

    gpu: str
    runs: int
    factors: Mapping[str, float]
    time_band: tuple[float, float]
    before: float
    after: float

    def calibration(self, base: Calibration) -> Calibration:
        """The base moved by what was learned."""
        factors = dict(base.factors)
        for name, value in self.factors.items():
            factors[name] = factors.get(name, 1.0) * value
        word = "run" if self.runs == 1 else "runs"
        return replace(
            base,
            factors=factors,
            time_band=self.time_band,
            source=f"calibrated with {self.runs} {word} on {self.gpu}; {base.source}",
        )


def calibration_file(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Path:
    """Where a calibration is kept: $MESHWRIGHT_CALIBRATION, the project's own file, or the user's."""
    if named := environment.get("MESHWRIGHT_CALIBRATION"):
        return Path(named)
    project = (folder or Path.cwd()) / PROJECT_FILE
    if project.is_file():
        return project
    home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "meshwright" / "calibration.json"


def load_learned(gpu: str, path: Path | None = None) -> Learned | None:
    """What was learned of a kind of GPU; None where nothing was. QuestionError for a broken file."""
    path = path or calibration_file()
    entry = _read(path).get(gpu)
    return _learned(gpu, entry, path) if entry else None


def calibration_for(gpu: str, path: Path | None = None) -> Calibration:
    """The calibration for a kind of GPU: what was learned of it on top of what ships, or just that."""
    from meshwright.cost.calibration import default_calibration

    learned = load_learned(gpu, path)
    return learned.calibration(default_calibration()) if learned else default_calibration()


def all_learned(path: Path | None = None) -> tuple[Learned, ...]:
    """What was learned of every kind of GPU."""
    path = path or calibration_file()
    return tuple(_learned(gpu, entry, path) for gpu, entry in _read(path).items())


def learn(runs: Sequence[MeasuredRun], path: Path) -> tuple[Learned, ...]:
    """Add runs to the file and fit each kind of GPU that they name; what is there already counts once."""
    entries = _read(path)
    found = []
    for gpu in dict.fromkeys(run.gpu for run in runs):
        known = {row["digest"]: row for row in entries.get(gpu, {}).get("runs", ())}
        for run in runs:
            if run.gpu == gpu:
                known[run.digest] = {
                    "digest": run.digest, "seconds": run.seconds, "source": run.source,
                    "answer": _kept(run.answer),
                }  # fmt: skip
        rows = list(known.values())[-MOST_RUNS:]
        learned = fitted(gpu, rows)
        entries[gpu] = {
            "factors": dict(learned.factors), "time_band": list(learned.time_band),
            "before": learned.before, "after": learned.after, "runs": rows,
        }  # fmt: skip
        found.append(learned)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"version": 1, "gpus": entries}))
    except OSError as error:
        raise QuestionError(f"{path} cannot be written: {error.strerror}") from None
    return tuple(found)


def fitted(gpu: str, rows: Sequence[Mapping[str, Any]]) -> Learned:
    """The shipped calibration moved to what the runs say."""
    import numpy as np

    from meshwright.cost.calibration import default_calibration
    from meshwright.cost.observing import MOVES, Observation, fit, predicted
    from meshwright.planner.again import one_row, read_again

    seen = []
    for run in rows:
        question, layout, execution, pipeline = read_again(run["answer"])
        table = one_row(question, layout, execution, pipeline)
        seen.append(Observation(question=question, table=table, seconds=run["seconds"], source=run["source"]))
    base = default_calibration()
    moved = fit(seen, base)
    measured = np.log([one.seconds for one in seen])

    def error(calibration: Calibration) -> float:
        return float(np.sqrt(np.mean((np.log(predicted(seen, calibration)) - measured) ** 2)))

    return Learned(
        gpu=gpu,
        runs=len(seen),
        factors={name: moved.factors[name] / base.factors.get(name, 1.0) for name in MOVES},
        time_band=moved.time_band,
        before=error(base),
        after=error(moved),
    )


def _kept(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an answer from which its prediction can be made again."""
    return {name: answer[name] for name in ("layout", "execution", "model", "cluster", "job")}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    data = read_json(path)
    gpus = data.get("gpus") if isinstance(data, dict) else None
    if not isinstance(gpus, dict):
        raise QuestionError(f"{path} is no calibration; remove it, or run `meshwright calibrate` again")
    return gpus


def _learned(gpu: str, entry: Any, path: Path) -> Learned:
    try:
        factors = {str(name): float(value) for name, value in entry["factors"].items()}
        dense, moe = (float(value) for value in entry["time_band"])
        if not all(math.isfinite(value) and value > 0 for value in (*factors.values(), dense, moe)):
            raise ValueError("a factor or band is not above 0")
        return Learned(
            gpu=gpu,
            runs=len(entry["runs"]),
            factors=factors,
            time_band=(dense, moe),
            before=float(entry["before"]),
            after=float(entry["after"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise QuestionError(f"{path} cannot be read for {gpu}: {error}") from None
