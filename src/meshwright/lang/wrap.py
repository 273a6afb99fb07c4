"""Filling lines where some letters are twice as wide as others."""

from __future__ import annotations

import re
import textwrap
import unicodedata

WIDE = "WF"
NOT_FIRST = "，。；：！？、）》」』”’%"
"""Signs that do not begin a line."""
_CJK = "\u2e80-\u9fff\u3000-\u303f\uff00-\uffef"
PIECE = re.compile(rf"\s+|[（《「『“]+(?:[{_CJK}]|[^\s{_CJK}]+)|[{_CJK}]|[^\s{_CJK}]+")
"""Space, a wide letter (with the bracket that opens before it), or a word."""


def width_of(text: str) -> int:
    """Columns that a text takes on a terminal.

    >>> width_of("TP 并行")
    7
    """
    return sum(2 if unicodedata.east_asian_width(letter) in WIDE else 1 for letter in text)


def fill(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """The text in lines of at most `width` columns; words stay whole, wide letters may part anywhere.

    first, rest  what stands before the first line, and before the others
    """
    if width_of(text) == len(text):
        return textwrap.fill(
            text, width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    lines, line = [], first
    fresh = True
    for piece in PIECE.findall(text.strip()):
        if piece.isspace():
            line += "" if fresh else " "
            continue
        if not fresh and width_of(line + piece) > width and piece[0] not in NOT_FIRST:
            lines.append(line.rstrip())
            line = rest
        line += piece
        fresh = False
    return "\n".join([*lines, line.rstrip()])
