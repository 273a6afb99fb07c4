"""What must hold between a layout, a model, a job and the framework: one object a rule.

`check` looks at one layout, `legal_mask` at a whole table with the same conditions; `explain` is the
handbook page of a rule.
"""

from __future__ import annotations

from functools import cache

from meshwright.errors import QuestionError, did_you_mean
from meshwright.layout.rules.checking import Check, check, examine, legal_values
from meshwright.layout.rules.mask import legal_mask
from meshwright.layout.rules.pages import explain, markdown_pages
from meshwright.layout.rules.registry import ALL_RULES
from meshwright.layout.rules.rule import Finding, Rule
from meshwright.layout.rules.summary import summary
from meshwright.layout.rules.view import UNKNOWN, Fill, Undecided, View

__all__ = [
    "ALL_RULES",
    "UNKNOWN",
    "Check",
    "Fill",
    "Finding",
    "Rule",
    "Undecided",
    "View",
    "check",
    "examine",
    "explain",
    "legal_mask",
    "legal_values",
    "markdown_pages",
    "rule",
    "summary",
]


@cache
def rule(name: str) -> Rule:
    """A rule by its id or by its number in the source list; QuestionError with the nearest names."""
    for known in ALL_RULES:
        if name == known.id or name.upper() in known.aliases:
            return known
    raise QuestionError(f"there is no rule {name!r}{did_you_mean(name, [r.id for r in ALL_RULES])}")
