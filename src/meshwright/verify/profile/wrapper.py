"""The script around a run: it starts at most once, and leaves beside it what happened."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from meshwright.verify.profile.store import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a scheduler is given.

    name     nobody else's job has it
    folder   of this attempt
    seconds  it may run [s]
    """

    name: str
    folder: Path
    seconds: float

    @property
    def script(self) -> Path:
        return self.folder / "run.sh"

    @property
    def command(self) -> Path:
        """The candidate's own script, as written."""
        return self.folder / "command.sh"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"


@dataclass(frozen=True, slots=True)
class Started:
    """Who began the run: the Slurm job or the process on this machine, and when (unix time) [s]."""

    job: str
    time: float


def write_scripts(job: Job, script: str, workdir: Path) -> None:
    """`command.sh` and the wrapper `run.sh` of an attempt."""
    job.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(job.command, script)
    write_atomically(job.script, wrapped(job, script, workdir))


def wrapped(job: Job, script: str, workdir: Path) -> str:
    """The wrapper's text.

    `mkdir` is atomic: of two jobs that were submitted for one measurement, only one runs it.
    """
    folder, command, work = (shlex.quote(str(path)) for path in (job.folder, job.command, workdir))
    return (
        "#!/bin/bash\n"
        + "".join(f"{line}\n" for line in directives(script))
        + f"cd {folder} || exit 97\n"
        + 'mkdir claim 2>/dev/null || { echo "this measurement was started before"; exit 0; }\n'
        + 'echo "${SLURM_JOB_ID:-$$} $(date +%s)" >.started && mv .started started\n'
        + f"cd {work} || exit 97\n"
        + f"bash {command}\n"
        + "status=$?\n"
        + f'echo "$status" >{folder}/.exit && mv {folder}/.exit {folder}/exit\n'
        + "exit $status\n"
    )


def directives(script: str) -> list[str]:
    """The #SBATCH lines that sbatch would read: those before the first command."""
    found = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            found.append(line)
        elif line.strip() and not line.startswith("#"):
            break
    return found


def started(job: Job) -> Started | None:
    """Who began the run; None before it began."""
    words = _words(job.folder / "started")
    if len(words) < 2 or not words[1].isdigit():
        return None
    return Started(words[0], float(words[1]))


def exit_status(job: Job) -> int | None:
    """Exit status of the candidate's script; None while it runs, or where the wrapper was killed."""
    words = _words(job.folder / "exit")
    return int(words[0]) if words and words[0].lstrip("-").isdigit() else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
