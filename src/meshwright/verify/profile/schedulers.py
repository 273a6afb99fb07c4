"""Schedulers that others run: Slurm, this machine, or commands that somebody gives."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from meshwright.errors import MeshwrightError, QuestionError
from meshwright.verify.profile.wrapper import Job, exit_status, started

Kind = Literal["waiting", "running", "ended", "failed", "cancelled", "timeout", "oom", "node-lost", "gone"]
PATIENCE = 60.0
"""Seconds after which a scheduler command that gives no answer counts as no answer."""


class Refused(MeshwrightError):  # noqa: N818 - it says what happened
    """The scheduler does not take the job, in its own words."""


class Unreachable(MeshwrightError):  # noqa: N818 - it says what happened
    """The scheduler gives no answer; nothing is known about the job."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a job stands, in our words and in the scheduler's."""

    kind: Kind
    text: str = ""


class Scheduler(Protocol):
    """What the loop needs. `parallel` is how many jobs it may hold at once."""

    @property
    def parallel(self) -> int: ...

    def submit(self, job: Job) -> str:
        """Its id; Refused, or Unreachable."""

    def find(self, job: Job) -> str | None:
        """The id of a job that was submitted under this name before."""

    def state(self, job: Job, id: str) -> State:
        """Where it stands; Unreachable when that cannot be asked."""

    def cancel(self, job: Job, id: str) -> None:
        """End it; no error where it has ended already."""


SLURM_STATES: Mapping[str, Kind] = {
    "PENDING": "waiting", "CONFIGURING": "waiting", "REQUEUED": "waiting", "REQUEUE_HOLD": "waiting",
    "REQUEUE_FED": "waiting", "SPECIAL_EXIT": "waiting", "RESV_DEL_HOLD": "waiting", "RUNNING": "running",
    "COMPLETING": "running", "SUSPENDED": "running", "STOPPED": "running", "SIGNALING": "running",
    "STAGE_OUT": "running", "RESIZING": "running", "COMPLETED": "ended", "FAILED": "failed",
    "CANCELLED": "cancelled", "REVOKED": "cancelled", "TIMEOUT": "timeout", "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "oom", "NODE_FAIL": "node-lost", "BOOT_FAIL": "node-lost", "PREEMPTED": "node-lost",
}  # fmt: skip
"""Source: squeue(1), "Job state codes"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """sbatch, squeue, sacct, scancel. `options` are more words for sbatch (partition, account)."""

    options: tuple[str, ...] = ()
    parallel: int = 8

    def submit(self, job: Job) -> str:
        minutes = int(-(-job.seconds // 60)) + 1  # ours ends it first; Slurm does where nobody watches
        answer = call(
            ["sbatch", "--parsable", f"--job-name={job.name}", f"--output={job.log}", f"--error={job.log}",
             "--open-mode=append", f"--time={minutes}", "--no-requeue", *self.options, str(job.script)]
        )  # fmt: skip
        if answer.returncode:
            text = told(answer)
            if re.search(r"Unable to contact|timed out|Connection refused|try again", answer.stderr, re.I):
                raise Unreachable(text)
            raise Refused(text)
        return answer.stdout.strip().split(";")[0]

    def find(self, job: Job) -> str | None:
        rows = self._rows(job)
        return rows[0][0] if rows else None

    def state(self, job: Job, id: str) -> State:
        for row_id, state, reason in self._rows(job):
            if row_id == id:
                word = state.split()[0].rstrip("+") if state else ""
                return State(SLURM_STATES.get(word, "running"), f"{state} ({reason})" if reason else state)
        return State("gone")

    def cancel(self, job: Job, id: str) -> None:
        call(["scancel", id])

    def _rows(self, job: Job) -> list[tuple[str, str, str]]:
        """(id, state, reason) of jobs of that name, which squeue forgets after minutes and sacct keeps."""
        answer = call(["squeue", "-h", "-t", "all", f"--name={job.name}", "-o", "%A|%T|%r"])
        if answer.returncode:
            raise Unreachable(told(answer))
        rows = _table(answer.stdout)
        if not rows:
            kept = call(["sacct", "-X", "-n", "-P", "-S", "now-30days", f"--name={job.name}",
                         "-o", "JobIDRaw,State,Reason"])  # fmt: skip
            rows = [] if kept.returncode else _table(kept.stdout)
        return rows


def told(answer: subprocess.CompletedProcess[str]) -> str:
    """What a Slurm command says went wrong; QuestionError where there is no Slurm to ask."""
    text = last_line(answer.stderr)
    if "configuration source" in answer.stderr:
        raise QuestionError(f"no Slurm is reached from here ({text}); set SLURM_CONF, or profile --on local")
    return text


def _table(text: str) -> list[tuple[str, str, str]]:
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return [(a.strip(), b.strip(), "" if c.strip() == "None" else c.strip()) for a, b, c in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Processes on this machine, by default one run at a time since each takes all GPUs."""

    parallel: int = 1
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""

    def submit(self, job: Job) -> str:
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                ["bash", str(job.script)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != "SLURM_JOB_ID"},
            )  # fmt: skip
        return str(process.pid)

    def find(self, job: Job) -> str | None:
        began = started(job)
        return began.job if began else None

    def state(self, job: Job, id: str) -> State:
        status = exit_status(job)
        if status is not None:
            return State("failed" if status else "ended", f"exit status {status}")
        if process_runs(int(id), job):
            return State("running")
        return State("cancelled", f"process {id} was killed")

    def cancel(self, job: Job, id: str) -> None:
        end = time.monotonic() + self.grace
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if not process_runs(int(id), job):
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(id), signum)
            while signum == signal.SIGTERM and process_runs(int(id), job) and time.monotonic() < end:
                time.sleep(0.1)


