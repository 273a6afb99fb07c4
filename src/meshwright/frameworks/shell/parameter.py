"""`${...}`: defaults, lengths, substrings, patterns, arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.frameworks.reading import Kind
from meshwright.frameworks.shell import glob
from meshwright.frameworks.shell.state import Array
from meshwright.frameworks.shell.text import Mark, Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.expand import Expander, Result

REFERENCE = re.compile(r"(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])")
OPERATORS = (
    ":-",
    ":=",
    ":?",
    ":+",
    "##",
    "%%",
    "//",
    "/#",
    "/%",
    "^^",
    ",,",
    "-",
    "=",
    "?",
    "+",
    "#",
    "%",
    "/",
    "^",
    ",",
    ":",
    "@",
)
MAX_PIECES = 4096


def expand_parameter(shell: Expander, inner: Text, mark: Mark, *, quoted: bool, split: bool = True) -> Result:
    """Value of `${inner}`; with `split`, an unquoted default is left to be split where it stands."""
    text = inner.plain
    if len(text) > 1 and text[0] == "#" and REFERENCE.match(text, 1) and text[1:2] not in "}%-:":
        return _length(shell, text[1:], mark)
    if len(text) > 1 and text[0] == "!":
        return _indirect(shell, inner, mark)
    found = REFERENCE.match(text)
    if found is None:
        return shell.unknowns.text({f"${{{text[:40]}}}"}, mark)
    name, at = found.group("name"), found.end()
    index: str | None = None
    if text[at : at + 1] == "[":
        close = _closing_bracket(text, at)
        index = text[at + 1 : close]
        if index not in ("@", "*"):
            index = subscript(shell, name, inner.slice(at + 1, close))
        at = close + 1
    value: Text | list[Text] | None = _value(shell, name, index)
    if quoted and isinstance(value, list) and "*" in (name, index):
        value = Text.join(value, shell.separators()[:1])
    operator = next((op for op in OPERATORS if text.startswith(op, at)), "")
    if not operator:
        if value is None:
            return shell.unset(name, mark) if index is None else _missing_item(shell, name, index, mark)
        return value
    argument = inner.slice(at + len(operator), len(inner))
    if operator in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
        return _default(shell, name, index, value, operator, argument, mark, quoted, split)
    if value is None:
        value = shell.unset(name, mark)
    if operator == ":":
        return _substring(shell, value, argument, mark)
    if isinstance(value, list):
        return [_transformed(shell, item, operator, argument) for item in value[:MAX_PIECES]]
    return _transformed(shell, value, operator, argument)


def subscript(shell: Expander, name: str, raw: Text) -> str:
    """The key that a subscript names; arithmetic for indexed arrays."""
    variable = shell.lookup(name)
    if isinstance(variable, Array) and variable.associative:
        return shell.one(raw).plain
    value = shell.number(raw)
    if value is None:
        return shell.one(raw).plain
    if value < 0 and isinstance(variable, Array):
        keys = sorted(int(key) for key in variable.items if key.isdigit())
        value = keys[-1] + 1 + value if keys else value
    return str(value)


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def _value(shell: Expander, name: str, index: str | None) -> Text | list[Text] | None:
    if name in ("@", "*"):
        return list(shell.state.positional) or None
    if name in ("#", "?", "$", "!", "-"):
        return shell.variable(name, Mark())
    variable = shell.lookup(name)
    if variable is None:
        return None
    if index in ("@", "*"):
        return variable.values if isinstance(variable, Array) else [variable]
    if isinstance(variable, Array):
        return variable.items.get("0" if index is None else index)
    return variable if index in (None, "0") else None


def _missing_item(shell: Expander, name: str, index: str, mark: Mark) -> Result:
    variable = shell.lookup(name)
    if variable is None:
        return shell.unset(name, mark)
    if index in ("@", "*"):
        return []
    if any(char >= "\U000f0000" for char in index):
        return shell.unknowns.text(shell.unknowns.names(index), mark)
    return Text()


def _length(shell: Expander, text: str, mark: Mark) -> Text:
    if text in ("@", "*"):
        value = shell.variable("#", mark)
        return value if isinstance(value, Text) else Text.of(str(len(value)), mark)
    name, _, rest = text.partition("[")
    variable = shell.lookup(name)
    if variable is None:
        return shell.unset(name, mark)
    if rest.startswith(("@", "*")):
        values = variable.values if isinstance(variable, Array) else [variable]
        open_ = [item for item in values if not item.is_known and len(item) == 1]
        if open_:
            return shell.unknowns.text(shell.unknowns.names(open_[0]), mark)
        return Text.of(str(len(values)), mark)
    scalar = variable.items.get(rest.rstrip("]") or "0", Text()) if isinstance(variable, Array) else variable
    if not scalar.is_known:
        return shell.unknowns.text(shell.unknowns.names(scalar), mark)
    return Text.of(str(len(scalar)), mark)


def _indirect(shell: Expander, inner: Text, mark: Mark) -> Result:
    text = inner.plain[1:]
    name, bracket, rest = text.partition("[")
    variable = shell.lookup(name)
    if bracket and rest.startswith(("@", "*")):
        keys = variable.keys if isinstance(variable, Array) else []
        return [Text.of(key, mark) for key in keys]
    found = re.match(r"\w+", text)
    target = shell.state.scalar(found.group()) if found else None
    if found is None or target is None or not re.fullmatch(r"\w+|\w+\[\w+\]", target.plain):
        return shell.unknowns.text({f"${{!{text[:30]}}}"}, mark)
    rest = text[found.end() :]
    return expand_parameter(shell, Text.of(target.plain + rest, mark), mark, quoted=False)


def _default(
    shell: Expander,
    name: str,
    index: str | None,
    value: Text | list[Text] | None,
    operator: str,
    argument: Text,
    mark: Mark,
    quoted: bool,
    split: bool,
) -> Result:
    """`:-`, `:=`, `:?` and `:+`; a default that is used is marked as replaceable from outside."""
    empty = value is None or (operator[0] == ":" and not (value if isinstance(value, list) else len(value)))
    if operator[-1] == "+":
        return Text() if empty else _words(shell, argument, quoted, split, same)
    if not empty and value is not None:
        return value
    if operator[-1] == "?":
        return shell.unset(name, mark)
    kind: Kind = "argument" if name.isdigit() else "environment"
    outside = shell.lookup(name) is None

    def replaceable(mark: Mark) -> Mark:
        return replace(mark, kind=kind, name=name) if outside else mark

    if operator[-1] == "=" and index is None and not name.isdigit():
        default = shell.one(argument).marked_by(replaceable)
        shell.state.set(name, default)
        return default
    return _words(shell, argument, quoted, split, replaceable)


def same(mark: Mark) -> Mark:
    return mark


def _words(
    shell: Expander, argument: Text, quoted: bool, split: bool, mark: Callable[[Mark], Mark]
) -> Result:
    if not quoted and split:
        from meshwright.frameworks.shell.expand import Default

        return Default(argument, mark)
    return (shell.one(argument) if not quoted else shell.quoted(_unquoted(argument))).marked_by(mark)


def _unquoted(argument: Text) -> Text:
    text = argument.plain
    if len(text) > 1 and text[0] == text[-1] == '"' and text.count('"') == 2:
        return argument.slice(1, len(text) - 1)
    return argument


def _substring(shell: Expander, value: Text | list[Text], argument: Text, mark: Mark) -> Result:
    first, separator, second = argument.partition(":")
    start = shell.number(first)
    length = shell.number(second) if separator else None
    size = len(value)
    if start is None or (separator and length is None):
        return shell.unknowns.text({"a substring"}, mark)
    if isinstance(value, Text) and not value.is_known:
        return shell.unknowns.text(shell.unknowns.names(value), mark)
    arguments = isinstance(value, list) and shell.state.positional == value
    if arguments and start > 0:
        start -= 1
    start = max(0, start + size if start < 0 else start)
    stop = size if length is None else (start + length if length >= 0 else size + length)
    return value.slice(start, stop) if isinstance(value, Text) else value[start:stop]


def _transformed(shell: Expander, value: Text, operator: str, argument: Text) -> Text:
    """Pattern and case operators on one value."""
    if not value.is_known:
        return shell.unknowns.text(shell.unknowns.names(value), value.mark)
    shell.budget.spend(1 + len(value) // 16, len(value))
    if operator in ("^^", ",,", "^", ","):
        head, tail = (value.plain, "") if len(operator) == 2 else (value.plain[:1], value.plain[1:])
        return Text.of((head.upper() if operator[0] == "^" else head.lower()) + tail, value.mark)
    if operator == "@":
        return value
    if operator in ("#", "##", "%", "%%"):
        pattern = shell.pattern(argument)
        if operator[0] == "#":
            size = glob.cut_prefix(value.plain, pattern, longest=len(operator) == 2)
            return value.slice(size, len(value)) if size > 0 else value
        size = glob.cut_suffix(value.plain, pattern, longest=len(operator) == 2)
        return value.slice(0, len(value) - size) if size > 0 else value
    return _replaced(shell, value, operator, argument)


def _replaced(shell: Expander, value: Text, operator: str, argument: Text) -> Text:
    cut = _unescaped_slash(argument.plain)
    pattern = shell.pattern(argument.slice(0, cut)).replace("\\/", "/")
    new = shell.one(argument.slice(cut + 1, len(argument)))
    if operator == "/#":
        size = glob.cut_prefix(value.plain, pattern, longest=True)
        return new + value.slice(size, len(value)) if size >= 0 else value
    if operator == "/%":
        size = glob.cut_suffix(value.plain, pattern, longest=True)
        return value.slice(0, len(value) - size) + new if size >= 0 else value
    pieces: list[Text] = []
    at = 0
    while (found := glob.find(value.plain, pattern, at)) and len(pieces) < MAX_PIECES:
        pieces += [value.slice(at, found[0]), new]
        shell.budget.spend(1, len(new))
        at = found[1]
        if operator == "/":
            break
    return Text.join([*pieces, value.slice(at, len(value))])


def _unescaped_slash(text: str) -> int:
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "/":
            return at
        at += 1
    return len(text)
