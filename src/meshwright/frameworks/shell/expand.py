"""Expansion of shell words: quotes, variables, arrays, arithmetic, command substitution.

The expander reads the raw text of a word itself (the parser only says where words begin and end),
so that the same code serves arguments, here-documents, patterns and the insides of `${x:-...}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from meshwright.frameworks.shell import arith
from meshwright.frameworks.shell.braces import brace_alternatives
from meshwright.frameworks.shell.brackets import closing_brace, closing_paren
from meshwright.frameworks.shell.state import Array, Budget, State, Variable
from meshwright.frameworks.shell.text import Mark, Text, Unknowns

NAME = re.compile(r"[A-Za-z_]\w*")
EVERY_ITEM = re.compile(r"\$\{\w+\[@\]\}|\$@")
SPECIAL = "@*#?$!-"
WHITE = " \t\n"
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "0": "\0"}


@dataclass
class Fields:
    """The words that one raw word becomes."""

    done: list[Text] = field(default_factory=list)
    open: list[Text] | None = None
    separators: str = WHITE
    """What splits unquoted expansions (`IFS`)."""

    def add(self, text: Text) -> None:
        """Text that is not split (a literal, or quoted)."""
        if self.open is None:
            self.open = []
        self.open.append(text)

    def end(self) -> None:
        if self.open is not None:
            self.done.append(Text.join(self.open))
            self.open = None

    def add_split(self, text: Text) -> None:
        """The result of an unquoted expansion: separators end words."""
        plain = text.plain
        if not plain:
            return
        if plain[0] in self.separators:
            self.end()
        pieces = list(text.fields(self.separators))
        for number, piece in enumerate(pieces):
            if number:
                self.end()
            self.add(piece)
        if pieces and plain[-1] in self.separators:
            self.end()

    def add_items(self, items: list[Text]) -> None:
        """`"${array[@]}"`: every item a word, the first joined to what stands before it."""
        for number, item in enumerate(items):
            if number:
                self.end()
            self.add(item)


@dataclass(frozen=True)
class Default:
    """The word of `${x:-word}` where it is used unquoted: it is split like the word it stands in."""

    raw: Text
    mark: Callable[[Mark], Mark]


Result = Text | list[Text] | Default


@dataclass
class Expander:
    """Expands words against a state. `substitute` computes `$(...)` from the text inside."""

    state: State
    unknowns: Unknowns
    budget: Budget
    substitute: Callable[[Text], Text]
    depth: int = 0

    # words

    def words(self, raw: Text) -> list[Text]:
        """All words that a raw word expands to (none, one or several)."""
        fields = Fields(separators=self.separators())
        for piece in brace_alternatives(raw):
            self._scan(piece, fields, quoted=False)
            fields.end()
        return fields.done

    def separators(self) -> str:
        """`IFS`: white space where nothing known is set."""
        ifs = self.state.scalar("IFS")
        return ifs.plain if ifs is not None and ifs.is_known else WHITE

    def one(self, raw: Text) -> Text:
        """A word where no splitting happens (assignments, case, [[ ]])."""
        fields = Fields()
        self._scan(raw, fields, quoted=False, split=False)
        fields.end()
        return Text.join(fields.done, " ")

    def quoted(self, raw: Text) -> Text:
        """Text as between double quotes (here-documents)."""
        fields = Fields()
        self._scan(raw, fields, quoted=True, split=False)
        fields.end()
        return Text.join(fields.done, " ")

    def pattern(self, raw: Text) -> str:
        """A pattern: quoted characters stand for themselves."""
        out: list[str] = []
        text = raw.plain
        at = 0
        while at < len(text):
            if text[at] in "'\"":
                close = text.find(text[at], at + 1)
                close = close if close > 0 else len(text)
                inner = raw.slice(at + 1, close)
                plain = inner.plain if text[at] == "'" else self.quoted(inner).plain
                out.append(re.sub(r"([*?\[\]\\])", r"\\\1", plain))
                at = close + 1
            else:
                stop = min((p for p in (text.find("'", at), text.find('"', at)) if p >= 0), default=len(text))
                part = raw.slice(at, stop)
                out.append(self.one(part).plain if "$" in part.plain else part.plain)
                at = stop
        return "".join(out)

    def _scan(
        self, raw: Text, fields: Fields, *, quoted: bool, split: bool = True, literal: bool = True
    ) -> None:
        """Expand raw text into fields; with `literal` off, plain white space ends words as well."""
        self.budget.spend(1, len(raw))
        self.depth += 1
        if self.depth > self.budget.depth:
            self.depth = 0
            raise RecursionError("shell words nested too deeply")
        text, at, start = raw.plain, 0, 0
        stops = '$`\\"' if quoted else "$`\\\"'~"
        while at < len(text):
            char = text[at]
            if char not in stops:
                at += 1
                continue
            if start < at:
                (fields.add if literal else fields.add_split)(raw.slice(start, at))
            at = self._special(raw, at, fields, quoted=quoted, split=split)
            start = at
        if start < len(text):
            (fields.add if literal else fields.add_split)(raw.slice(start, len(text)))
        self.depth -= 1

    def _special(self, raw: Text, at: int, fields: Fields, *, quoted: bool, split: bool) -> int:
        """Handle one special character at `at`; returns where to go on."""
        text, mark = raw.plain, raw.mark_at(at)
        char, following = text[at], text[at + 1 : at + 2]
        if char == "\\":
            if following == "\n":
                return at + 2
            if quoted and following not in '$`"\\':
                fields.add(raw.slice(at, at + 2))
            else:
                fields.add(raw.slice(at + 1, at + 2))
            return at + 2
        if char == "'":
            close = text.find("'", at + 1)
            close = close if close >= 0 else len(text)
            fields.add(raw.slice(at + 1, close))
            return close + 1
        if char == '"':
            if quoted:
                fields.add(raw.slice(at, at + 1))
                return at + 1
            close = closing_quote(text, at)
            if not (EVERY_ITEM.fullmatch(text, at + 1, close) and not self._items(text[at + 2 : close])):
                fields.add(Text())
                self._scan(raw.slice(at + 1, close), fields, quoted=True, split=split)
            return close + 1
        if char == "~":
            fields.add(Text.of("~", mark))
            return at + 1
        if char == "`":
            close = text.find("`", at + 1)
            close = close if close >= 0 else len(text)
            self._emit(self.substitute(raw.slice(at + 1, close)), fields, quoted=quoted, split=split)
            return close + 1
        return self._dollar(raw, at, fields, quoted=quoted, split=split)

    def _items(self, reference: str) -> list[Text]:
        name = reference.strip("{}").partition("[")[0]
        if name == "@":
            return self.state.positional
        value = self.state.get(name)
        if isinstance(value, Array):
            return value.values
        return [value] if value is not None else []

    def _emit(self, value: Result, fields: Fields, *, quoted: bool, split: bool) -> None:
        if isinstance(value, Default):
            inner = Fields(separators=fields.separators)
            self._scan(value.raw, inner, quoted=False, literal=False)
            last = inner.open is not None
            inner.end()
            fields.add_items([text.marked_by(value.mark) for text in inner.done])
            if not last:
                fields.end()
        elif isinstance(value, list):
            if quoted and split:
                fields.add_items(value)
            elif split:
                for number, item in enumerate(value):
                    if number:
                        fields.end()
                    fields.add_split(item)
            else:
                fields.add(Text.join(value, " "))
        elif quoted or not split:
            fields.add(value)
        else:
            fields.add_split(value)

    # dollar

    def _dollar(self, raw: Text, at: int, fields: Fields, *, quoted: bool, split: bool) -> int:
        text, mark = raw.plain, raw.mark_at(at)
        following = text[at + 1 : at + 2]
        if text.startswith("$((", at):
            close = closing_paren(text, at + 1)
            inner = raw.slice(at + 3, close - 1)
            if text[close - 1 : close + 1] == "))":
                self._emit(self.arithmetic(inner), fields, quoted=True, split=split)
                return close + 1
        if following == "(":
            close = closing_paren(text, at + 1)
            self._emit(self.substitute(raw.slice(at + 2, close)), fields, quoted=quoted, split=split)
            return close + 1
        if following == "{":
            close = closing_brace(text, at + 1)
            value = self.parameter(raw.slice(at + 2, close), mark, quoted=quoted, split=split)
            self._emit(value, fields, quoted=quoted, split=split)
            return close + 1
        if following == "'" and not quoted:
            return self._ansi(raw, at, fields)
        if following == '"' and not quoted:
            return at + 1
        if found := NAME.match(text, at + 1):
            self._emit(self.variable(found.group(), mark), fields, quoted=quoted, split=split)
            return found.end()
        if following and (following in SPECIAL or following.isdigit()):
            value = self.variable(following, mark, quoted=quoted)
            self._emit(value, fields, quoted=quoted, split=split)
            return at + 2
        fields.add(Text.of("$", mark))
        return at + 1

    def _ansi(self, raw: Text, at: int, fields: Fields) -> int:
        text, index, out = raw.plain, at + 2, []
        while index < len(text) and text[index] != "'":
            if text[index] == "\\" and index + 1 < len(text):
                index += 1
                out.append(ESCAPES.get(text[index], "\\" + text[index]))
            else:
                out.append(text[index])
            index += 1
        fields.add(Text.of("".join(out), raw.mark_at(at)))
        return index + 1

    # values

    def variable(self, name: str, mark: Mark, *, quoted: bool = False) -> Text | list[Text]:
        """`$name`; a variable that nothing sets is unknown, not empty."""
        if name == "*" and quoted:
            return Text.join(self.state.positional, self.separators()[:1])
        if name in ("@", "*"):
            return list(self.state.positional)
        if name == "#":
            return self._argument_count(mark)
        if name == "$":
            return Text.of("4242", mark)  # only ever part of the name of a temporary file
        if name in "?!-" or name in ("RANDOM", "SECONDS", "EPOCHSECONDS"):
            return self.unknowns.text({f"${name}"}, mark)
        value = self.state.scalar(name)
        if value is not None:
            return value
        return self.unset(name, mark)

    def unset(self, name: str, mark: Mark) -> Text:
        """What stands for a variable or argument that nobody set."""
        if name.isdigit():
            return self.unknowns.text({f"${name}"}, replace(mark, kind="argument", name=name))
        if isinstance(self.state.get(name), Array):
            return Text()
        if name == "IFS":
            return Text.of(WHITE, mark)
        return self.unknowns.text({name}, replace(mark, kind="environment", name=name))

    def _argument_count(self, mark: Mark) -> Text:
        if not self.state.arguments_given:
            return self.unknowns.text({"the number of arguments"}, mark)
        return Text.of(str(len(self.state.positional)), mark)

    def arithmetic(self, raw: Text) -> Text:
        """`$(( raw ))` as text: the sum keeps the mark of an input that could change it."""
        marks: list[Mark] = []

        def look(name: str, index: str | None) -> int:
            value = self.state.get(name)
            text = value.items.get(index or "0") if isinstance(value, Array) else value
            if text is None:
                raise arith.Open(frozenset({name}))
            if not text.is_known:
                raise arith.Open(self.unknowns.names(text))
            marks.append(text.mark)
            self.budget.spend()
            plain = text.plain.strip()
            if re.fullmatch(r"[-+]?\w+", plain) and plain.lstrip("-+")[0].isdigit():
                return arith.number(plain.lstrip("+")) if plain[0] != "-" else -arith.number(plain[1:])
            if not plain:
                return 0
            if plain != name and len(marks) < 20 and len(plain) < 200:
                return look(plain, None) if NAME.fullmatch(plain) else arith.evaluate(plain, look, store)
            raise arith.Open(frozenset({name}))

        def store(name: str, index: str | None, value: int) -> None:
            text = Text.of(str(value), raw.mark)
            if index is None:
                self.state.set(name, text)
            else:
                self.state.set_item(name, index, text)

        mark = raw.mark
        try:
            expression = self.quoted(raw)
            marks.extend(piece for _, piece in expression.spans)
            if not expression.is_known:
                raise arith.Open(self.unknowns.names(expression))
            value = arith.evaluate(expression.plain, look, store, self._is_key)
        except arith.Open as open_:
            return self.unknowns.text(open_.names, mark)
        changed = next((m for m in marks if m.kind != "stated"), None)
        if changed is not None:
            mark = replace(mark, kind=changed.kind, name=changed.name)
        return Text.of(str(value), mark)

    def _is_key(self, name: str, word: str) -> bool:
        array = self.state.get(name)
        return isinstance(array, Array) and array.associative

    def number(self, raw: Text) -> int | None:
        """Value of an arithmetic expression, None when it is unknown."""
        text = self.arithmetic(raw)
        return int(text.plain) if text.is_known else None

    def parameter(self, inner: Text, mark: Mark, *, quoted: bool, split: bool = True) -> Result:
        """`${...}`; the operators live in their own module."""
        from meshwright.frameworks.shell.parameter import expand_parameter

        return expand_parameter(self, inner, mark, quoted=quoted, split=split)

    def lookup(self, name: str) -> Variable | None:
        return self.state.get(name)


def closing_quote(text: str, start: int) -> int:
    """Index of the `"` that closes the one at `start` (end of text when none does)."""
    at = start + 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
        elif char == '"':
            return at
        elif text.startswith("${", at):
            at = closing_brace(text, at + 1) + 1
        elif text.startswith("$(", at):
            at = closing_paren(text, at + 1) + 1
        else:
            at += 1
    return len(text)
