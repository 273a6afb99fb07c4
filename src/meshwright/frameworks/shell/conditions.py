"""`[ ... ]`, `[[ ... ]]` and `test`: true, false, or not to be known."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from meshwright.frameworks.shell import glob, patterns
from meshwright.frameworks.shell.expand import Expander
from meshwright.frameworks.shell.state import Array
from meshwright.frameworks.shell.text import Text
from meshwright.frameworks.shell.words import raw_words

Truth = bool | None
NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
STRING = ("==", "=", "!=", "=~", "<", ">")
FILE_TESTS = ("-f", "-d", "-e", "-r", "-s", "-x", "-w", "-L", "-h", "-p", "-S", "-b", "-c", "-t", "-O", "-G")


@dataclass
class Test:
    """One test; `names` collects the inputs that kept it open."""

    expander: Expander
    double: bool
    """`[[`: no splitting, patterns on the right."""
    exists: Callable[[str], Truth]
    names: set[str] = field(default_factory=set)

    def evaluate(self, inner: Text) -> Truth:
        tokens = raw_words(inner, operators=self.double)
        if not self.double:
            tokens = [token for raw in tokens for token in self._plain_words(raw)]
        self.tokens = tokens[::-1]
        return self._either(0)

    def _plain_words(self, raw: Text) -> list[Text]:
        """In `[ ]` words are expanded before they are read; an unset variable vanishes."""
        if (bare := self._unset(raw)) is not None:
            return [] if raw.plain[0] != '"' and not len(bare) else [bare]
        return self.expander.words(raw)

    def _peek(self) -> str:
        return self.tokens[-1].plain if self.tokens else ""

    def _either(self, depth: int) -> Truth:
        value = self._both(depth)
        while self._peek() in ("||", "-o") and self.tokens:
            self.tokens.pop()
            other = self._both(depth)
            value = True if value or other else (None if value is None or other is None else False)
        return value

    def _both(self, depth: int) -> Truth:
        value = self._not(depth)
        while self._peek() in ("&&", "-a") and self.tokens:
            self.tokens.pop()
            other = self._not(depth)
            value = (
                False
                if value is False or other is False
                else (None if value is None or other is None else True)
            )
        return value

    def _not(self, depth: int) -> Truth:
        if depth > 50:
            return None
        if self._peek() == "!" and len(self.tokens) > 1:
            self.tokens.pop()
            value = self._not(depth + 1)
            return None if value is None else not value
        if self._peek() == "(" and self.double:
            self.tokens.pop()
            value = self._either(depth + 1)
            if self._peek() == ")":
                self.tokens.pop()
            return value
        return self._primary()

    def _primary(self) -> Truth:
        if not self.tokens:
            return False
        first = self.tokens.pop()
        operator = self._peek()
        if operator in NUMERIC or operator in STRING:
            self.tokens.pop()
            right = self.tokens.pop() if self.tokens else Text()
            return self._binary(first, operator, right)
        word = first.plain
        if word in ("-z", "-n") and self.tokens:
            value = self._operand(self.tokens.pop())
            if not value.is_known and len(value) == 1:
                return self._open(value)
            return (len(value) == 0) == (word == "-z")
        if word == "-v" and self.tokens:
            return self.expander.state.get(self._operand(self.tokens.pop()).plain) is not None
        if word in FILE_TESTS and self.tokens:
            path = self._operand(self.tokens.pop())
            return self.exists(path.plain) if path.is_known else self._open(path)
        value = self._operand(first)
        return len(value) > 0 if value.is_known else self._open(value)

    def _operand(self, raw: Text) -> Text:
        if not self.double:
            return raw
        bare = self._unset(raw)
        return self.expander.one(raw) if bare is None else bare

    def _unset(self, raw: Text) -> Text | None:
        """`$X` or `x$X` of a named variable that nobody sets: the empty string in a test."""
        found = re.fullmatch(r'"?([xX_.]?)"?\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"?([xX_.]?)"?', raw.plain)
        if found is None or self.expander.state.get(found.group(2) or found.group(3)) is not None:
            return None
        return Text.of(found.group(1) + found.group(4), raw.mark)

    def _open(self, *texts: Text) -> Truth:
        for text in texts:
            self.names |= self.expander.unknowns.names(text)
        return None

    def _binary(self, left_raw: Text, operator: str, right_raw: Text) -> Truth:
        left, right = self._operand(left_raw), self._operand(right_raw)
        if not (left.is_known and right.is_known):
            return self._open(left, right)
        if operator in NUMERIC:
            numbers = [self.expander.number(side) for side in (left, right)]
            if numbers[0] is None or numbers[1] is None:
                return None
            return NUMERIC[operator](numbers[0], numbers[1])
        if operator == "=~":
            return self._regex(left.plain, right.plain)
        if operator in ("<", ">"):
            return left.plain < right.plain if operator == "<" else left.plain > right.plain
        if self.double:
            equal = glob.matches(left.plain, self.expander.pattern(right_raw))
        else:
            equal = left.plain == right.plain
        return equal != (operator == "!=")

    def _regex(self, text: str, pattern: str) -> Truth:
        """Only expressions that cannot backtrack for long are tried."""
        compiled = patterns.compiled(pattern, extended=True)
        if compiled is None or not patterns.affordable([compiled], [text]):
            return None
        found = compiled.search(text)
        groups = [found.group(), *found.groups("")] if found is not None else []
        self.expander.state.set("BASH_REMATCH", Array({str(n): Text.of(g) for n, g in enumerate(groups)}))
        return found is not None
