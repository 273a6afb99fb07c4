"""Saying an English text in another language by the phrases it is made of.

The rooms build their texts from phrases: a template with numbers in it, a template inside a template, one
phrase after another. The phrase book reads a text back into those phrases and says each of them; what is no
phrase (a name, a number, a flag) stays as it is. Of several readings the one that leaves fewest English
words wins, then the one with the longest phrases.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from meshwright.facts import load_json
from meshwright.lang.template import WORD, Template

PROSE = re.compile(
    r"(?<![\w\-./=:$@])(?!(?:v?pp|e?tp|e?dp|[ce]p|mbs|gbs|ms|s|ranks?|tokens?)\b)(?:GPUs|[A-Za-z]?[a-z]+)(?![\w/=@]|[\-.]\w)"
)
"""Words of a sentence, rather than names, flags, files and values."""
SEPARATORS = (("; ", "；"), (", ", "，"), (" or ", " 或 "), (" and ", " 和 "))
"""What joins phrases to lists, with the sign that takes its place."""
WIDE = re.compile(r"[\u2e80-\u9fff\uff00-\uffef\u3000-\u303f]")
LONGEST = 1000
"""Characters beyond which a text is no message."""


PIECE = 10
"""Characters that one more phrase must cover to be better than fewer phrases."""
SWALLOWED = 30
"""Cost of a hole that holds the end of a sentence: what follows a semicolon is better said after it."""
WEAK = 4
"""Letters below which a template is so general that it fits what it was not written for."""
FOREIGN = 0.4
"""Share of English words left over beyond which a line is better left in English than said in parts."""
_WIDE_LETTER = "\u4e00-\u9fff"
TIDY = (
    (re.compile(rf"(?<=[{_WIDE_LETTER}）]): ?|:(?=[{_WIDE_LETTER}])"), "："),
    (re.compile(rf"(?<=[{_WIDE_LETTER}）]), ?|,(?=[{_WIDE_LETTER}])"), "，"),
    (re.compile(rf"(?<=[{_WIDE_LETTER}）]); ?|;(?=[{_WIDE_LETTER}])"), "；"),
    (re.compile(r"(?<=[，。；：（）、！？…]) (?=\S)|(?<=\S) (?=[，。；：（）、！？])"), ""),
    (re.compile(rf"(?<=[{_WIDE_LETTER}]) (?=[{_WIDE_LETTER}])"), ""),
)
"""Signs and spaces between parts, as the other language writes them."""


class Reading(NamedTuple):
    """A text read as phrases: English words left over, characters of phrases, the text said."""

    left: int
    weight: int
    said: str

    @property
    def key(self) -> tuple[int, int]:
        """Smaller is better."""
        return self.left, -self.weight


class Phrasebook:
    """Phrases of one language."""

    def __init__(self, phrases: Mapping[str, str]) -> None:
        self._whole = {english: other for english, other in phrases.items() if "{" not in english}
        self._by_word: dict[str, list[Template]] = defaultdict(list)
        for english, other in phrases.items():
            template = Template(english, other)
            self._by_word[template.keyword].append(template)
        self._read: dict[str, Reading] = {}

    def say(self, text: str) -> str:
        """The text in this language, line by line; the space around each line stays."""
        return "\n".join(_around(line, self._line(line.strip())) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        reading = self.read(line)
        whole = len(PROSE.findall(line))
        if reading.said == line or (reading.left > 3 and reading.left > FOREIGN * whole):
            return line
        said = reading.said
        for sign, other in TIDY:
            said = sign.sub(other, said)
        return said

    def read(self, text: str) -> Reading:
        """The best reading of a line without space around it."""
        known = self._read.get(text)
        if known is None:
            self._read[text] = _untouched(text)  # while it is being read, it is not its own part
            known = self._read[text] = self._best(text)
        return known

    def _best(self, text: str) -> Reading:
        if text in self._whole:
            return Reading(0, len(text), self._whole[text])
        best = _untouched(text)
        if best.left == 0 or len(text) > LONGEST:
            return best
        for candidates in (self._matches, self._lists, self._sequences):
            for reading in candidates(text):
                if reading.key < best.key:
                    best = reading
            if best.left == 0 and "; " not in text:
                break
        return best

    def _candidates(self, text: str) -> Iterator[Template]:
        for word in ("", *dict.fromkeys(WORD.findall(text))):
            for template in self._by_word.get(word, ()):
                if all(piece in text for piece in template.literals):
                    yield template

    def _matches(self, text: str) -> Iterator[Reading]:
        """The text as one template whose holes are read in turn."""
        for template in self._candidates(text):
            match = template.pattern.fullmatch(text)
            if match is not None:
                yield from self._filled(template, match)

    def _filled(self, template: Template, match: re.Match[str]) -> Iterator[Reading]:
        """The template with its holes read; a general one only where nothing in them is left over."""
        readings = [
            Reading(0, 0, value) if number in template.kept else self._hole(value)
            for number, value in enumerate(match.groups())
        ]
        said = template.filled(tuple(reading.said for reading in readings))
        left = sum(reading.left for reading in readings)
        general = template.letters < WEAK
        if not (general and left):
            cost = PIECE * 3 if general else PIECE
            cost += SWALLOWED * sum("; " in value for value in match.groups())
            yield Reading(left, template.weight - cost + sum(reading.weight for reading in readings), said)

    def _hole(self, value: str) -> Reading:
        """What fills a hole; space beside a wide letter is dropped, for the phrase around it has its own."""
        reading = self.read(value.strip())
        said = _around(value, reading.said)
        if reading.said and WIDE.match(reading.said[0]):
            said = said.lstrip()
        if reading.said and WIDE.match(reading.said[-1]):
            said = said.rstrip()
        return reading._replace(said=said)

    def _part(self, value: str) -> Reading:
        """A stretch of a text, with the space around it."""
        reading = self.read(value.strip())
        return reading._replace(said=_around(value, reading.said))

    def _lists(self, text: str) -> Iterator[Reading]:
        """The text as a list of phrases."""
        for separator, other in SEPARATORS:
            if separator in text:
                parts = [self._hole(part) for part in text.split(separator)]
                yield _joined(parts, other)

    def _sequences(self, text: str) -> Iterator[Reading]:
        """The text as something before a template, or a template before something."""
        for template in list(self._candidates(text)):
            first, last = template.literals[0], template.literals[-1]
            if first:
                at = text.find(first, 1)
                while at > 0:
                    match = template.pattern.fullmatch(text, at)
                    if match is not None and not _inside_word(text, at):
                        for filled in self._filled(template, match):
                            yield _joined([self._part(text[:at]), filled], "")
                    at = text.find(first, at + 1)
            if last and template.weight > 3:
                match = template.pattern.match(text)
                if match is not None and match.end() < len(text) and not _inside_word(text, match.end()):
                    for filled in self._filled(template, match):
                        yield _joined([filled, self._part(text[match.end() :])], "")


def _untouched(text: str) -> Reading:
    return Reading(len(PROSE.findall(text)), 0, text)


def _inside_word(text: str, at: int) -> bool:
    return text[at - 1].isalnum() and text[at].isalnum()


def _joined(parts: list[Reading], between: str) -> Reading:
    """Parts side by side; every part beyond the first must earn its place."""
    said = between.join(part.said for part in parts)
    weight = sum(part.weight for part in parts) - PIECE * (len(parts) - 1)
    return Reading(sum(part.left for part in parts), weight, said)


def _around(original: str, said: str) -> str:
    """With the space of the original around it."""
    before = original[: len(original) - len(original.lstrip())]
    after = original[len(original.rstrip()) :]
    return before + said + after


@cache
def phrasebook(language: str) -> Phrasebook:
    """The phrase book of a language: all sections of its catalog as one."""
    return Phrasebook(phrases(language))


def phrases(language: str) -> dict[str, str]:
    """English phrase to phrase of a language; a section is only for those who read the catalog."""
    catalog: Mapping[str, Mapping[str, str]] = load_json("meshwright.lang", f"{language}.json")["phrases"]
    return {english: other for section in catalog.values() for english, other in section.items()}
