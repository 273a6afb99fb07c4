"""Run every command shown in README.md and README.zh-CN.md and put its real output back below it.

    python tools/refresh_readme.py          rewrite the files
    python tools/refresh_readme.py --check  exit 1 where they differ

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
FILES = ("README.md", "README.zh-CN.md")
SECONDS = re.compile(r"[(（]\d+\.\d+ (?:s|秒)[)）]")
"""How long a search took differs from run to run."""


def output_of(command: str) -> str:
    """What the command prints, at 80 columns and without colour."""
    words, _, rest = command.partition(" | head -")
    arguments = shlex.split(words)
    program = [sys.executable, "-c", "from meshwright.cli.main import main; main()", *arguments[1:]]
    done = subprocess.run(
        program,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "MESHWRIGHT_LANG": "", "PYTHONUTF8": "1"},
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
    differ = False
    for name in FILES:
        path = Path(__file__).parent.parent / name
        old = path.read_text(encoding="utf-8")
        new = refreshed(old)
        differ |= without_times(old) != without_times(new)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    return int(differ and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
