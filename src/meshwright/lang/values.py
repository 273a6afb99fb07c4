"""Answers as plain values with their texts in another language; keys and figures stay."""

from __future__ import annotations

from typing import Any

from meshwright.lang.choice import Say

TEXTS = frozenset(
    {
        "message",
        "fix",
        "title",
        "lines",
        "guide_says",
        "holds",
        "reasons",
        "binding",
        "advice",
        "text",
        "unknown",
        "causes",
        "remedies",
        "assumptions",
    }
)
"""Fields whose values are written for people."""


def translated(value: Any, say: Say, *, field: str = "") -> Any:
    """The value with the texts of its fields said by `say`."""
    if isinstance(value, dict):
        return {name: translated(inner, say, field=str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [translated(inner, say, field=field) for inner in value]
    return say(value) if field in TEXTS and isinstance(value, str) else value
