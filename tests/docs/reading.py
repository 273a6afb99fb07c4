"""What the pages of the documentation show: commands, files to save, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=mark)[ ]*$", re.S | re.M)
STATUS = re.compile(r"<!-- exit (\d+) -->\s*$")
PARSED = re.compile(r"<!-- parsed only: [^\n]* -->\s*$")


@dataclass(frozen=True)
class Shown:
    """One command line of a page.

    status  what it must end with; None: its words are parsed, and it is not run (a service, a cluster)
    """

    line: str
    status: int | None


@dataclass(frozen=True)
class Saved:
    """A block that the reader is asked to save under a name."""

    name: str
    text: str


def pages() -> list[Path]:
    """Every page that people write; pages of rules show no commands."""
    return sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "rules")


def steps(path: Path) -> Iterator[Shown | Saved]:
    """Commands and files of a page, in the order in which a reader meets them."""
    text = path.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', block["info"])
        language = block["info"].split()[0] if block["info"].split() else ""
        if title:
            yield Saved(title[1], block["body"])
        elif language in ("console", "bash", "sh", "shell"):
            before = text[: block.start()].rstrip(" ")
            yield from _commands(block["body"], before, prompt=language == "console")


def _commands(body: str, before: str, *, prompt: bool) -> Iterator[Shown]:
    said = STATUS.search(before)
    status = None if PARSED.search(before) else int(said[1]) if said else 0
    joined = body.replace("\\\n", " ")
    for number, row in enumerate(line for line in joined.splitlines() if line.strip()):
        line = row.removeprefix("$ ") if prompt else row
        if (prompt and not row.startswith("$ ")) or not line.startswith("meshwright"):
            continue
        yield Shown(line.split("  #")[0].strip(), status if number == 0 or status is None else 0)