def process_runs(pid: int, job: Job) -> bool:
    """The process is alive and is this job's wrapper: ids are used again."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    words = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            return str(job.script).encode() in words.read_bytes()
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


WORDS: tuple[tuple[Kind, str], ...] = (
    ("gone", r"not.?found|no such"),
    ("oom", r"oom|out.?of.?memory"),
    ("timeout", r"time.?out|deadline"),
    ("cancelled", r"cancel|deleted|terminated|aborted|revoked"),
    ("node-lost", r"node.?(fail|lost)|evicted|preempt|shutdown"),
    ("failed", r"fail|error"),
    ("ended", r"succe|complete[d]?\b|done|finished"),
    ("running", r"running|completing|active|started|restarting"),
    ("waiting", r"pending|queue|waiting|creat|submitted|suspended|unknown"),
)
"""What schedulers call their states, the telling words first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Any other scheduler, by command lines with {name}, {script}, {command}, {log}, {folder}, {job}.

    submit  prints the job's id as the last line; {script} starts the run and notes its end
    status  prints a state; without it the notes beside the log tell (a shared file system)
    cancel  ends {job}
    logs    prints the log, for runs that do not write to {log}
    """

    submit_with: str
    status_with: str = ""
    cancel_with: str = ""
    logs_with: str = ""
    parallel: int = 4

    def submit(self, job: Job) -> str:
        answer = call(["bash", "-c", filled(self.submit_with, job)])
        if answer.returncode:
            raise Refused(last_line(answer.stderr) or f"exit status {answer.returncode}")
        return last_line(answer.stdout) or job.name

    def find(self, job: Job) -> str | None:
        began = started(job)
        if began is not None:
            return began.job
        if not self.status_with:
            return None
        answer = call(["bash", "-c", filled(self.status_with, job, job.name)])
        named = answer.returncode == 0 and answer.stdout.strip()
        return job.name if named and state_of(answer.stdout).kind != "gone" else None

    def state(self, job: Job, id: str) -> State:
        status = exit_status(job)
        if status is not None:
            return State("failed" if status else "ended", f"exit status {status}")
        if not self.status_with:
            return State("running" if started(job) else "waiting")
        answer = call(["bash", "-c", filled(self.status_with, job, id)])
        if answer.returncode and not re.search("not.?found", answer.stderr, re.I):
            raise Unreachable(last_line(answer.stderr))
        found = state_of(answer.stdout if not answer.returncode else "not found")
        if self.logs_with and found.kind not in ("waiting", "gone"):
            logs = call(["bash", "-c", filled(self.logs_with, job, id)])
            if logs.returncode == 0:
                job.log.write_text(logs.stdout, encoding="utf-8")
        return found

    def cancel(self, job: Job, id: str) -> None:
        if self.cancel_with:
            call(["bash", "-c", filled(self.cancel_with, job, id)])


def state_of(text: str) -> State:
    """A state that a command printed, in our words.

    >>> state_of("Succeeded").kind, state_of("PodInitializing pending").kind
    ('ended', 'waiting')
    """
    short = " ".join(text.split())[:200]
    for kind, words in WORDS:
        if re.search(words, short, re.I):
            return State(kind, short)
    return State("running" if short else "waiting", short)


def filled(template: str, job: Job, id: str = "") -> str:
    """A command line with its placeholders filled in, quoted."""
    values = {"name": job.name, "script": job.script, "command": job.command, "log": job.log,
              "folder": job.folder, "job": id}  # fmt: skip
    return re.sub(
        r"\{(name|script|command|log|folder|job)\}", lambda m: shlex.quote(str(values[m[1]])), template
    )


def call(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's command to its end."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise QuestionError(f"{words[0]} is not installed here; profile --on local, or --submit") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{words[0]} gave no answer in {PATIENCE:.0f} s") from None


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:500] if lines else ""


def scheduler_from(settings: Mapping[str, Any]) -> Scheduler:
    """The scheduler that a store's settings name."""
    kind, given = settings["scheduler"], dict(settings.get("scheduler_options") or {})
    if kind == "slurm":
        return Slurm(**{**given, "options": tuple(given.get("options", ()))})
    if kind == "local":
        return Local(**given)
    if kind == "command":
        if not given.get("submit_with"):
            raise QuestionError("say how a run is submitted: --submit 'kubectl apply -f {command}'")
        return Commands(**given)
    raise QuestionError(f"unknown scheduler {kind!r}; known: slurm, local, command")
