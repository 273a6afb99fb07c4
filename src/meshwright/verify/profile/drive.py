"""The loop that submits, watches and concludes. Killed at any point, it goes on from what is on disk.

Of each run the order on disk is: `submitting` -> the scheduler is asked -> `submitted` -> `done`. Who finds
`submitting` asks the scheduler for the run's own job name before submitting again, and the wrapper lets
only one job of an attempt run, so that nothing is measured twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from meshwright.errors import QuestionError
from meshwright.verify.profile.outcome import outcome_of
from meshwright.verify.profile.runs import NOT_OF_THE_LAYOUT, Outcome, Record
from meshwright.verify.profile.schedulers import Refused, Scheduler, State, Unreachable
from meshwright.verify.profile.store import Store
from meshwright.verify.profile.wrapper import Job, exit_status, started, write_scripts

OVER = ("ended", "failed", "cancelled", "timeout", "oom", "node-lost")
GRACE = 20.0
"""Seconds for which a job may be unknown to the scheduler: accounting and shared file systems lag."""
MOST_SILENCE = 1800.0
"""Seconds without any answer of the scheduler after which the loop stops; what runs goes on running."""
STILL_ENDING = 60.0
"""Seconds between the end of a script, or a cancel, and the end of its job; then we go on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How the loop watches.

    seconds     a run may take, from its start [s]
    iterations  a run makes; None where its log says so
    poll        seconds between two looks
    workdir     where the scripts are started
    report      is told of each change
    """

    seconds: float
    iterations: int | None
    workdir: Path
    poll: float = 10.0
    report: Callable[[Record, str], None] | None = None


class Loop:
    """One submitter at work on a store."""

    def __init__(self, store: Store, scheduler: Scheduler, watch: Watch) -> None:
        self.store, self.scheduler, self.watch = store, scheduler, watch
        self.campaign = str(store.settings()["id"])
        self.missing: dict[str, float] = {}
        self.ending: dict[str, float] = {}
        self.answered = time.monotonic()

    def run(self) -> None:
        """Until every run has an outcome; Unreachable schedulers are asked again."""
        with self.store.lock():
            while True:
                open_runs = [record for record in self.store.records() if record.phase != "done"]
                if not open_runs:
                    return
                self._round(open_runs)
                if any(record.phase != "done" for record in self.store.records()):
                    time.sleep(self.watch.poll)

    def _round(self, open_runs: list[Record]) -> None:
        held = sum(record.phase == "submitted" for record in open_runs)
        for record in open_runs:
            try:
                if record.phase == "submitted":
                    held -= self._look(record).phase == "done"
                elif held < self.scheduler.parallel:
                    held += self._submit(record).phase == "submitted"
                self.answered = time.monotonic()
            except Unreachable as error:
                self.store.note(record.id, "unreachable", why=str(error))
                if self.watch.report is not None:
                    self.watch.report(record, f"the scheduler gives no answer ({error})")
                if time.monotonic() - self.answered > MOST_SILENCE:
                    raise QuestionError(
                        f"the scheduler has not answered for {MOST_SILENCE / 60:.0f} minutes ({error}); "
                        f"nothing is lost: go on later with --resume {self.store.folder}"
                    ) from None

    def job(self, record: Record) -> Job:
        """What the scheduler is given for a run; the name is this attempt's alone."""
        number = record.id.partition("-")[0]
        return Job(
            name=f"mw-{self.campaign}-{number}-{record.attempt}",
            folder=self.store.attempt(record).resolve(),
            seconds=self.watch.seconds,
        )

    def _submit(self, record: Record) -> Record:
        job = self.job(record)
        if record.phase == "submitting" and (found := self.scheduler.find(job)):
            return self._save(_submitted(record, found), "found", job=found)
        write_scripts(job, record.candidate.script, self.watch.workdir)
        if record.phase == "new":
            record = self._save(replace(record, phase="submitting"), "submitting", name=job.name)
        try:
            id = self.scheduler.submit(job)
        except Refused as error:
            return self._done(record, Outcome(kind="refused", why=str(error)))
        return self._save(_submitted(record, id), "submitted", job=id)

    def _look(self, record: Record) -> Record:
        """Conclude a run that has ended, or end one whose time is over."""
        job = self.job(record)
        began = started(job)
        id = began.job if began else record.job
        state = self.scheduler.state(job, id)
        status = exit_status(job)
        if self._over(record, state):
            return self._conclude(record, job, state, status)
        if status is not None and self._has_ended_long_ago(record):
            return self._conclude(record, job, State("failed" if status else "ended"), status)
        if status is not None:  # the scheduler is about to say why
            return record
        if began and not record.limit_hit and time.time() - began.time > self.watch.seconds:
            record = self._save(replace(record, limit_hit=True), "time is over", seconds=self.watch.seconds)
        if record.limit_hit:
            self.scheduler.cancel(job, id)
            if self._has_ended_long_ago(record):
                return self._conclude(record, job, State("timeout", "it did not end when cancelled"), None)
        return record

    def _has_ended_long_ago(self, record: Record) -> bool:
        """The first time, the clock starts."""
        since = self.ending.setdefault(record.id, time.monotonic())
        return time.monotonic() - since > STILL_ENDING

    def _over(self, record: Record, state: State) -> bool:
        if state.kind != "gone":
            self.missing.pop(record.id, None)
            return state.kind in OVER
        since = self.missing.setdefault(record.id, time.monotonic())
        return time.monotonic() - since > GRACE

    def _conclude(self, record: Record, job: Job, state: State, status: int | None) -> Record:
        outcome = outcome_of(
            record.candidate,
            job.log,
            state,
            status,
            limit=self.watch.seconds if record.limit_hit else None,
            iterations=self.watch.iterations,
        )
        return self._done(record, outcome)

    def _done(self, record: Record, outcome: Outcome) -> Record:
        done = replace(record, phase="done", outcome=outcome)
        return self._save(done, "done", kind=outcome.kind, why=outcome.why, seconds=outcome.seconds)

    def _save(self, record: Record, event: str, **more: object) -> Record:
        self.store.save(record, event, **more)
        if self.watch.report is not None:
            self.watch.report(record, event)
        return record


def _submitted(record: Record, job: str) -> Record:
    return replace(record, phase="submitted", job=job, submitted=time.time())


def drive(store: Store, scheduler: Scheduler, watch: Watch) -> None:
    """Measure everything in the store that has no outcome yet."""
    Loop(store, scheduler, watch).run()


def retry(store: Store) -> int:
    """Give runs whose failure says nothing about the layout another attempt; how many."""
    number = 0
    with store.lock():
        for record in store.records():
            outcome = record.outcome
            if record.phase == "done" and outcome is not None and outcome.kind in NOT_OF_THE_LAYOUT:
                again = Record(
                    id=record.id,
                    candidate=record.candidate,
                    attempt=record.attempt + 1,
                    earlier=(*record.earlier, outcome),
                )
                store.save(again, "again", attempt=again.attempt)
                number += 1
    return number
