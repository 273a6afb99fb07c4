"""Reading `--flag value` words as argparse does, with the table of Megatron-LM's arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshwright.frameworks.commands import source_of, supply, value_of
from meshwright.frameworks.reading import Plain, Unknown, Value
from meshwright.frameworks.shell.text import Text, Unknowns
from meshwright.frameworks.spelling import arguments, canonical

NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][-+]?\d+)?")


@dataclass
class Said:
    """What a list of arguments says."""

    options: dict[str, Value] = field(default_factory=dict)
    other: dict[str, Value] = field(default_factory=dict)
    unknowns: list[Unknown] = field(default_factory=list)
    overridden: dict[str, list[Value]] = field(default_factory=dict)
    """Earlier values of options that are given more than once."""
    operands: list[Text] = field(default_factory=list)

    def put(self, name: str, value: Value | Unknown) -> None:
        """Record an option under its canonical name; the last one wins."""
        if isinstance(value, Unknown):
            key, _ = canonical(name, None)
            self.options.pop(key, None)
            self.unknowns = [u for u in self.unknowns if u.option != key] + [replace(value, option=key)]
            return
        key, plain = canonical(name, value.value)
        self.unknowns = [u for u in self.unknowns if u.option != key]
        if key in self.options:
            self.overridden.setdefault(key, []).append(self.options[key])
        self.options[key] = Value(plain, value.source)


def is_flag(word: str) -> bool:
    """Whether a word starts an option (and is no negative number)."""
    return word.startswith("-") and len(word) > 1 and not NEGATIVE_NUMBER.fullmatch(word)


def read_arguments(words: Sequence[Text], unknowns: Unknowns, *, flags_take_values: bool = False) -> Said:
    """Options of a Megatron-LM style command line.

    flags_take_values  `--sequence_parallel true`, as ms-swift writes switches
    """
    said = Said()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not is_flag(word.plain):
            _operand(said, word, unknowns)
            continue
        flag, equals, inline = word.partition("=")
        name = flag.plain.lstrip("-").replace("_", "-")
        row = arguments().get(name)
        values: list[Text] = [inline] if equals else []
        if not equals:
            values, at = _values(words, at, row, flags_take_values)
        _record(said, name, row, flag, values, unknowns)
    return said


def _operand(said: Said, word: Text, unknowns: Unknowns) -> None:
    """A word that belongs to no option: a positional, or something unknown that may hold options."""
    if not word.is_known and len(word) == 1:
        names = tuple(sorted(unknowns.names(word)))
        how = supply(names, unknowns.argument_names)
        said.unknowns.append(Unknown(option="more options", needs=names, how=how, line=word.mark.line))
    else:
        said.operands.append(word)


def _values(
    words: Sequence[Text], at: int, row: list[str] | None, flags_take_values: bool
) -> tuple[list[Text], int]:
    """The value words that follow an option."""
    kind = row[1] if row else "guess"
    follows = at < len(words) and not is_flag(words[at].plain)
    if kind in ("on", "off"):
        if flags_take_values and follows and words[at].plain.lower() in ("true", "false", "none"):
            return [words[at]], at + 1
        return [], at
    if kind == "list" or kind.startswith("values:"):
        most = int(kind[7:]) if kind.startswith("values:") else len(words)
        start = at
        while at < len(words) and not is_flag(words[at].plain) and at - start < most:
            at += 1
        return list(words[start:at]), at
    if kind == "value" and at < len(words):
        return [words[at]], at + 1
    return ([words[at]], at + 1) if follows else ([], at)


def _record(
    said: Said, name: str, row: list[str] | None, flag: Text, values: list[Text], unknowns: Unknowns
) -> None:
    here = source_of(flag.mark)
    if row is None:
        value = value_of(name, values[0], unknowns) if values else Value(True, here)
        said.other[name.replace("-", "_")] = Value("?", here) if isinstance(value, Unknown) else value
        return
    dest, kind = row[0], row[1]
    if kind in ("on", "off"):
        wanted = not values or values[0].plain.lower() not in ("false", "none", "0")
        said.put(dest, Value(wanted == (kind == "on"), here))
        return
    if not values:
        if kind == "value" or kind == "list":
            said.other[name] = Value("", here)
        return
    if kind == "value":
        said.put(dest, value_of(dest, values[0], unknowns, row[2]))
        return
    read = [value_of(dest, word, unknowns, row[2]) for word in values]
    open_ = next((item for item in read if isinstance(item, Unknown)), None)
    if open_ is not None:
        said.put(dest, open_)
        return
    items: list[Plain] = [item.value for item in read if isinstance(item, Value)]
    first = next(item for item in read if isinstance(item, Value))
    plain: Plain = items[0] if len(items) == 1 and row[2] != "int" else tuple(items)
    said.put(dest, Value(plain, first.source))
