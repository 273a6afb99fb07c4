"""`explain` and `rules`: the handbook of what must hold."""

from __future__ import annotations

from meshwright.lang import Say, plain
from meshwright.layout.rules import ALL_RULES
from meshwright.layout.rules import explain as explain_rule


def explain(rule: str, say: Say = plain) -> str:
    """The page of a rule, by its id: what must hold, why, an example, the fix, the source.

    say  says its words in the language of the reader
    """
    return explain_rule(rule, say)


def rules() -> tuple[tuple[str, str, str], ...]:
    """(id, severity, what must hold) of every rule."""
    return tuple((rule.id, rule.severity, rule.must) for rule in ALL_RULES)
