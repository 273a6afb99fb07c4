"""Which code a version of a framework carries: every version is turned into the date of its code.

Rules say since (or until) which day they hold; this one table decides for a version.
"""

from __future__ import annotations

import re

from meshwright.errors import QuestionError
from meshwright.facts import load_json

NEWEST = "9999-12-31"


def parse(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: `0.16.1` is (0, 16, 1), `2.12.0+cu13` is (2, 12, 0)."""
    head = re.match(r"\d+(\.\d+)*", version.strip().removeprefix("core_v").removeprefix("v"))
    return tuple(int(part) for part in head.group().split(".")) if head else ()


def code_date(framework: str, version: str | None, release: str | None = None) -> str:
    """Date (ISO) of the code of a framework's version, or of a year.month release of the stack.

    Without either, or with `main`, it is the newest code. A version older than the table counts as
    the oldest in it, one between two entries as the one before it.
    """
    table = load_json("meshwright.layout.rules", "versions.json")
    if version is None or version in ("main", "dev", "latest"):
        return _of_release(release) if release and version is None else NEWEST
    wanted = parse(version)
    if not wanted:
        raise QuestionError(f"{version!r} is not a version; write it like 0.16 or 0.16.1")
    package = "megatron-bridge" if framework == "megatron-bridge" else "megatron-core"
    rows = sorted((parse(row["version"]), row["code_date"]) for row in table["packages"][package])
    if wanted[:2] > rows[-1][0][:2]:
        return NEWEST
    older = [date for minor, date in rows if minor[:2] <= wanted[:2]]
    return str(older[-1] if older else rows[0][1])


def _of_release(release: str) -> str:
    """The last day of a release's month: `26.06` is 2026-06-31 (compared as text)."""
    match = re.fullmatch(r"(\d\d)\.(\d\d)(\.\d+)*", release)
    if match is None:
        raise QuestionError(f"{release!r} is not a release; write it as year.month, like 26.06")
    return f"20{match.group(1)}-{match.group(2)}-31"
