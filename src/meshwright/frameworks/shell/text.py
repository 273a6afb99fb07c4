"""Text that remembers where it was written, and what in it is not known.

The value of a shell word is made of pieces from several places: a literal at its line, a variable's
value from the line that set it, a default that an environment variable can replace. `Text` keeps a
`Mark` with every piece. A part that cannot be known is one private-use character that stands for
the names of the inputs it depends on; it survives quoting, splitting and being parsed again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from meshwright.frameworks.reading import Kind

FIRST_UNKNOWN = 0xF0000
LAST_UNKNOWN = 0xFFFFD


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a piece of text was written, and how settled it is."""

    file: str = ""
    line: int = 0
    kind: Kind = "stated"
    name: str = ""
    """The environment variable or argument that could replace it."""


NOWHERE = Mark()
Span = tuple[str, Mark]


@dataclass(frozen=True)
class Text:
    """A string made of marked spans."""

    spans: tuple[Span, ...] = ()

    @staticmethod
    def of(text: str, mark: Mark = NOWHERE) -> Text:
        return Text(((text, mark),) if text else ())

    @staticmethod
    def join(texts: Iterable[Text], between: str = "") -> Text:
        spans: list[Span] = []
        for number, text in enumerate(texts):
            if number and between:
                spans.append((between, spans[-1][1] if spans else NOWHERE))
            spans.extend(text.spans)
        return Text(tuple(spans))

    @cached_property
    def plain(self) -> str:
        return "".join(text for text, _ in self.spans)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for text, _ in self.spans:
            starts.append(at)
            at += len(text)
        return starts

    def __len__(self) -> int:
        return len(self.plain)

    def __str__(self) -> str:
        return self.plain

    def __add__(self, other: Text) -> Text:
        return Text(self.spans + other.spans)

    def mark_at(self, index: int) -> Mark:
        """The mark of the character at `index` (of the last one, past the end)."""
        if not self.spans:
            return NOWHERE
        return self.spans[max(0, bisect_right(self._starts, index) - 1)][1]

    def slice(self, start: int, stop: int) -> Text:
        """Characters start..stop-1, marks kept."""
        if start >= stop or not self.spans:
            return Text()
        spans: list[Span] = []
        first = max(0, bisect_right(self._starts, start) - 1)
        for number in range(first, len(self.spans)):
            text, mark = self.spans[number]
            at = self._starts[number]
            if at >= stop:
                break
            piece = text[max(0, start - at) : stop - at]
            if piece:
                spans.append((piece, mark))
        return Text(tuple(spans))

    def remarked(self, mark: Mark) -> Text:
        """The same characters, all with one mark."""
        return Text.of(self.plain, mark)

    def marked_by(self, change: Callable[[Mark], Mark]) -> Text:
        """The same characters with every mark changed."""
        return Text(tuple((text, change(mark)) for text, mark in self.spans))

    @property
    def mark(self) -> Mark:
        """The mark that says most: of a piece that an input can replace, else of the last piece."""
        for _, mark in self.spans:
            if mark.kind != "stated":
                return mark
        return self.spans[-1][1] if self.spans else NOWHERE

    @property
    def is_known(self) -> bool:
        return not any(is_unknown(char) for char in self.plain)

    def stripped(self) -> Text:
        """Without white space at both ends."""
        plain = self.plain
        left = len(plain) - len(plain.lstrip())
        return self.slice(left, len(plain.rstrip()))

    def partition(self, separator: str) -> tuple[Text, str, Text]:
        """Like str.partition."""
        at = self.plain.find(separator)
        if at < 0:
            return self, "", Text()
        return self.slice(0, at), separator, self.slice(at + len(separator), len(self))

    def fields(self, separators: str = " \t\n") -> Iterator[Text]:
        """The words between runs of separator characters."""
        start: int | None = None
        for index, char in enumerate(self.plain):
            if char in separators:
                if start is not None:
                    yield self.slice(start, index)
                start = None
            elif start is None:
                start = index
        if start is not None:
            yield self.slice(start, len(self))


def is_unknown(char: str) -> bool:
    """Whether the character stands for something that cannot be known."""
    return FIRST_UNKNOWN <= ord(char) <= LAST_UNKNOWN


def cleaned(text: str) -> str:
    """Foreign text without the characters that mean `unknown` here."""
    if text.isascii() or not any(is_unknown(char) for char in text):
        return text
    return "".join("\ufffd" if is_unknown(char) else char for char in text)


@dataclass
class Unknowns:
    """The unknown things of one evaluation, each with the names of the inputs it depends on."""

    argument_names: dict[str, str] = field(default_factory=dict)
    """What the script calls its positional arguments: `$1` -> `size`."""
    _names: list[frozenset[str]] = field(default_factory=list)
    _chars: dict[frozenset[str], str] = field(default_factory=dict)

    def char(self, names: Iterable[str]) -> str:
        """The character that stands for something depending on `names`."""
        key = frozenset(names) or frozenset({"something that only the running shell knows"})
        if key not in self._chars:
            if len(self._names) >= LAST_UNKNOWN - FIRST_UNKNOWN:
                return self._chars[self._names[0]]
            self._chars[key] = chr(FIRST_UNKNOWN + len(self._names))
            self._names.append(key)
        return self._chars[key]

    def text(self, names: Iterable[str], mark: Mark) -> Text:
        return Text.of(self.char(names), mark)

    def names(self, text: Text | str) -> frozenset[str]:
        """All inputs that a text depends on."""
        found: set[str] = set()
        for char in str(text):
            if is_unknown(char):
                found |= self._names[ord(char) - FIRST_UNKNOWN]
        return frozenset(found)

    def shown(self, text: Text | str) -> str:
        """The text with unknown parts written as `<names>`."""
        return "".join(f"<{', '.join(sorted(self.names(c)))}>" if is_unknown(c) else c for c in str(text))
