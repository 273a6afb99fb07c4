"""State on disk: whoever submits may be killed at any point, and nothing is lost or measured twice.

FOLDER/profile.json          how it is measured
FOLDER/events.jsonl          what happened when; only ever appended to
FOLDER/runs/001-NAME/run.json one run
FOLDER/runs/001-NAME/attempt-1/{run.sh, command.sh, run.log, started, exit}
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import QuestionError
from meshwright.verify.profile.runs import Candidate, Record, record_from

SETTINGS = "profile.json"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of runs. Make one with `create`, come back with `reopen`."""

    folder: Path

    def settings(self) -> dict[str, Any]:
        data = read_json(self.folder / SETTINGS)
        if not isinstance(data, dict) or "id" not in data:
            raise QuestionError(f"{self.folder / SETTINGS} is not what `meshwright profile` writes")
        return data

    def records(self) -> tuple[Record, ...]:
        """Every run, in the order in which they were added."""
        files = sorted((self.folder / "runs").glob("*/run.json"))
        return tuple(record_from(read_json(file)) for file in files)

    def save(self, record: Record, event: str, **more: object) -> Record:
        """Write a run's state, then note what happened."""
        folder = self.folder / "runs" / record.id
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "run.json", json.dumps(record.as_dict(), indent=1))
        self.note(record.id, event, **more)
        return record

    def note(self, run: str, event: str, **more: object) -> None:
        """Append one line to the log of events; a single write, so that lines never mix."""
        line = json.dumps({"time": round(time.time(), 3), "run": run, "event": event, **more}, default=str)
        with (self.folder / "events.jsonl").open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def events(self) -> list[dict[str, Any]]:
        """What happened so far; a line that was torn by a crash is left out."""
        path = self.folder / "events.jsonl"
        found = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def attempt(self, record: Record) -> Path:
        """Folder of a run's present attempt."""
        return self.folder / "runs" / record.id / f"attempt-{record.attempt}"

    def add(self, candidates: Sequence[Candidate]) -> tuple[Record, ...]:
        """Add runs; a script that is there already is not added again."""
        known = {record.candidate.digest for record in self.records()}
        number = len(known)
        added = []
        for candidate in candidates:
            if candidate.digest not in known:
                known.add(candidate.digest)
                number += 1
                record = Record(id=f"{number:03d}-{plain(candidate.name)}", candidate=candidate)
                added.append(self.save(record, "added"))
        return tuple(added)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One submitter a folder; the lock falls when its process ends, however it ends."""
        import fcntl

        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise QuestionError(
                    f"another `meshwright profile` works on {self.folder} right now"
                ) from None
            yield


def create(folder: Path, settings: Mapping[str, Any]) -> Store:
    """A store in a new or empty folder; one that is there already is kept if it measures the same way."""
    store = Store(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QuestionError(f"{folder} cannot be made: {error.strerror}") from None
    if (folder / SETTINGS).exists():
        before = store.settings()
        changed = [name for name, value in settings.items() if before.get(name) != value]
        if changed:
            was = ", ".join(f"{name} {before.get(name)!r} -> {settings[name]!r}" for name in changed)
            raise QuestionError(f"{folder} was measured otherwise ({was}); name another folder")
        return store
    if any(folder.iterdir()):
        raise QuestionError(f"{folder} is not empty and holds no profile; name another folder")
    write_atomically(folder / SETTINGS, json.dumps({"id": uuid.uuid4().hex[:8], **settings}, indent=1))
    return store


def reopen(folder: Path) -> Store:
    """The store in a folder; QuestionError where there is none."""
    if not (folder / SETTINGS).is_file():
        raise QuestionError(f"there is no profile in {folder}")
    store = Store(folder)
    store.settings()
    return store


def write_atomically(path: Path, text: str) -> None:
    """The file has the old text or the new one, whenever the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise QuestionError(f"{path} cannot be read: {error}") from None


def plain(name: str) -> str:
    """A name for a folder and a job."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60] or "run"
