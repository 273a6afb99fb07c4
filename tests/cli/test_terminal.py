"""Screens fit the terminal they are on: 40 columns or 80, nothing cut, colour only where it is shown."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from meshwright.cli.main import app

LOG = str(Path(__file__).parents[1] / "verify" / "data" / "logs" / "mlm_slow.log")
COMMANDS = [
    "plan llama3-70b --gpus 64xH100 --top 3",
    "plan deepseek-v3 --gpus 256xH100 --top 3",
    "plan llama3-8b --gpus 8,16xH100",
    "plan llama3-8b --gpus 8xH100 --explain",
    "plan llama3-8b --gpus 8xH100 --why-not tp=8",
    "estimate deepseek-v3 --gpus 256xH100 --tp 2 --pp 8 --ep 32 --draw",
    "estimate llama3-8b --gpus 8xH100 --tp 2 --memory",
    "estimate llama3-8b --gpus 8xH100 --tp 3",
    "ranks --gpus 64xGB200 --tp 4 --pp 2 --rank 3",
    "models llama",
    "gpus",
    "verify llama3-8b --gpus 8xH100 --tp 2 --level 3",
    f"verify llama3-8b --gpus 32xH100 --tp 4 --log {LOG}",
]


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("words", COMMANDS)
def test_nothing_is_wider_than_the_terminal_and_nothing_is_cut(words: str, columns: int) -> None:
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": str(columns)})
    assert done.exit_code in (0, 1), done.exception
    lines = done.stdout.splitlines()
    assert [line for line in lines if Text(line).cell_len > columns] == []
    assert [line for line in lines if "…" in line] == []
    assert "\x1b" not in done.stdout


def on_a_terminal(*words: str, **environment: str) -> str:
    """What a command prints where standard output is a terminal."""
    ours, theirs = pty.openpty()
    start = "from meshwright.cli.main import main; main()"
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", start, *words], stdout=theirs, stderr=subprocess.DEVNULL,
        env={**plain, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(ours)
    return b"".join(parts).decode()


COLOUR = re.compile(r"\x1b\[(?:\d;)*(?:3|9)\d")


def test_colour_is_for_terminals_that_want_it() -> None:
    words = ("estimate", "llama3-8b", "--gpus", "8xH100", "--tp", "2")
    assert COLOUR.search(on_a_terminal(*words))
    assert not COLOUR.search(on_a_terminal(*words, NO_COLOR="1"))


def test_a_drawn_layout_shows_its_memory_and_its_step() -> None:
    done = CliRunner().invoke(
        app, ["estimate", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--pp", "2", "--draw"]
    )
    assert "w weights  g gradients  o optimizer  a activations  x other" in done.stdout
    assert "f forward, b backward" in done.stdout


def test_rules_are_wrapped_for_people_and_one_a_line_for_programs() -> None:
    shown = on_a_terminal("explain", COLUMNS="60").splitlines()
    assert max(len(line.rstrip("\r")) for line in shown) <= 60
    piped = CliRunner().invoke(app, ["explain"]).stdout.splitlines()
    assert all(re.match(r"(error|warn|advice) +[a-z0-9-]+: ", line) for line in piped)
