"""`profile` on a real Slurm: killed, cancelled, crashed and resumed, nothing is measured twice or lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.api import profiling as api
from meshwright.verify.profile.runs import Candidate

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
TRAINER = Path(__file__).with_name("trainer.py")
SUBMITTER = (
    "import sys; from meshwright.api import profiling as api;"
    "api.profile(api.open_profile(sys.argv[1]), poll=0.2)"
)


def candidate(folder: Path, tp: int, milliseconds: float, fault: str = "", iterations: int = 6) -> Candidate:
    """A run whose log shows TP `tp` on 8 ranks and steps of so many milliseconds."""
    script = (
        "#!/bin/bash\n#SBATCH --gpus-per-node=2\n#SBATCH --ntasks=1\n"
        f"{sys.executable} {TRAINER} --tp {tp} --milliseconds {milliseconds} --iterations {iterations} "
        f"--fault '{fault}' --note {folder}/started\n"
    )
    return Candidate(
        name=f"tp{tp}", script=script, degrees={"tp": tp, "dp": 8 // tp}, world=8,
        predicted=(0.9e-3 * milliseconds, 1e-3 * milliseconds, 1.1e-3 * milliseconds),
    )  # fmt: skip


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


def submitter(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", SUBMITTER, str(folder)],
        env={**environment, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
    )


def starts(folder: Path) -> Counter[str]:
    path = folder / "started"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def test_a_campaign_survives_a_killed_submitter_scancel_a_crash_and_a_hang(slurm, tmp_path, monkeypatch):
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "profile"
    runs = [
        candidate(tmp_path, 1, 300),
        candidate(tmp_path, 2, 100),
        candidate(tmp_path, 4, 20, fault="crash"),
        candidate(tmp_path, 8, 20, fault="oom"),
        candidate(tmp_path, 1, 30, fault="hang"),
        candidate(tmp_path, 2, 1000, iterations=500),
    ]
    settings = {"seconds": 6.0, "scheduler_options": {"parallel": 4}, "workdir": str(tmp_path)}
    store = api.start(runs, folder, settings)

    first = submitter(folder, slurm)
    until(lambda: any(record.phase == "submitted" for record in store.records()))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    until(lambda: starts(tmp_path))
    assert any(record.phase != "done" for record in store.records())

    second = submitter(folder, slurm)
    until(lambda: starts(tmp_path)["tp2"] == 2)
    subprocess.run(["scancel", store.records()[5].job], check=True)
    assert second.wait(timeout=60) == 0

    kinds = [record.outcome.kind for record in store.records()]
    assert kinds == ["measured", "measured", "crashed", "oom", "hang", "cancelled"]
    why = [record.outcome.why for record in store.records()]
    assert "the data set ended" in why[2]
    assert "rank 3" in why[3]
    assert "at iteration 1" in why[4]
    assert starts(tmp_path) == {"tp1": 2, "tp2": 2, "tp4": 1, "tp8": 1}

    ranking = api.ranking_of(store)
    assert [(row.name, row.place) for row in ranking.rows[:3]] == [("tp2", 1), ("tp1", 2), ("tp4", None)]
    assert ranking.rows[0].measured == pytest.approx(0.1)
    assert ranking.rows[0].outcome.allocated == 40960 * 2**20

    before = [record.as_dict() for record in store.records()]
    assert api.profile(store, poll=0.2).best.name == "tp2"
    assert [record.as_dict() for record in store.records()] == before
    assert sum(starts(tmp_path).values()) == 6


def test_what_slurm_refuses_is_a_result_in_its_own_words(slurm, tmp_path, monkeypatch):
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    too_many = candidate(tmp_path, 1, 20)
    script = too_many.script.replace("--gpus-per-node=2", "--gpus-per-node=9")
    store = api.start([Candidate(name="nine", script=script)], tmp_path / "profile", {})
    row = api.profile(store, poll=0.2).rows[0]
    assert row.outcome.kind == "refused"
    assert "node configuration is not available" in row.outcome.why


def test_the_command_line_ranks_layouts_by_a_command_of_ones_own(slurm, tmp_path):
    command = f"srun {sys.executable} {TRAINER} --tp {{tp}} --milliseconds $((80 / {{tp}}))"
    command += " --iterations {iterations}"
    words = ["profile", "llama3-8b", "--gpus", "8xH100", "--layout", "tp=1", "--layout", "tp=4",
             "--command", command, "--iterations", "4", "--poll", "0.2", "--json"]  # fmt: skip
    main = "import typer; from meshwright.cli import profiling as p; a = typer.Typer(); p.register(a); a()"
    environment = {**slurm, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    answer = subprocess.run([sys.executable, "-c", main, *words], cwd=tmp_path, env=environment,
                            capture_output=True, text=True, timeout=60)  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    runs = json.loads(answer.stdout)["runs"]
    assert [run["name"].split()[0] for run in runs] == ["tp4", "dp8"]
    assert [run["measured"] for run in runs] == [0.02, 0.08]
    assert all(run["predicted"] for run in runs)
