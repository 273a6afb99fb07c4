"""Run every command shown in README.md and put its real output back below it.

    python tools/refresh_readme.py          rewrite the file
    python tools/refresh_readme.py --check  exit 1 where it differs

A block starts with ```console and one line `$ meshwright ...`; `| head -N` shortens what is shown.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.S)
SECONDS = re.compile(r"\(\d+\.\d+ s\)")
"""How long a search took differs from run to run."""


def output_of(command: str) -> str:
    """What the command prints, at 80 columns and without colour."""
    words, _, rest = command.partition(" | head -")
    arguments = shlex.split(words)
    program = [sys.executable, "-c", "from meshwright.cli.main import main; main()", *arguments[1:]]
    done = subprocess.run(
        program,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        check=False,
    )
    lines = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
    shown = lines[: int(rest)] if rest else lines
    return "".join(f"{line}\n" for line in shown)


def refreshed(text: str) -> str:
    return BLOCK.sub(lambda m: f"```console\n$ {m['command']}\n{output_of(m['command'])}```", text)


def without_times(text: str) -> str:
    return SECONDS.sub("(- s)", text)


def main() -> int:
    path = Path(__file__).parent.parent / "README.md"
    old = path.read_text(encoding="utf-8")
    new = refreshed(old)
    if "--check" in sys.argv:
        return int(without_times(old) != without_times(new))
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
