"""A phrase with holes: `{0} experts cannot be shared evenly by ep={1}`.

Holes are numbered in the order of the English text; `{0#}` is one that holds a number, `{s}` a plural ending
that is there or not. `{0=}` in the other language keeps what fills the hole as it stands: names and values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

HOLE = re.compile(r"\{(\d+[#=]?|s)\}")
NUMBER = r"([-+]?[\d.,]+(?:/\d+)?(?:e[-+]?\d+)?%?|inf|nan)"
WORD = re.compile(r"[A-Za-z]{2,}")
WHOLE_WORD = re.compile(r"(?<![\0A-Za-z])[A-Za-z]{2,}(?![\0A-Za-z])")
"""Words that no hole makes longer."""


@dataclass(frozen=True)
class Template:
    """One phrase in English and in another language."""

    english: str
    other: str

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The pieces of text around the holes, first and last included, maybe empty."""
        return tuple(HOLE.split(self.english)[::2])

    @cached_property
    def holes(self) -> tuple[str, ...]:
        """Names of the holes in order."""
        return tuple(HOLE.findall(self.english))

    @cached_property
    def weight(self) -> int:
        """Characters that are not holes."""
        return sum(map(len, self.literals))

    @cached_property
    def letters(self) -> int:
        """Letters of the text around the holes."""
        return sum(letter.isalpha() for piece in self.literals for letter in piece)

    @cached_property
    def keyword(self) -> str:
        """The longest whole word of the text around the holes: a text without it cannot match."""
        beside = HOLE.sub("\0", self.english)
        return max(WHOLE_WORD.findall(beside), key=len, default="")

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What it matches, one group a numbered hole."""
        parts = [re.escape(self.literals[0])]
        for hole, piece in zip(self.holes, self.literals[1:], strict=True):
            parts.append("s?" if hole == "s" else NUMBER if hole.endswith("#") else "(.*?)")
            parts.append(re.escape(piece))
        return re.compile("".join(parts), re.S)

    @cached_property
    def kept(self) -> frozenset[int]:
        """Holes whose values are not read."""
        return frozenset(int(hole[:-1]) for hole in HOLE.findall(self.other) if hole.endswith("="))

    def filled(self, values: tuple[str, ...]) -> str:
        """The other language with values in the holes."""
        return HOLE.sub(lambda hole: values[int(hole[1].rstrip("="))], self.other)


def numbered_holes(text: str) -> list[str]:
    """The numbers of a text's holes, sorted; plural endings left out.

    >>> numbered_holes("{1} of {0} node{s}")
    ['0', '1']
    """
    return sorted(hole.rstrip("#=") for hole in HOLE.findall(text) if hole != "s")
