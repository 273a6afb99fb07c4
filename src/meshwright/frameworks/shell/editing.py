"""`sed` as launch scripts use it: templates filled in by `s/__TP__/4/g`, on a file, in place or in a pipe.

Only substitutions and deletions of lines; patterns are literal text with `.`, `.*`, `[...]`, `^` and `$`.
Anything else leaves the result open.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.redirections import read_file
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.evaluate import Shell, Status

Words = list[Text]
MAX_EDITS = 200
MAX_LENGTH = 300_000
MAX_LINE = 2_000


@dataclass(frozen=True)
class Edit:
    """One command of a sed script: replace what matches, or (no replacement) delete the line."""

    pattern: re.Pattern[str]
    replacement: Text | None
    everywhere: bool = False


def sed(shell: Shell, words: Words) -> Status:
    """Filter a file or the input; with `-i` the file itself is changed (the copy that is kept in memory)."""
    scripts, files, in_place = _arguments(words[1:])
    edits = [edit for script in scripts for edit in _edits(script)]
    texts = [read_file(shell, name.plain) for name in files] if files else [shell.stdin]
    unknown = not all(word.is_known for word in words) or None in edits or None in texts
    if unknown or len(edits) > MAX_EDITS:
        names = set().union(*(shell.unknowns.names(word) for word in words)) or {"sed"}
        if not in_place:
            shell.output.append(shell.unknowns.text(names, words[0].mark))
        return None
    done = [_edited(text, [edit for edit in edits if edit]) for text in texts if text is not None]
    shell.budget.spend(1 + len(edits), sum(len(text) for text in done))
    if not in_place:
        shell.output.extend(done)
        return 0
    for name, text in zip(files, done, strict=True):
        shell.files.write(os.path.normpath(os.path.join(shell.state.cwd, name.plain)), text)
    return 0


def _arguments(words: Words) -> tuple[list[Text], Words, bool]:
    """(scripts, files, whether files are edited in place)."""
    scripts: list[Text] = []
    rest: Words = []
    in_place = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.plain in ("-e", "--expression") and at < len(words):
            scripts.append(words[at])
            at += 1
        elif word.plain.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif re.fullmatch(r"-[nErsz]*i.*|--in-place.*", word.plain):
            in_place = True
        elif not (word.plain.startswith("-") and len(word) > 1):
            rest.append(word)
    if not scripts and rest:
        scripts, rest = [rest[0]], rest[1:]
    return scripts, rest, in_place


def _edits(script: Text) -> Iterator[Edit | None]:
    """The commands of a script; None for one that is not understood."""
    plain, at = script.plain, 0
    while at < len(plain) and at < MAX_LENGTH:
        if plain[at] in "; \n\t":
            at += 1
            continue
        found = _substitution(script, at) if plain[at] == "s" else _deletion(script, at)
        if found is None:
            yield None
            return
        edit, at = found
        yield edit


def _substitution(script: Text, at: int) -> tuple[Edit, int] | None:
    """`s/pattern/replacement/flags` with any delimiter."""
    plain = script.plain
    if at + 1 >= len(plain) or plain[at + 1].isalnum() or plain[at + 1] in "\\\n":
        return None
    delimiter = plain[at + 1]
    ends: list[int] = []
    position = at + 2
    while position < len(plain) and len(ends) < 2:
        if plain[position] == "\\":
            position += 1
        elif plain[position] == delimiter:
            ends.append(position)
        position += 1
    if len(ends) < 2:
        return None
    flags = re.match(r"[gI]*", plain[ends[1] + 1 :])
    word = flags.group() if flags else ""
    stop = ends[1] + 1 + len(word)
    pattern = _pattern(plain[at + 2 : ends[0]].replace(f"\\{delimiter}", delimiter), "I" in word)
    replacement = script.slice(ends[0] + 1, ends[1])
    if pattern is None or re.search(r"\\[0-9]|(?<!\\)&", replacement.plain):
        return None
    if "\\" in replacement.plain:
        replacement = Text.of(re.sub(r"\\(.)", r"\1", replacement.plain), replacement.mark)
    return Edit(pattern, replacement, "g" in word), stop


def _deletion(script: Text, at: int) -> tuple[Edit, int] | None:
    """`/pattern/d`."""
    found = re.match(r"/((?:[^/\\]|\\.)*)/d", script.plain[at:])
    pattern = _pattern(found.group(1)) if found else None
    return (Edit(pattern, None), at + found.end()) if found and pattern else None


def _pattern(text: str, ignore_case: bool = False) -> re.Pattern[str] | None:
    """A basic regular expression that cannot run away: literal text, `.`, sets, at most one star."""
    if text.count("*") > 1 or len(text) > 500 or re.search(r"\\[(){}|+?0-9<>bwsWS]", text):
        return None
    parts: list[str] = []
    at = 0
    while at < len(text):
        found = re.match(r"\[\^?\]?[^\]\\]*\]|\\.|.", text[at:], re.DOTALL)
        if found is None:
            return None
        piece = found.group()
        at += len(piece)
        if piece[0] == "[" and len(piece) > 2:
            parts.append("[" + piece[1:-1].replace("[", r"\[") + "]")
        elif piece[0] == "\\":
            parts.append(re.escape(piece[1]))
        elif _special(piece, first=not parts, last=at == len(text)):
            parts.append(piece)
        else:
            parts.append(re.escape(piece))
    try:
        return re.compile("".join(parts), re.IGNORECASE if ignore_case else 0)
    except re.error:
        return None


def _special(piece: str, *, first: bool, last: bool) -> bool:
    return piece == "." or (piece == "*" and not first) or (piece == "^" and first) or (piece == "$" and last)


def _edited(text: Text, edits: list[Edit]) -> Text:
    lines: list[Text] = []
    for line in _lines(text):
        kept: Text | None = line
        for edit in edits:
            if kept is not None:
                kept = _applied(kept, edit)
        if kept is not None:
            lines.append(kept)
    return Text.join(lines)


def _lines(text: Text) -> Iterator[Text]:
    """Lines with their ends."""
    start = 0
    for found in re.finditer("\n", text.plain):
        yield text.slice(start, found.end())
        start = found.end()
    if start < len(text):
        yield text.slice(start, len(text))


def _applied(line: Text, edit: Edit) -> Text | None:
    plain = line.plain.removesuffix("\n")
    if len(plain) > MAX_LINE:  # a star over a long line takes the square of its length
        return line
    if edit.replacement is None:
        return None if edit.pattern.search(plain) else line
    pieces: list[Text] = []
    at = 0
    for found in edit.pattern.finditer(plain):
        pieces += [line.slice(at, found.start()), edit.replacement]
        at = found.end()
        if not edit.everywhere:
            break
    return Text.join([*pieces, line.slice(at, len(line))]) if pieces else line
