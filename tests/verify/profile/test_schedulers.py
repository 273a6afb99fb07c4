"""This machine and commands of one's own as schedulers: real processes, killed, hanging and failing."""

import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.api import profiling as api
from meshwright.verify.profile.runs import Candidate
from meshwright.verify.profile.schedulers import state_of
from meshwright.verify.profile.wrapper import Job, directives, write_scripts

TRAINER = Path(__file__).parents[2] / "slurm" / "trainer.py"


def run(folder: Path, fault: str = "", iterations: int = 4) -> Candidate:
    command = f"{sys.executable} {TRAINER} --milliseconds 10 --iterations {iterations} --fault '{fault}'"
    return Candidate(name=fault or "good", script=f"{command} --note {folder}/started\n", degrees={"tp": 1})


def measure(folder: Path, runs: list[Candidate], **settings: object) -> dict[str, str]:
    store = api.start(runs, folder / "profile", {"workdir": str(folder), **settings})
    answer = api.profile(store, poll=0.05)
    return {row.name: row.outcome.kind for row in answer.rows}


def test_runs_on_this_machine_and_their_failures(tmp_path):
    options = {"parallel": 2, "grace": 0.5}
    runs = [run(tmp_path), run(tmp_path, "crash"), run(tmp_path, "oom"), run(tmp_path, "hang")]
    found = measure(tmp_path, runs, scheduler="local", seconds=2.0, scheduler_options=options)
    assert found == {"good": "measured", "crash": "crashed", "oom": "oom", "hang": "hang"}


def test_a_log_of_another_layout_does_not_count(tmp_path):
    good = run(tmp_path)
    other = Candidate(name="tp2", script=good.script + "# tp2\n", degrees={"tp": 2})
    assert measure(tmp_path, [other], scheduler="local") == {"tp2": "wrong"}


def test_any_scheduler_by_its_commands(tmp_path):
    options = {"submit_with": "bash {script} >{log} 2>&1 & echo job/$!"}
    assert measure(tmp_path, [run(tmp_path)], scheduler="command", scheduler_options=options) == {
        "good": "measured"
    }


def test_a_scheduler_whose_runs_leave_nothing_here_is_asked_for_state_and_log(tmp_path):
    far = tmp_path / "far"
    options = {
        "submit_with": f"bash {{command}} >{far} 2>&1; echo {{name}}",
        "status_with": "echo Succeeded {job}",
        "logs_with": f"cat {far}",
    }
    assert measure(tmp_path, [run(tmp_path)], scheduler="command", scheduler_options=options) == {
        "good": "measured"
    }


def test_of_two_jobs_of_one_measurement_only_one_runs(tmp_path):
    job = Job(name="j", folder=tmp_path / "a b", seconds=60)
    write_scripts(job, f"echo ran >>{tmp_path}/ran; exit 3\n", tmp_path)
    codes = [subprocess.run(["bash", job.script], check=False).returncode for _ in range(2)]
    assert codes == [3, 0]
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert (job.folder / "exit").read_text() == "3\n"


def test_directives_end_at_the_first_command():
    text = "#!/bin/bash\n#SBATCH -N 2\n# why\n\n#SBATCH -p x\nsrun a\n#SBATCH -N 9\n"
    assert directives(text) == ["#SBATCH -N 2", "#SBATCH -p x"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Succeeded", "ended"), ("Complete", "ended"), ("Failed", "failed"), ("Pending", "waiting"),
        ("Running", "running"), ("Created", "waiting"), ("OOMKilled", "oom"), ("Evicted", "node-lost"),
        ("", "waiting"), ('Error from server (NotFound): pods "x" not found', "gone"),
    ],
)  # fmt: skip
def test_states_in_the_words_of_kubernetes(text, kind):
    assert state_of(text).kind == kind
