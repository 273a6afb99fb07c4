"""Every command that the documentation shows runs as it says."""

from __future__ import annotations

import io
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import typer.main
from tests.docs.reading import DOCS, ROOT, Saved, Shown, pages, steps

from meshwright.cli.main import app, main

LOGS = ROOT / "tests/verify/data/logs"
BESIDE = {"run.log": LOGS / "mlm_pass.log", "oom.log": LOGS / "mlm_oom_last_stage.log"}
"""Files that a reader has, and a page only names."""
WITH_COMMANDS = [path for path in pages() if any(isinstance(step, Shown) for step in steps(path))]


def run(line: str) -> tuple[int, str]:
    """The exit status and everything printed; `| head -N` is left out, `> file` is written."""
    words = shlex.split(line.split(" | head")[0])
    target = None
    if ">" in words:
        target = Path(words[words.index(">") + 1])
        words = words[: words.index(">")]
    printed, errors = io.StringIO(), io.StringIO()
    kept, sys.argv = sys.argv, words
    try:
        with redirect_stdout(printed), redirect_stderr(errors):
            main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = kept
    if target is not None:
        target.write_text(printed.getvalue(), encoding="utf-8")
    return status, printed.getvalue() + errors.getvalue()


def parses(line: str) -> None:
    """Raises where a command or an option of the line does not exist."""
    group = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], words[1:])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the reader's files, and a home of its own."""
    for name, source in BESIDE.items():
        (tmp_path / name).write_bytes(source.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in {"COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "MESHWRIGHT_CALIBRATION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_command_of_a_page_runs(page: Path, desk: Path) -> None:
    for step in steps(page):
        if isinstance(step, Saved):
            path = desk / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
        elif step.status is None:
            parses(step.line)
        else:
            status, printed = run(step.line)
            assert status == step.status, f"{step.line}\n{printed[-2000:]}"
            assert "Traceback" not in printed, step.line
            assert "internal error" not in printed, step.line


def test_most_pages_show_commands_and_few_are_only_parsed() -> None:
    shown = [step for page in pages() for step in steps(page) if isinstance(step, Shown)]
    assert len(shown) >= 60
    assert sum(step.status is None for step in shown) <= 8


def test_a_command_that_fails_is_seen(desk: Path) -> None:
    assert run("meshwright plan llama3-8b --gpus 0xH100")[0] == 2
    with pytest.raises(Exception, match="no-such-option"):
        parses("meshwright profile --no-such-option")
