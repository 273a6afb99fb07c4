"""Splitting marked raw text into shell words and operators, for tests and strings of options."""

from __future__ import annotations

from meshwright.frameworks.shell.brackets import closing_brace, closing_paren
from meshwright.frameworks.shell.expand import closing_quote
from meshwright.frameworks.shell.text import Text

OPERATORS = ("&&", "||", "(", ")")


def raw_words(raw: Text, *, operators: bool = False) -> list[Text]:
    """The words of a text, still quoted; with `operators`, `&&`, `||`, `(` and `)` stand alone."""
    text, at, start = raw.plain, 0, -1
    out: list[Text] = []

    def close(stop: int) -> None:
        nonlocal start
        if start >= 0:
            out.append(raw.slice(start, stop))
        start = -1

    while at < len(text):
        char = text[at]
        if char in " \t\n":
            close(at)
            at += 1
        elif (
            operators
            and (found := next((op for op in OPERATORS if text.startswith(op, at)), ""))
            and (found in ("&&", "||") or start < 0 or found == ")")
            and not (found in ("(", ")") and out and out[-1].plain == "=~" and _in_group(text, start, at))
        ):
            close(at)
            out.append(raw.slice(at, at + len(found)))
            at += len(found)
        else:
            start = at if start < 0 else start
            at = _after_piece(text, at)
    close(len(text))
    return out


def _in_group(text: str, start: int, at: int) -> bool:
    """Whether a bracket belongs to the regular expression that stands there."""
    word = text[start:at] if start >= 0 else ""
    return text[at] == "(" or word.count("(") > word.count(")")


def _after_piece(text: str, at: int) -> int:
    """Where the quoted or bracketed piece at `at` ends (the next character for a plain one)."""
    char = text[at]
    if char == "\\":
        return at + 2
    if char == "'":
        close = text.find("'", at + 1)
        return close + 1 if close >= 0 else len(text)
    if char == '"':
        return closing_quote(text, at) + 1
    if text.startswith("${", at):
        return closing_brace(text, at + 1) + 1
    if text.startswith("$(", at):
        return closing_paren(text, at + 1) + 1
    return at + 1
