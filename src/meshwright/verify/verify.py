"""`verify`: prove a plan on the real engine, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.cluster.spec import GIB
from meshwright.errors import QuestionError
from meshwright.model.spec import LinearAttention
from meshwright.verify.activations import MODELLED, saved_bytes
from meshwright.verify.command import on_gpus
from meshwright.verify.process import EngineProcess
from meshwright.verify.starts import starts
from meshwright.verify.subject import Subject
from meshwright.verify.trains import trains
from meshwright.verify.verification import Level, Outcome, Verification, timed

LEVELS = (0, 1, 2, 3)
NAMES = {0: "starts", 1: "saved-activations", 2: "trains-small", 3: "on-gpus"}
MEMORY_TOLERANCE = 0.05
"""How far our activations of a stage may be from the engine's, relatively."""


def verify(
    subject: Subject,
    *,
    levels: Sequence[int] = LEVELS,
    fault: str | None = None,
    predicted_activations: Mapping[int, float] | None = None,
    engine: EngineProcess | None = None,
) -> Verification:
    """Every level asked for; a later one is skipped when the plan does not even start.

    fault                  inject it at level 2: the run must end `fail` and name it
    predicted_activations  our bytes kept by each stage, to be held against the engine's
    engine                 a running engine; None starts one for this call
    """
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise QuestionError(f"level {unknown[0]} is not known; levels are 0, 1, 2 and 3")
    if engine is not None:
        return run_levels(engine, subject, levels, fault, predicted_activations)
    if set(levels) <= {3}:
        return Verification(levels=(gpu_level(subject),))
    with EngineProcess() as own:
        return run_levels(own, subject, levels, fault, predicted_activations)


def run_levels(
    engine: EngineProcess,
    subject: Subject,
    levels: Sequence[int],
    fault: str | None,
    predicted: Mapping[int, float] | None,
) -> Verification:
    done: list[Level] = []
    works = {
        0: lambda: starts(engine, subject),
        1: lambda: keeps(engine, subject, predicted),
        2: lambda: trains(engine, subject, fault),
        3: lambda: on_gpus(subject),
    }
    for number in sorted(set(levels)):
        if done and done[0].number == 0 and done[0].verdict == "fail":
            done.append(skipped(number, "the plan does not start (level 0)"))
        else:
            done.append(timed(number, NAMES[number], works[number]))
    return Verification(levels=tuple(done), fault=fault)


def gpu_level(subject: Subject) -> Level:
    return timed(3, NAMES[3], lambda: on_gpus(subject))


def skipped(number: int, why: str) -> Level:
    return Level(number=number, name=NAMES[number], verdict="skipped", why=why)


def keeps(engine: EngineProcess, subject: Subject, predicted: Mapping[int, float] | None) -> Outcome:
    """Level 1: what the first and the last stage keep, against our own terms where they are given."""
    linear = {kind.mixer.kind for kind in subject.model.kinds if isinstance(kind.mixer, LinearAttention)}
    if linear - {"gdn"}:
        text = "modelled only: this kind of linear attention is not among the engine's own modules"
        modelled = {str(stage): round(size) for stage, size in (predicted or {}).items()}
        return Outcome("skipped", text, {"figures": "modelled", "our_bytes": modelled})
    stages = sorted({0, subject.layout.pp - 1})
    found = saved_bytes(engine, subject, stages=stages, until_steady=True)
    rows = []
    for stage in found:
        ours = (predicted or {}).get(stage.stage)
        row: dict[str, float] = {
            "stage": stage.stage,
            "rank": stage.rank,
            "engine_bytes": stage.peak_bytes,
        }
        if ours:
            row |= {"our_bytes": round(ours), "relative": round(ours / stage.peak_bytes - 1, 4)}
        rows.append(row)
    evidence = {"figures": MODELLED, "stages": rows}
    kept = " and ".join(f"{stage.peak_bytes / GIB:.2f} GiB" for stage in found)
    ends = "first and last stage keep" if len(found) > 1 else "the stage keeps"
    off = [row for row in rows if abs(row.get("relative", 0.0)) > MEMORY_TOLERANCE]
    if off:
        worst = max(off, key=lambda row: abs(row["relative"]))
        text = f"stage {worst['stage']}: we say {worst['relative']:+.1%} of what the engine keeps"
        return Outcome("fail", text, evidence)
    agreed = f", ours within {MEMORY_TOLERANCE:.0%}" if predicted else ""
    return Outcome("pass", f"{ends} {kept} for the backward pass{agreed}", evidence)
