"""What a rule is, and what it says about a layout that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from meshwright.layout.rules.view import Undecided, View

Severity = Literal["error", "warn", "advice"]
Enforcer = Literal["Megatron Core", "Megatron-LM", "Megatron Bridge", "advice"]
Effect = Literal["raises", "miscomputes", "warns", "changes", "fills", "advises"]
"""What the enforcer does: raise; start and train something else; warn; change a value the user gave; fill one
left unset; nothing."""

CORE: tuple[Enforcer, ...] = ("Megatron Core",)
LM: tuple[Enforcer, ...] = ("Megatron-LM",)
BRIDGE: tuple[Enforcer, ...] = ("Megatron Bridge",)
LM_BRIDGE: tuple[Enforcer, ...] = ("Megatron-LM", "Megatron Bridge")
CORE_LM_BRIDGE: tuple[Enforcer, ...] = ("Megatron Core", "Megatron-LM", "Megatron Bridge")
ADVICE: tuple[Enforcer, ...] = ("advice",)

# Where most conditions were read.
CONFIG = "megatron/core/transformer/transformer_config.py, __post_init__"
PARALLEL_CONFIG = "megatron/core/model_parallel_config.py, __post_init__"
GROUPS = "megatron/core/parallel_state.py, initialize_model_parallel"
ARGUMENTS = "megatron/training/arguments.py, validate_args"
BRIDGE_CONFIG = "Megatron Bridge training/config.py, ConfigContainer.validate"

Text = str | Callable[[View], str]
Test = Callable[[View], Any]
"""Answers True or False; for rules of the mask, one answer a row of the table."""

Config = Mapping[str, Any]


def given(**options: Any) -> Config:
    """The options of an example, in Megatron's names or the short ones (`tp`, `world`, ...)."""
    return MappingProxyType(options)


def always(view: View) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about one thing, as `check` reports it."""

    rule: str
    severity: Severity
    message: str
    fix: str
    enforced_by: str
    line: int | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
            "enforced_by": self.enforced_by,
            "line": self.line,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that must hold, with everything people and programs need to know about it.

    id           slug that findings carry
    aliases      numbers in the list of rules the slugs were drawn from
    must         the condition, in words
    why          what goes wrong, or is gained, in one or two sentences
    enforced_by  who notices; a Megatron Core rule also binds the frameworks built on it
    effect       what the enforcer does about it
    since        date of the code that brought it (versions in `data/versions.json`); None: always there
    until        date of the code that took it away
    applies      whether the rule concerns this layout at all
    holds        whether the layout keeps it
    message      the sentence when it does not, with the user's own numbers
    nearest      legal values next to the one given
    mask         it decides whether a layout can start, and is written for a table of layouts too
    per_execution  of the mask, and reads execution flags as well
    searched     advice of thumb to try other degrees: a search prices those, and says what they cost
    breaks       options that break it, and `passes` that keep it: fixtures and documentation
    """

    id: str
    area: str
    must: str
    why: str
    severity: Severity
    enforced_by: tuple[Enforcer, ...]
    source: str
    holds: Test
    message: Text
    fix: Text
    aliases: tuple[str, ...] = ()
    effect: Effect = "raises"
    since: str | None = None
    until: str | None = None
    applies: Test = always
    nearest: Callable[[View], Sequence[object]] | None = None
    mask: bool = False
    per_execution: bool = False
    searched: bool = False
    breaks: Config = field(default_factory=dict)
    passes: Config = field(default_factory=dict)
    example_framework: Literal["megatron-core", "megatron-lm", "megatron-bridge"] | None = None

    def binds(self, view: View) -> bool:
        """Whether the framework and its version know this rule."""
        if not self.enforcer(view):
            return False
        return (self.since is None or self.since <= view.code_date) and (
            self.until is None or view.code_date < self.until
        )

    def enforcer(self, view: View) -> str:
        """Who enforces it for the framework of this view; empty when nobody does."""
        own = {"megatron-lm": "Megatron-LM", "megatron-bridge": "Megatron Bridge"}.get(view.framework)
        order = [own, "Megatron Core", "advice"]
        return next((name for name in order if name in self.enforced_by), "")

    def broken(self, view: View) -> Any:
        """True where the rule concerns the layout and does not hold; raises Undecided."""
        concerned = self.applies(view)
        if concerned is False or concerned is None:
            return False
        return concerned & ~_truth(self.holds(view)) if self.mask else concerned and not self.holds(view)

    def finding(self, view: View) -> Finding:
        """The finding of a view that breaks the rule."""
        message = render(self.message, view)
        if self.nearest is not None:
            message += nearest_words(self.nearest(view))
        return Finding(
            rule=self.id,
            severity=self.severity,
            message=message,
            fix=render(self.fix, view),
            enforced_by=self.enforcer(view),
            line=view.line_of(self),
        )

    def check(self, view: View) -> Finding | None:
        """The finding, or None when the rule is kept or does not concern this view; raises Undecided."""
        return self.finding(view) if self.binds(view) and bool(self.broken(view)) else None


def _truth(value: Any) -> Any:
    import numpy as np

    return np.asarray(value, dtype=bool)


def render(text: Text, view: View) -> str:
    """A message: `{tp}` or `{num_layers}` stand for the view's own values."""
    return text(view) if callable(text) else text.format_map(_Values(view))


def nearest_words(values: Sequence[object]) -> str:
    """`; nearest: 40 or 80`, or nothing when there is no legal value near."""
    words = [str(value) for value in values]
    if not words:
        return ""
    listed = words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
    return f"; nearest: {listed}"


class _Values(dict[str, Any]):
    """Looks names up in a view while a message is formatted."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def __missing__(self, name: str) -> Any:
        try:
            found = self.view.value(name)
        except Undecided:
            return "unset" if name not in self.view.options else "unknown"
        return "unset" if found is None else found
