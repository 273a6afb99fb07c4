"""Brace expansion of shell words."""

from __future__ import annotations

import re

from meshwright.frameworks.shell.text import Text

GROUP = re.compile(
    r"(?<!\$)\{(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?\}"
    r"|(?<!\$)\{([^{}\s$'\"`]*,[^{}\s$'\"`]*)\}"
)
MAX_WORDS = 4096


def brace_alternatives(raw: Text, depth: int = 0) -> list[Text]:
    """`a{1..9..2}b`, `{01..08}` and `{x,y}{1,2}` written out; anything else as it is (no nesting)."""
    text = raw.plain
    found = GROUP.search(text)
    quotes = "'\"$`"
    if found is None or any(char in text[: found.start()] for char in quotes):
        return [raw]
    before, after, mark = (
        raw.slice(0, found.start()),
        raw.slice(found.end(), len(raw)),
        raw.mark_at(found.start()),
    )
    if found.group(1) is not None:
        low, high = int(found.group(1)), int(found.group(2))
        direction = 1 if high >= low else -1
        step = direction * max(1, abs(int(found.group(3) or 1)))
        padded = any(re.match(r"-?0\d", found.group(n)) for n in (1, 2))
        width = max(len(found.group(1)), len(found.group(2))) if padded else 0
        words = [f"{value:0{width}d}" for value in range(low, high + direction, step)][:MAX_WORDS]
    else:
        words = found.group(4).split(",")[:MAX_WORDS]
    room = 1 + MAX_WORDS // max(1, len(words))
    rests = brace_alternatives(after, depth + 1)[:room] if depth < 4 else [after]
    whole = [before + Text.of(word, mark) + rest for word in words for rest in rests]
    return whole[:MAX_WORDS]
