"""`--lang`: the language of screens, pages and, where the option itself is given, of texts in JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from meshwright.errors import QuestionError
from meshwright.lang import DEFAULT, Say, chosen, html_language, plain, speaker, translated

Lang = Annotated[
    str | None,
    typer.Option("--lang", help="language of the answer: en or zh", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """The language that was chosen.

    say    for what people read: screens and pages
    exact  for what programs read: English unless the option itself was given, whatever the environment says
    """

    language: str
    say: Say
    exact: Say

    @property
    def page(self) -> str:
        """The language as HTML names it."""
        return html_language(self.language)

    def data(self, value: Any) -> Any:
        """Plain values with their texts in the language of the option."""
        return value if self.exact is plain else translated(value, self.exact)


def voice(option: str | None) -> Voice:
    """The voice of an option, or of the environment; QuestionError for a language that is not spoken."""
    language = chosen(option, os.environ)
    say = speaker(language)
    return Voice(language=language, say=say, exact=say if option is not None else plain)


def voice_of(arguments: Sequence[str]) -> Voice:
    """The voice of a whole command line, for what is said of its failure; English where in doubt."""
    said = None
    for number, word in enumerate(arguments):
        if word == "--":
            break
        name, sign, value = word.partition("=")
        if name == "--lang":
            said = value if sign else next(iter(arguments[number + 1 :]), None)
    try:
        return voice(said)
    except QuestionError:
        return Voice(language=DEFAULT, say=plain, exact=plain)


def is_plain(spoken: Voice) -> bool:
    """Whether nothing needs to be said in another way."""
    return spoken.language == DEFAULT
