"""`explain` and `rules`: the handbook of what must hold."""

from __future__ import annotations

from typing import Any

from meshwright.lang import Say, plain
from meshwright.layout.rules import ALL_RULES
from meshwright.layout.rules import explain as explain_rule
from meshwright.layout.rules import rule as find_rule


def explain(rule: str, say: Say = plain) -> str:
    """The page of a rule, by its id: what must hold, why, an example, the fix, the source.

    say  says its words in the language of the reader
    """
    return explain_rule(rule, say)


def rule_data(name: str, say: Say = plain) -> dict[str, Any]:
    """A rule as data: what must hold, why, who enforces it, what breaks and what keeps it."""
    one = find_rule(name)
    return {
        "rule": one.id,
        "aliases": list(one.aliases),
        "area": one.area,
        "severity": one.severity,
        "must": say(one.must),
        "why": say(one.why),
        "enforced_by": list(one.enforced_by),
        "effect": one.effect,
        "since": one.since,
        "until": one.until,
        "source": one.source,
        "fix": say(one.fix) if isinstance(one.fix, str) else None,
        "breaks": dict(one.breaks),
        "passes": dict(one.passes),
    }


def rules() -> tuple[tuple[str, str, str], ...]:
    """(id, severity, what must hold) of every rule."""
    return tuple((rule.id, rule.severity, rule.must) for rule in ALL_RULES)
