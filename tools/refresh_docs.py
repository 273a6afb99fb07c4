"""Run every command that the documentation shows, and put its real output back where output is shown.

    python tools/refresh_docs.py    rewrite the pages in docs/

A ```console block holds lines `$ meshwright ...`; lines below one are its output (`| head -N` shortens it).
A block with title="name" is a file that the reader saves. `<!-- exit N -->` above a block says that its
first command ends so; `<!-- parsed only: why -->`, that its commands are not run.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LOGS = ROOT / "tests" / "verify" / "data" / "logs"
BESIDE = {"run.log": LOGS / "mlm_pass.log", "oom.log": LOGS / "mlm_oom_last_stage.log"}
"""Files that a reader has, and a page only names."""
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=mark)[ ]*$", re.S | re.M)
STATUS = re.compile(r"<!-- exit (\d+) -->\s*$")
PARSED = re.compile(r"<!-- parsed only: [^\n]* -->\s*$")
SECONDS = re.compile(r"\(\d+\.\d+ s\)")
"""How long a search took differs from run to run."""


@dataclass(frozen=True)
class Shown:
    """One command line of a page.

    status  what it must end with; None: its words are parsed, and it is not run (a service, a cluster)
    output  the lines that the page shows below it; empty where it shows none
    at      where those lines stand in the page
    """

    line: str
    status: int | None
    output: str
    at: tuple[int, int]


@dataclass(frozen=True)
class Saved:
    """A block that the reader is asked to save under a name."""

    name: str
    text: str


def pages() -> list[Path]:
    """Every page that people write; pages of rules show no commands."""
    return sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "rules")


def steps(text: str) -> Iterator[Shown | Saved]:
    """Commands and files of a page, in the order in which a reader meets them."""
    for block in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', block["info"])
        language = (block["info"].split() or [""])[0]
        if title:
            yield Saved(title[1], block["body"])
        elif language in ("console", "bash", "sh", "shell"):
            before = text[: block.start()].rstrip(" ")
            yield from _commands(block, before, prompt="$ " if language == "console" else "")


def _commands(block: re.Match[str], before: str, *, prompt: str) -> Iterator[Shown]:
    said = STATUS.search(before)
    first = None if PARSED.search(before) else int(said[1]) if said else 0
    begins = list(re.finditer(rf"^{re.escape(prompt)}\S.*\n", block["body"], re.M))
    for number, match in enumerate(begins):
        line = match[0].removeprefix(prompt).split("  #")[0].strip()
        end = begins[number + 1].start() if number + 1 < len(begins) else len(block["body"])
        if line.startswith("meshwright"):
            status = first if number == 0 or first is None else 0
            at = (block.start("body") + match.end(), block.start("body") + end)
            yield Shown(line, status, block["body"][match.end() : end], at)


def run(line: str) -> tuple[int, str]:
    """The exit status and what is printed; `> file` writes a file, `| head -N` cuts."""
    from meshwright.cli.main import main

    command, _, most = line.partition(" | head -")
    words, _, target = command.partition(" > ")
    printed, errors = io.StringIO(), io.StringIO()
    kept, sys.argv = sys.argv, shlex.split(words)
    try:
        with redirect_stdout(printed), redirect_stderr(errors):
            main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = kept
    if target:
        Path(target.strip()).write_text(printed.getvalue(), encoding="utf-8")
        return status, errors.getvalue()
    lines = [one.rstrip() for one in (printed.getvalue() + errors.getvalue()).splitlines()]
    return status, "".join(f"{one}\n" for one in (lines[: int(most)] if most else lines))


def prepare(folder: Path) -> None:
    """Put the reader's own files into a folder."""
    for name, source in BESIDE.items():
        (folder / name).write_bytes(source.read_bytes())


def save(step: Saved, folder: Path) -> None:
    path = folder / step.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(step.text, encoding="utf-8")


def without_times(text: str) -> str:
    return SECONDS.sub("(- s)", text)


def refreshed(text: str, folder: Path) -> str:
    """A page with the output of today."""
    parts, done = [], 0
    for step in steps(text):
        if isinstance(step, Saved):
            save(step, folder)
        elif step.status is not None:
            _, printed = run(step.line)
            if step.output and without_times(step.output) != without_times(printed):
                parts += [text[done : step.at[0]], printed]
                done = step.at[1]
    return "".join((*parts, text[done:]))


def main() -> int:
    os.environ.update(ENVIRONMENT)
    for path in pages():
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HOME"] = folder
            os.chdir(folder)
            prepare(Path(folder))
            new = refreshed(text, Path(folder))
            os.chdir(ROOT)
        if new != text:
            path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
