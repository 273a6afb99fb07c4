"""Regular expressions of grep and sed as Python patterns that cannot run away.

At most two stars to a pattern and none on a group, so that matching takes at most the square of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_PATTERN = 500
MAX_LINE = 2_000
"""Longest line that awk takes apart."""
MAX_WORK = 30_000_000
"""Most steps of one search over all lines."""
MAX_STARS = 2
CLASSES = {
    "[:space:]": r"\s", "[:blank:]": r" \t", "[:digit:]": "0-9", "[:alpha:]": "A-Za-z",
    "[:alnum:]": "A-Za-z0-9", "[:upper:]": "A-Z", "[:lower:]": "a-z",
}  # fmt: skip
TOKEN = re.compile(r"\[\^?\]?(?:\[:\w+:\]|[^\]])*\]|\\.|.", re.DOTALL)


def compiled(text: str, *, extended: bool = False, ignore_case: bool = False) -> re.Pattern[str] | None:
    """A basic or extended expression; None for one that is not understood or could take long."""
    if len(text) > MAX_PATTERN:
        return None
    parts: list[str] = []
    stars = groups = 0
    for piece in TOKEN.findall(text):
        written = _piece(piece, extended, first=not parts or parts[-1] in ("(", "|"))
        if written is None:
            return None
        if written in ("*", "+", "?"):
            if not parts or (parts[-1][-1:] in "*+?)" and len(parts[-1]) == 1):
                return None
            stars += written != "?"
        groups += (written == "(") - (written == ")")
        if groups < 0:
            return None
        parts.append(written)
    if stars > MAX_STARS or groups:
        return None
    try:
        return re.compile("".join(parts), re.IGNORECASE if ignore_case else 0)
    except re.error:
        return None


def affordable(tests: Iterable[re.Pattern[str]], lines: Iterable[str]) -> bool:
    """Whether a search cannot take long: a line costs its length, once more for every star."""
    work = 0
    powers = [1 + len(re.findall(r"(?<!\\)[*+]", test.pattern)) for test in tests]
    for line in lines:
        work += sum((len(line) + 1) ** power for power in powers)
        if work > MAX_WORK:
            return False
    return True


def _piece(piece: str, extended: bool, *, first: bool) -> str | None:
    """One token in Python's spelling; None where it is beyond what is understood."""
    if piece[0] == "[" and len(piece) > 2:
        return _set(piece)
    if piece[0] == "\\" and len(piece) == 2:
        char = piece[1]
        if char in "swSWb":
            return piece
        if char in "(){}|+?":
            if char in "{}":
                return None if not extended else re.escape(char)
            return re.escape(char) if extended else char
        return None if char.isalnum() or char in "<>" else re.escape(char)
    if piece == "*":
        return re.escape(piece) if first else piece
    if piece in ".^$":
        return piece
    if piece in "{}":
        return None if extended else re.escape(piece)
    return piece if extended and piece in "()|+?" else re.escape(piece)


def _set(piece: str) -> str | None:
    inner = piece[1:-1]
    for number, name in enumerate(CLASSES):
        inner = inner.replace(name, f"\0{number}\0")
    inner = inner.replace("\\", r"\\").replace("[", r"\[")
    if inner.startswith(("]", "^]")):
        inner = inner.replace("]", r"\]", 1)
    for number, chars in enumerate(CLASSES.values()):
        inner = inner.replace(f"\0{number}\0", chars)
    return f"[{inner}]"
