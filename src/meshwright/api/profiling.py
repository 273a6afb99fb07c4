"""`profile` and `calibrate`: measure plans on the real cluster, and learn from what was measured."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.api.planning import estimate_again
from meshwright.api.verifying import expected_of, judge
from meshwright.api.writing import plan_of_answer
from meshwright.errors import LayoutError, QuestionError
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.scripts import sbatch
from meshwright.frameworks.write import write as write_plan
from meshwright.layout.layout import DEGREES
from meshwright.planner.answer import Estimate
from meshwright.verify.log_judge import finite, steady_seconds
from meshwright.verify.profile import drive as driving
from meshwright.verify.profile.learned import Learned, MeasuredRun, calibration_file, learn
from meshwright.verify.profile.ranking import Profile, ranked
from meshwright.verify.profile.runs import Candidate, Record
from meshwright.verify.profile.schedulers import scheduler_from
from meshwright.verify.profile.store import Store, create, plain, reopen
from meshwright.verify.profile.wrapper import write_scripts

ITERATIONS = 12
"""Steps of a short run: a third is warm-up, and the median of the others is steady."""
SECONDS = 1800.0
LANGUAGE = {"slurm": "slurm", "local": "megatron-lm", "command": "megatron-lm"}
"""What a run is written in, by scheduler, where nothing else is said."""
SHORT: Mapping[str, Any] = {"log_interval": 1, "log_throughput": True, "eval_iters": 0}
"""Arguments of a short run, beside its number of steps."""

Report = Callable[[Record, str], None]


def candidates(
    answers: Sequence[Estimate],
    *,
    scheduler: str = "slurm",
    language: str | None = None,
    command: str | None = None,
    iterations: int = ITERATIONS,
) -> tuple[Candidate, ...]:
    """One short run of each estimate.

    language  framework it is written for; by default Slurm's script, elsewhere Megatron-LM's
    command   a command line of one's own instead, with {tp}, {pp}, ..., {mbs}, {gbs}, {dp}, {nodes},
              {gpus_per_node}, {world}, {iterations}, {model}, {arguments} (Megatron-LM's words)
    Raises LayoutError where none of them can start.
    """
    able = [answer for answer in answers if answer.valid and answer.time is not None]
    if not able:
        raise LayoutError("none of the layouts can start, so that there is nothing to measure")
    return tuple(
        _candidate(one, scheduler, language or LANGUAGE[scheduler], command, iterations) for one in able
    )


def _candidate(
    answer: Estimate, scheduler: str, language: str, command: str | None, iterations: int
) -> Candidate:
    plan = plan_of_answer(answer)
    name = plain(f"{plan.name} {_name(answer)}".replace(".", "-")).lower()
    plan = replace(plan, name=name, options={**plan.options, **SHORT, "train_iters": iterations})
    if command is not None:
        script = _own(plan, answer, command, iterations, slurm=scheduler == "slurm")
    else:
        files = write_plan(language, plan)
        if len(files) > 1:
            raise QuestionError(
                f"{language} takes {len(files)} files ({', '.join(files)}); give the command that starts them"
            )
        # A failure is a result: Kubernetes is not to start it again.
        script = next(iter(files.values())).replace("restartPolicy: OnFailure", "restartPolicy: Never")
    timed, expected = answer.time, expected_of(answer)
    assert timed is not None
    return Candidate(
        name=_name(answer),
        script=script,
        degrees=expected.degrees,
        world=expected.world,
        predicted=(timed.low_seconds, timed.step_seconds, timed.high_seconds),
        predicted_bytes=float(answer.memory.peak_allocated_bytes) if answer.memory else None,
        answer=answer.as_dict(),
    )


def _name(answer: Estimate) -> str:
    """Degrees above 1, for people: "tp8 pp4 dp2 mbs1"."""
    row = answer.layout
    shown = [f"{name}{getattr(row, name)}" for name in DEGREES if getattr(row, name) > 1 and name != "mbs"]
    kind = answer.execution.recompute.granularity
    recompute = [] if kind in (None, "none") else [f"recompute-{kind}"]
    sharding = ["fsdp"] if answer.execution.fsdp else []
    return " ".join([*shown, f"dp{row.dp}", f"mbs{row.mbs}", *sharding, *recompute])


def _own(plan: Plan, answer: Estimate, command: str, iterations: int, *, slurm: bool) -> str:
    """A person's own command as a script, its placeholders filled in; other braces are theirs."""
    from meshwright.frameworks.megatron_lm import words_of
    from meshwright.frameworks.scripts import command_text, grouped

    row = answer.layout
    values: dict[str, object] = {name: getattr(row, name) for name in (*DEGREES, "dp", "edp", "gbs")}
    values |= {"sp": str(row.sp).lower(), "nodes": plan.nodes, "gpus_per_node": plan.gpus_per_node}
    values |= {"world": plan.world, "iterations": iterations, "model": plan.checkpoint}
    values["arguments"] = command_text("", grouped(words_of(plan.runnable()))).strip().lstrip("\\\n ")
    text = re.sub(r"(?<!\$)\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), command)
    if not slurm:
        return f"#!/bin/bash\nset -euo pipefail\n{text}\n"
    return sbatch(plan, f"\n{text}\n").replace("srun \n", "")


def start(runs: Sequence[Candidate], folder: str | Path, settings: Mapping[str, Any] | None = None) -> Store:
    """A folder with runs to measure; runs that are there already are kept.

    settings  scheduler ("slurm", "local", "command"), scheduler_options, seconds, iterations, workdir
    """
    given = {
        "scheduler": "slurm",
        "scheduler_options": {},
        "seconds": SECONDS,
        "iterations": None,
        "workdir": str(Path.cwd()),
        **(settings or {}),
    }
    scheduler_from(given)  # its errors come before anything is written
    store = create(Path(folder), json.loads(json.dumps(given)))
    store.add(runs)
    return store


def profile(
    store: Store, *, poll: float = 10.0, again: bool = False, report: Report | None = None
) -> Profile:
    """Measure what has no outcome yet; may be killed and called again at any point.

    again  runs that were cancelled, lost or refused get another attempt first
    """
    settings = store.settings()
    if again:
        driving.retry(store)
    watch = driving.Watch(
        seconds=float(settings["seconds"]),
        iterations=settings["iterations"],
        workdir=Path(settings["workdir"]),
        poll=poll,
        report=report,
    )
    driving.drive(store, scheduler_from(settings), watch)
    return ranking_of(store)


def scripts_only(store: Store) -> list[Path]:
    """Write every script without submitting any; their paths."""
    from meshwright.verify.profile.drive import Loop, Watch

    settings = store.settings()
    workdir = Path(settings["workdir"])
    loop = Loop(
        store,
        scheduler_from(settings),
        Watch(seconds=float(settings["seconds"]), iterations=None, workdir=workdir),
    )
    jobs = [(loop.job(record), record.candidate.script) for record in store.records()]
    for job, script in jobs:
        write_scripts(job, script, workdir)
    return [job.command for job, _ in jobs]


def open_profile(folder: str | Path) -> Store:
    """The folder of an earlier `profile`."""
    return reopen(Path(folder))


def ranking_of(store: Store) -> Profile:
    """What is known now: measured beside predicted, the fastest first."""
    return ranked(str(store.folder), store.records())


def runs_of_profile(store: Store) -> tuple[MeasuredRun, ...]:
    """Measured runs of a profile, for `calibrate`."""
    campaign = store.settings()["id"]
    return tuple(
        MeasuredRun(
            answer=record.candidate.answer,
            seconds=record.outcome.seconds,
            digest=f"{campaign}-{record.candidate.digest}",
            source=f"{store.folder / 'runs' / record.id}",
        )
        for record in store.records()
        if record.outcome is not None
        and record.outcome.kind == "measured"
        and record.outcome.seconds
        and record.candidate.answer
    )


def run_of_log(log: str | Path, answers: Sequence[Mapping[str, Any]]) -> MeasuredRun:
    """A log with the estimate whose degrees it shows; QuestionError where none or several do."""
    judged = judge(log)
    seconds = steady_seconds(judged.log)
    if not finite(seconds) or not seconds:
        why = "; ".join(judged.reasons) or "no line states the time of an iteration"
        raise QuestionError(f"{log} holds no step time: {why}")
    fitting = [answer for answer in answers if not _differences(answer, judged.log)]
    if not fitting:
        shown = " ".join(f"{k}{v}" for k, v in judged.log.degrees.items())
        why = "; ".join(_differences(answers[0], judged.log)) if answers else "no plan was given"
        raise QuestionError(f"{log} ({shown}) is a run of none of the plans: {why}")
    digest = hashlib.sha256(Path(log).read_bytes()).hexdigest()[:24]
    return MeasuredRun(answer=fitting[0], seconds=seconds, digest=digest, source=Path(log).name)


def _differences(answer: Mapping[str, Any], log: Any) -> list[str]:
    """Where a log contradicts an estimate. Logs of dense models state an ETP too: TP, which means nothing."""
    kinds = answer["model"]["description"]["kinds"]
    moe = any((kind.get("ffn") or {}).get("is") == "Moe" for kind in kinds)
    names = [name for name in (*DEGREES, "dp", "gbs") if moe or name != "etp"]
    wanted = {name: answer["layout"].get(name) for name in names}
    found = [
        f"the log shows {name}={log.degrees[name]}, the plan {name}={value}"
        for name, value in wanted.items()
        if name in log.degrees and name != "vpp" and log.degrees[name] != value
    ]
    world = answer["cluster"]["gpus"]
    if log.world and log.world != world:
        found.append(f"the log shows {log.world} ranks, the plan {world}")
    return found


def calibrate(runs: Sequence[MeasuredRun], path: str | Path | None = None) -> tuple[Learned, ...]:
    """Fit the cost model to measured runs and keep it, one entry for each kind of GPU.

    path  the file; by default $MESHWRIGHT_CALIBRATION, the project's, or the user's own
    """
    if not runs:
        raise QuestionError("no measured run was given: name logs (with --plan) or the folder of a profile")
    for run in runs:
        _possible(run)
    return learn(runs, Path(path) if path else calibration_file())


def _possible(run: MeasuredRun) -> None:
    """QuestionError for a run that is faster than the GPU: a log of something else."""
    timed = estimate_again(run.answer).time
    if timed is None:
        raise QuestionError(f"{run.source}: its plan cannot start, so that the log is of another run")
    mfu = timed.mfu * timed.step_seconds / run.seconds
    if mfu > 1:
        raise QuestionError(
            f"{run.source}: steps of {run.seconds:.3g} s are {mfu:.1f} times what {run.gpu} computes at its "
            "peak; the log is of another model, batch or sequence length than the plan"
        )
