"""The submitter may be killed at any point: every run is started once, and every run gets its outcome."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshwright.verify.profile import drive as driving
from meshwright.verify.profile.runs import Candidate
from meshwright.verify.profile.schedulers import Refused, State, Unreachable
from meshwright.verify.profile.store import Store, create
from meshwright.verify.profile.wrapper import Job

LOG = "".join(
    f" iteration {n}/ 6 | elapsed time per iteration (ms): {{ms}} | lm loss: 2.0E+00 |\n" for n in range(1, 7)
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@dataclass
class Cluster:
    """A scheduler whose jobs end at the second look. It lives on when its submitter is killed."""

    parallel: int = 2
    jobs: dict[str, str] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    fuse: int = 10**9
    """Calls until the submitter is killed."""
    down: int = 0
    """Calls that will go unanswered."""

    def _burn(self) -> None:
        self.fuse -= 1
        if self.fuse == 0:
            raise Killed
        if self.down:
            self.down -= 1
            raise Unreachable("no answer")

    def submit(self, job: Job) -> str:
        self._burn()
        assert job.name not in self.jobs, "submitted twice"
        if "refuse" in job.command.read_text():
            raise Refused("no such partition")
        self.jobs[job.name] = str(len(self.jobs) + 1)
        (job.folder / "started").write_text(f"{self.jobs[job.name]} 9999999999")
        self._burn()
        return self.jobs[job.name]

    def find(self, job: Job) -> str | None:
        self._burn()
        return self.jobs.get(job.name)

    def state(self, job: Job, id: str) -> State:
        self._burn()
        self.looks[id] = self.looks.get(id, 0) + 1
        if self.looks[id] < 2:
            return State("running")
        job.log.write_text(LOG.replace("{ms}", job.command.read_text()))
        (job.folder / "exit").write_text("0")
        return State("ended")

    def cancel(self, job: Job, id: str) -> None:
        self._burn()


def store_of(folder: Path, scripts: list[str]) -> Store:
    store = create(folder / "p", {"scheduler": "fake"})
    store.add([Candidate(name=f"run {text}", script=text) for text in scripts])
    return store


def drive(store: Store, cluster: Cluster) -> None:
    driving.drive(store, cluster, driving.Watch(seconds=60, iterations=6, workdir=Path("/"), poll=0))


@pytest.mark.parametrize("calls", range(1, 16))
def test_killed_after_any_call_to_the_scheduler(tmp_path, calls):
    store, cluster = store_of(tmp_path, ["300", "100", "200"]), Cluster(fuse=calls)
    try:
        drive(store, cluster)
    except Killed:
        cluster.fuse = 10**9
        drive(store, cluster)
    assert [record.outcome.seconds for record in store.records()] == [0.3, 0.1, 0.2]
    assert len(cluster.jobs) == 3


@pytest.mark.parametrize("saves", range(1, 10))
def test_killed_before_any_write_of_state(tmp_path, monkeypatch, saves):
    store, cluster, left = store_of(tmp_path, ["300", "100", "200"]), Cluster(), [saves]
    save = Store.save

    def dying(self, record, event, **more):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return save(self, record, event, **more)

    monkeypatch.setattr(Store, "save", dying)
    with pytest.raises(Killed):
        drive(store, cluster)
    drive(store, cluster)
    assert [record.outcome.kind for record in store.records()] == ["measured"] * 3
    assert len(cluster.jobs) == 3


def test_a_scheduler_that_is_down_for_a_while_loses_nothing(tmp_path):
    store, cluster = store_of(tmp_path, ["100"]), Cluster(down=5)
    drive(store, cluster)
    assert store.records()[0].outcome.kind == "measured"
    assert [event["event"] for event in store.events()].count("unreachable") == 5


def test_a_refusal_is_a_result_and_the_others_go_on(tmp_path):
    store, cluster = store_of(tmp_path, ["refuse", "100"]), Cluster()
    drive(store, cluster)
    assert [r.outcome.kind for r in store.records()] == ["refused", "measured"]
    assert store.records()[0].outcome.why == "no such partition"


def test_only_what_says_nothing_of_the_layout_is_tried_again(tmp_path):
    store, cluster = store_of(tmp_path, ["refuse", "100"]), Cluster()
    drive(store, cluster)
    assert driving.retry(store) == 1
    first, second = store.records()
    assert (first.phase, first.attempt, first.earlier[0].kind) == ("new", 2, "refused")
    assert second.outcome.kind == "measured"


def test_the_same_script_is_one_measurement(tmp_path):
    store = store_of(tmp_path, ["100", "200", "100"])
    assert len(store.records()) == 2
    assert store.add([Candidate(name="again", script="200")]) == ()


def test_two_submitters_do_not_share_a_folder(tmp_path):
    store = store_of(tmp_path, ["100"])
    with store.lock(), pytest.raises(Exception, match="another `meshwright profile`"), store.lock():
        pass


def test_a_folder_measured_otherwise_is_not_mixed(tmp_path):
    create(tmp_path / "p", {"scheduler": "slurm", "seconds": 60})
    with pytest.raises(Exception, match="seconds 60 -> 90"):
        create(tmp_path / "p", {"scheduler": "slurm", "seconds": 90})


def test_a_job_that_is_unknown_for_a_moment_is_not_given_up(tmp_path, monkeypatch):
    store, cluster = store_of(tmp_path, ["100"]), Cluster()
    state, gone = Cluster.state, [State("gone"), State("gone")]
    monkeypatch.setattr(Cluster, "state", lambda *a: gone.pop() if gone else state(*a))
    drive(store, cluster)
    assert store.records()[0].outcome.kind == "measured"


def test_a_job_that_stays_unknown_is_lost(tmp_path, monkeypatch):
    store, cluster = store_of(tmp_path, ["100"]), Cluster()
    monkeypatch.setattr(Cluster, "state", lambda *a: State("gone"))
    monkeypatch.setattr(driving, "GRACE", 0.0)
    drive(store, cluster)
    assert store.records()[0].outcome.kind == "lost"


def test_of_two_jobs_of_one_run_the_one_that_began_is_watched(tmp_path, monkeypatch):
    store, cluster = store_of(tmp_path, ["100"]), Cluster()
    submit, state = Cluster.submit, Cluster.state
    watched = []
    monkeypatch.setattr(Cluster, "submit", lambda self, job: submit(self, job) + "00")
    monkeypatch.setattr(Cluster, "state", lambda self, job, id: watched.append(id) or state(self, job, id))
    drive(store, cluster)
    assert set(watched) == {"1"}


def test_a_run_whose_time_is_over_is_cancelled_and_called_a_hang(tmp_path, monkeypatch):
    store, cluster = store_of(tmp_path, ["100"]), Cluster()
    cancelled = []
    monkeypatch.setattr(Cluster, "cancel", lambda self, job, id: cancelled.append(id))
    monkeypatch.setattr(
        Cluster, "state", lambda self, job, id: State("cancelled" if cancelled else "running")
    )
    submit = Cluster.submit

    def long_ago(self, job):
        id = submit(self, job)
        (job.folder / "started").write_text(f"{id} 1")
        return id

    monkeypatch.setattr(Cluster, "submit", long_ago)
    drive(store, cluster)
    assert cancelled == ["1"]
    assert store.records()[0].outcome.kind == "hang"
