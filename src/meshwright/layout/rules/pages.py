"""A handbook page for each rule, from the rule itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.lang import Say, plain
from meshwright.layout.rules.rule import Rule
from meshwright.layout.rules.view import View

_EFFECTS = {
    "raises": "stops with an error",
    "miscomputes": "starts, and trains wrongly without a word",
    "warns": "prints a warning and goes on",
    "changes": "silently trains with another value",
    "fills": "fills the value in",
    "advises": "nobody checks it; it is advice",
}


def explain(name: str, say: Say = plain) -> str:
    """The handbook page of a rule as text; `say` says its words in the language of the reader."""
    from meshwright.layout.rules import rule

    found = rule(name)
    lines = [f"Must: {found.must}.", f"Why:  {found.why}"]
    lines += [f"Who:  {', '.join(found.enforced_by)} ({_EFFECTS[found.effect]})"]
    lines += [f"When: {when(found)}"] if when(found) else []
    lines += [""]
    example = example_finding(found)
    if found.breaks:
        lines += [f"Breaks: {options_text(found.breaks)}"]
    if example:
        lines += [f"  says: {example[0]}", f"  fix:  {example[1]}"]
    if found.passes:
        lines += [f"Passes: {options_text(found.passes)}"]
    lines += ["", f"Source: {found.source}", f"Also known as: {', '.join(found.aliases) or '-'}"]
    return "\n".join([found.id, "=" * len(found.id), "", *map(say, lines)])


def when(found: Rule) -> str:
    """Since (or until) which code the rule holds."""
    parts = [f"code since {found.since}"] if found.since else []
    parts += [f"code until {found.until}"] if found.until else []
    return ", ".join(parts)


def options_text(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def example_view(found: Rule, options: Mapping[str, Any]) -> View:
    """A view of an example: under a framework that enforces the rule, with code that knows it."""
    own = {"Megatron-LM": "megatron-lm", "Megatron Bridge": "megatron-bridge"}
    framework: Any = found.example_framework or own.get(found.enforced_by[0], "megatron-core")
    version = "0.6" if found.until else None
    env = {name: str(value) for name, value in options.items() if name.isupper() and value is not None}
    plain = {name: value for name, value in options.items() if not name.isupper()}
    has_env = any(name.isupper() for name in options)
    return View.of(plain, framework=framework, version=version, env=env if has_env else None)


def example_finding(found: Rule) -> tuple[str, str] | None:
    """Message and fix of the example that breaks the rule."""
    if not found.breaks:
        return None
    finding = found.check(example_view(found, found.breaks))
    return None if finding is None else (finding.message, finding.fix)


def markdown_pages() -> dict[str, str]:
    """`{rule id: page}` in Markdown for all rules."""
    from meshwright.layout.rules.registry import ALL_RULES

    return {found.id: _markdown(found) for found in ALL_RULES}


def _markdown(found: Rule) -> str:
    example = example_finding(found)
    rows = [
        f"# {found.id}",
        "",
        f"**Must:** {found.must}.",
        "",
        found.why,
        "",
        f"- Severity: {found.severity}",
        f"- Enforced by: {', '.join(found.enforced_by)}; {_EFFECTS[found.effect]}",
    ]
    rows += [f"- Holds for: {when(found)}"] if when(found) else []
    rows += [f"- Source: {found.source}", ""]
    if found.breaks:
        rows += ["Breaks:", "", f"    {options_text(found.breaks)}", ""]
    if example:
        rows += [f"> {example[0]}", ">", f"> Fix: {example[1]}", ""]
    if found.passes:
        rows += ["Passes:", "", f"    {options_text(found.passes)}", ""]
    return "\n".join(rows)
