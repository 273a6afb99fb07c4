"""Every command that the documentation shows runs as it says, and prints what is shown."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer.main
from tools.refresh_docs import (
    DOCS,
    ENVIRONMENT,
    Saved,
    Shown,
    pages,
    prepare,
    run,
    save,
    steps,
    without_times,
)

from meshwright.cli.main import app

SHOWN = {path: tuple(steps(path.read_text(encoding="utf-8"))) for path in pages()}
WITH_COMMANDS = [path for path, found in SHOWN.items() if any(isinstance(one, Shown) for one in found)]


def parses(line: str) -> None:
    """Raises where a command or an option of the line does not exist."""
    group = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], words[1:])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the reader's files, and a home of its own."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "MESHWRIGHT_CALIBRATION", "MESHWRIGHT_LANG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_command_of_a_page_runs(page: Path, desk: Path) -> None:
    for step in SHOWN[page]:
        if isinstance(step, Saved):
            save(step, desk)
        elif step.status is None:
            parses(step.line)
        else:
            status, printed = run(step.line)
            assert status == step.status, f"{step.line}\n{printed[-2000:]}"
            assert "Traceback" not in printed, step.line
            assert "internal error" not in printed, step.line
            if step.output:
                assert without_times(printed) == without_times(step.output), "python tools/refresh_docs.py"


def test_most_pages_show_commands_and_few_are_only_parsed() -> None:
    shown = [step for found in SHOWN.values() for step in found if isinstance(step, Shown)]
    assert len(shown) >= 60
    assert sum(step.status is None for step in shown) <= 8


def test_a_command_that_fails_is_seen(desk: Path) -> None:
    assert run("meshwright plan llama3-8b --gpus 0xH100")[0] == 2
    with pytest.raises(Exception, match="no-such-option"):
        parses("meshwright profile --no-such-option")
