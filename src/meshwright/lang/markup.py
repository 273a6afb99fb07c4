"""A page of HTML in another language: its words, not its tags, code, script or style."""

from __future__ import annotations

import re
from html import escape, unescape

from meshwright.lang.choice import Say

PART = re.compile(
    r"(?P<kept><(?P<tag>script|style|pre|code)\b[^>]*>.*?</(?P=tag)>)|(?P<mark><[^>]*>)|(?P<words>[^<]+)",
    re.S | re.I,
)
SAID = re.compile(r'\b(?P<name>aria-label|data-(?:light|dark|copied))="(?P<words>[^"]*)"')
"""Attributes that people see or hear."""


def page_in(html: str, say: Say, language: str) -> str:
    """The page with everything people read said by `say`, and its language named."""
    said = PART.sub(lambda part: _part(part, say), html)
    return said.replace('<html lang="en">', f'<html lang="{language}">', 1)


def _part(part: re.Match[str], say: Say) -> str:
    if part["words"]:
        return escape(say(unescape(part["words"])), quote=False)
    mark = part["kept"] or part["mark"]
    if part["kept"]:
        return mark
    return SAID.sub(lambda found: f'{found["name"]}="{escape(say(unescape(found["words"])))}"', mark)
