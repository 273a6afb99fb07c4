"""Checking one layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from meshwright.layout.rules import effective
from meshwright.layout.rules.registry import ALL_RULES
from meshwright.layout.rules.rule import Finding, Rule
from meshwright.layout.rules.view import Undecided, View

_ORDER = {"error": 0, "warn": 1, "advice": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What came out of a check: findings, worst first, and rules that could not be decided.

    undecided  rule id to the option that is not known
    """

    findings: tuple[Finding, ...]
    undecided: Mapping[str, str]

    @property
    def verdict(self) -> Literal["ok", "warn", "invalid"]:
        severities = {finding.severity for finding in self.findings}
        return "invalid" if "error" in severities else "warn" if "warn" in severities else "ok"


def examine(view: View, rules: Iterable[Rule] = ALL_RULES) -> Check:
    """All findings of a view and the rules whose inputs are not known.

    Rules that only describe a value the framework fills in are no findings; `view.fills` has those.
    """
    found: list[Finding] = []
    undecided: dict[str, str] = {}
    for rule in rules:
        if rule.effect == "fills":
            continue
        try:
            finding = rule.check(view)
        except Undecided as missing:
            undecided[rule.id] = missing.option
            continue
        except (TypeError, ValueError, ArithmeticError):
            # A value of another kind than the option takes: the framework will say so when it parses it.
            undecided[rule.id] = "a value of the wrong kind"
            continue
        if finding is not None:
            found.append(finding)
    return Check(
        findings=tuple(sorted(found, key=lambda finding: _ORDER[finding.severity])), undecided=undecided
    )


def check(view: View) -> tuple[Finding, ...]:
    """The findings of a view: errors first, then warnings, then advice."""
    return examine(view).findings


def legal_values(view: View, option: str, candidates: Iterable[Any]) -> dict[Any, tuple[str, ...]]:
    """For each candidate value of an option, the ids of the error rules it would break (none: legal)."""
    from meshwright.layout.rules.sources import canonical

    (name,) = canonical({option: None})
    broken: dict[Any, tuple[str, ...]] = {}
    for candidate in candidates:
        said = {**view.said, name: candidate}
        options, fills = effective.effective(said, view.framework, view.code_date)
        changed = replace(view, said=said, options=options, fills=fills)
        broken[candidate] = tuple(f.rule for f in check(changed) if f.severity == "error")
    return broken
