"""Parts of a Python file of which one is carried out: what they leave alike holds, what differs is open."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from meshwright.errors import QuestionError
from meshwright.frameworks.reading import Unknown, Value

if TYPE_CHECKING:
    from meshwright.frameworks.python_config import PythonConfig
    from meshwright.frameworks.python_values import Scope

Held = TypeVar("Held")
MOST_COPIED = 5_000_000
"""Values that are put aside for all the branches of a file together: reading it stays quick."""


@dataclass
class Moment:
    """What is known at one place: names, and the configuration so far."""

    values: dict[str, Value]
    aliases: dict[str, str]
    options: dict[str, Value]
    flat: dict[str, Value]
    plain: dict[str, Value]
    open: dict[str, Unknown]
    recipe: Value | None
    model: Value | None

    @classmethod
    def of(cls, scope: Scope, config: PythonConfig) -> Moment:
        return cls(
            dict(scope.values), dict(scope.aliases), dict(scope.options), dict(config.flat),
            dict(config.plain), dict(config.open), config.recipe, config.model,
        )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.values) + len(self.options) + len(self.flat) + len(self.plain)

    def restore(self, scope: Scope, config: PythonConfig) -> None:
        """Go back to it; `options` is shared with the scopes that called this one."""
        scope.values, scope.aliases = dict(self.values), dict(self.aliases)
        scope.options.clear()
        scope.options.update(self.options)
        config.flat, config.plain, config.open = dict(self.flat), dict(self.plain), dict(self.open)
        config.recipe, config.model = self.recipe, self.model


def one_of(
    ways: Sequence[Callable[[], None]], test: ast.expr, scope: Scope, config: PythonConfig, copied: list[int]
) -> None:
    """Carry out every way from the same place, and keep what all of them leave alike.

    test    what decides, for the note on what is open
    copied  [values put aside so far]; QuestionError where a file asks for too many
    """
    before = Moment.of(scope, config)
    ends: list[Moment] = []
    for way in ways:
        copied[0] += 3 * before.size
        if copied[0] > MOST_COPIED:
            raise QuestionError(f"{scope.file} holds more than {MOST_COPIED:,} values; that is no config")
        before.restore(scope, config)
        way()
        ends.append(Moment.of(scope, config))
    alike = Moment(
        _alike([end.values for end in ends], _same),
        _alike([end.aliases for end in ends], lambda a, b: a == b),
        _alike([end.options for end in ends], _same),
        _alike([end.flat for end in ends], _same),
        _alike([end.plain for end in ends], _same),
        {},
        _only([end.recipe for end in ends]),
        _only([end.model for end in ends]),
    )
    alike.restore(scope, config)
    for end in ends:
        config.open |= {name: left for name, left in end.open.items() if name not in config.open}
        for known, kept in ((end.flat, config.flat), (end.plain, config.plain)):
            for name in known:
                if name not in kept and name not in config.open:
                    config.leave_open(name, test, scope.file)
    if config.recipe is None and any(end.recipe for end in ends):
        config.leave_open("recipe", test, scope.file)


def _same(one: Value, other: Value) -> bool:
    return type(one.value) is type(other.value) and one.value == other.value


def _alike(ends: Sequence[Mapping[str, Held]], same: Callable[[Held, Held], bool]) -> dict[str, Held]:
    first, *others = ends
    return {
        name: held
        for name, held in first.items()
        if all(name in other and same(held, other[name]) for other in others)
    }


def _only(found: Sequence[Value | None]) -> Value | None:
    """The one that ways name which name any."""
    named = [value for value in found if value is not None]
    return named[0] if len({value.value for value in named}) == 1 else None
