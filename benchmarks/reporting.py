"""Dated Markdown reports: what was measured, with which version, by which command."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Sequence
from pathlib import Path

import meshwright

REPORTS = Path(__file__).parent / "reports"


def report_path(name: str) -> Path:
    return REPORTS / f"{datetime.date.today().isoformat()}-{name}.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def write(path: Path, lines: Sequence[str], *, command: str) -> None:
    """Write a report and say where it is."""
    head, *rest = lines
    stamp = (
        f"{datetime.date.today().isoformat()}, Meshwright {meshwright.__version__} ({_commit()}), `{command}`"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, "", stamp, *rest]) + "\n", encoding="utf-8")
    print(path)


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "no commit"
