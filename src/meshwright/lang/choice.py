"""Which language is asked for, and who speaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from meshwright.errors import QuestionError

Say = Callable[[str], str]
"""From an English text to the same text in some language."""

DEFAULT = "en"
LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""Languages by the name an option takes, with their names in HTML (BCP 47)."""
VARIABLE = "MESHWRIGHT_LANG"


def plain(text: str) -> str:
    """English, as it is."""
    return text


def chosen(option: str | None, environment: Mapping[str, str]) -> str:
    """The language of an option, else of the environment variable, else English.

    Raises QuestionError for one that is not spoken.
    """
    for said, name in ((option, "--lang"), (environment.get(VARIABLE) or None, VARIABLE)):
        if said is None:
            continue
        language = said.strip().lower().replace("_", "-")
        if language.partition(".")[0] in ("zh", "zh-cn", "zh-hans", "zh-hans-cn"):
            return "zh"
        if language in LANGUAGES:
            return language
        raise QuestionError(f"{name} {said[:40]}: languages are {' and '.join(LANGUAGES)}")
    return DEFAULT


def label(say: Say, words: str) -> str:
    """Words that stand before others, with the space that belongs between.

    >>> label(plain, "fix:")
    'fix: '
    """
    said = say(words)
    return said if said.endswith("：") else f"{said} "


@cache
def speaker(language: str) -> Say:
    """Who says English texts in that language."""
    if language == DEFAULT:
        return plain
    from meshwright.lang.phrasebook import phrasebook

    return phrasebook(language).say


def html_language(language: str) -> str:
    """The language as the `lang` of a page."""
    return LANGUAGES[language]
