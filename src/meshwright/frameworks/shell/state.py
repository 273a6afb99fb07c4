"""What a shell knows at one moment, and the limits that hold hostile scripts in check."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from meshwright.frameworks.shell.text import NOWHERE, Text, Unknowns

MAX_VALUE = 1 << 20
"""Longest value of a variable [characters]."""
MAX_ITEMS = 20_000
"""Most items of an array."""


class OutOfBudget(Exception):  # noqa: N818 - a limit was met; the caller turns it into an answer
    """The script needs more steps, text or time than a launch script can."""


@dataclass
class Budget:
    """Counts down steps and produced text, and watches the clock."""

    steps: int = 200_000
    characters: int = 32 << 20
    depth: int = 60
    deadline: float = field(default_factory=lambda: time.monotonic() + 5.0)
    calls: int = 0

    def spend(self, steps: int = 1, characters: int = 0) -> None:
        self.steps -= steps
        self.characters -= characters
        self.calls += 1
        late = self.calls % 64 == 0 and time.monotonic() > self.deadline
        if self.steps < 0 or self.characters < 0 or late:
            raise OutOfBudget


@dataclass
class Array:
    """An indexed or associative array."""

    items: dict[str, Text] = field(default_factory=dict)
    associative: bool = False

    def copy(self) -> Array:
        return Array(dict(self.items), self.associative)

    def append(self, text: Text) -> None:
        self.extend([text])

    def extend(self, texts: Iterable[Text]) -> None:
        last = max((int(key) for key in self.items if key.isdigit()), default=-1)
        for number, text in enumerate(texts, last + 1):
            self.items[str(number)] = text
        if len(self.items) > MAX_ITEMS:
            raise OutOfBudget

    @property
    def keys(self) -> list[str]:
        if self.associative:
            return list(self.items)
        return sorted(self.items, key=lambda key: int(key) if key.isdigit() else 0)

    @property
    def values(self) -> list[Text]:
        return [self.items[key] for key in self.keys]


Variable = Text | Array


@dataclass
class State:
    """Variables, arguments and directory of a running shell."""

    variables: dict[str, Variable] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    positional: list[Text] = field(default_factory=list)
    arguments_given: bool = False
    """Whether somebody said what the arguments are; otherwise `$#` is open and `$1` is unset."""
    script: str = ""
    cwd: str = "."
    export_all: bool = False
    integers: set[str] = field(default_factory=set)
    """Variables declared with -i: what is assigned to them is arithmetic."""

    def copy(self) -> State:
        return State(
            {k: v.copy() if isinstance(v, Array) else v for k, v in self.variables.items()},
            set(self.exported),
            list(self.positional),
            self.arguments_given,
            self.script,
            self.cwd,
            self.export_all,
            set(self.integers),
        )

    def replace_by(self, other: State) -> None:
        """Take over everything from another state."""
        self.variables, self.exported = other.variables, other.exported
        self.positional, self.cwd = other.positional, other.cwd
        self.arguments_given, self.export_all = other.arguments_given, other.export_all
        self.integers = other.integers

    def get(self, name: str) -> Variable | None:
        if name.isdigit():
            index = int(name[:6])
            if index == 0:
                return Text.of(self.script)
            return self.positional[index - 1] if index <= len(self.positional) else None
        return self.variables.get(name)

    def scalar(self, name: str) -> Text | None:
        """Value of a variable used without a subscript."""
        value = self.get(name)
        return value.items.get("0") if isinstance(value, Array) else value

    def set(self, name: str, value: Variable) -> None:
        if isinstance(value, Text) and len(value) > MAX_VALUE:
            raise OutOfBudget
        self.variables[name] = value
        if self.export_all:
            self.exported.add(name)

    def set_item(self, name: str, index: str, value: Text) -> None:
        array = self.variables.get(name)
        if not isinstance(array, Array):
            array = Array({"0": array} if array is not None else {})
            self.variables[name] = array
        array.items[index] = value

    def environment(self) -> dict[str, Text]:
        """Exported variables as a child process would see them."""
        found = {name: self.scalar(name) for name in sorted(self.exported)}
        return {name: value for name, value in found.items() if value is not None}


def merged(left: State, right: State, names: frozenset[str], unknowns: Unknowns) -> State:
    """What holds whichever of two branches ran: equal values stay, others are unknown."""
    both = left.copy()
    for name in sorted({*left.variables, *right.variables}):
        one, two = left.variables.get(name), right.variables.get(name)
        both.variables[name] = _merged_value(one, two, names, unknowns)
    both.exported = left.exported | right.exported
    if [str(t) for t in left.positional] != [str(t) for t in right.positional]:
        both.arguments_given = False
    return both


def _merged_value(
    one: Variable | None, two: Variable | None, names: frozenset[str], unknowns: Unknowns
) -> Variable:
    if isinstance(one, Text) and isinstance(two, Text):
        if one.plain == two.plain:
            return one
        return unknowns.text(names | unknowns.names(one) | unknowns.names(two), two.mark)
    if isinstance(one, Array) and isinstance(two, Array):
        if [str(t) for t in one.values] == [str(t) for t in two.values]:
            return one
        if not (one.associative or two.associative):
            return _merged_lists(one, two, names, unknowns)
    mark = next((value.mark for value in (one, two) if isinstance(value, Text)), NOWHERE)
    if isinstance(one, Array) or isinstance(two, Array):
        array = _merged_lists(_as_array(one), _as_array(two), names, unknowns)
        return array if array.items else unknowns.text(names, mark)
    return unknowns.text(names, mark)


def _as_array(value: Variable | None) -> Array:
    if isinstance(value, Array):
        return value
    return Array({"0": value} if value is not None else {})


def _merged_lists(one: Array, two: Array, names: frozenset[str], unknowns: Unknowns) -> Array:
    """The common beginning of two lists, then one unknown word for what differs."""
    same: list[Text] = []
    for left, right in zip(one.values, two.values, strict=False):
        if left.plain != right.plain:
            break
        same.append(left)
    common = Array()
    common.extend([*same, unknowns.text(names, same[-1].mark if same else NOWHERE)])
    return common
