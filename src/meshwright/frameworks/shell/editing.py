"""`sed` as launch scripts use it: templates filled in by `s/__TP__/4/g`, on a file, in place or in a pipe.

Only substitutions and deletions of lines.
Anything else leaves the result open.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.patterns import affordable, compiled
from meshwright.frameworks.shell.redirections import read_file
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.evaluate import Shell, Status

Words = list[Text]
MAX_EDITS = 200
MAX_LENGTH = 300_000
MAX_GROWN = 20_000
UNDERSTOOD = re.compile(r"-[Ers]*e?|-[Ers]*i.*|--(?:in-place|expression=).*|--expression|--regexp-extended")
"""Options of sed whose result is known here; -n prints nothing by itself, -f reads a script."""


@dataclass(frozen=True)
class Edit:
    """One command of a sed script: replace what matches, or (no replacement) delete the line."""

    pattern: re.Pattern[str]
    replacement: Text | None
    everywhere: bool = False
    groups: bool = False
    """The replacement holds `&` or `\\1`."""


def sed(shell: Shell, words: Words) -> Status:
    """Filter a file or the input; with `-i` the file itself is changed (the copy that is kept in memory)."""
    scripts, files, in_place = _arguments(words[1:])
    options = [word.plain for word in words[1:] if re.match(r"-[a-zA-Z-]", word.plain)]
    extended = any(re.fullmatch(r"-[s]*[Er][es]*(?:i.*)?|--regexp-extended", word) for word in options)
    edits = [edit for script in scripts for edit in _edits(script, extended)]
    texts = [read_file(shell, name.plain) for name in files] if files else [shell.stdin]
    unknown = not all(word.is_known for word in words) or None in edits or None in texts
    unknown = unknown or not all(UNDERSTOOD.fullmatch(word) for word in options)
    tests = [edit.pattern for edit in edits if edit]
    lines = [line.plain for text in texts if text is not None for line in _lines(text)]
    if unknown or len(edits) > MAX_EDITS or not affordable(tests, lines):
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
        if re.fullmatch(r"-[Ers]*e|--expression", word.plain) and at < len(words):
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


def _edits(script: Text, extended: bool) -> Iterator[Edit | None]:
    """The commands of a script; None for one that is not understood."""
    plain, at = script.plain, 0
    while at < len(plain) and at < MAX_LENGTH:
        if plain[at] in "; \n\t":
            at += 1
            continue
        found = (_substitution if plain[at] == "s" else _deletion)(script, at, extended)
        if found is None:
            yield None
            return
        edit, at = found
        yield edit


def _substitution(script: Text, at: int, extended: bool) -> tuple[Edit, int] | None:
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
    expression = plain[at + 2 : ends[0]].replace(f"\\{delimiter}", delimiter)
    pattern = compiled(expression, extended=extended, ignore_case="I" in word)
    replacement = script.slice(ends[0] + 1, ends[1])
    if pattern is None:
        return None
    groups = re.search(r"\\[0-9]|(?<!\\)&", replacement.plain) is not None
    if "\\" in replacement.plain and not groups:
        replacement = Text.of(re.sub(r"\\(.)", r"\1", replacement.plain), replacement.mark)
    return Edit(pattern, replacement, "g" in word, groups), stop


def _deletion(script: Text, at: int, extended: bool) -> tuple[Edit, int] | None:
    """`/pattern/d`."""
    found = re.match(r"/((?:[^/\\]|\\.)*)/d", script.plain[at:])
    pattern = compiled(found.group(1), extended=extended) if found else None
    return (Edit(pattern, None), at + found.end()) if found and pattern else None


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
    if len(plain) > MAX_GROWN or not affordable([edit.pattern], [plain]):  # edits can double a line each
        return line
    if edit.replacement is None:
        return None if edit.pattern.search(plain) else line
    pieces: list[Text] = []
    at = 0
    for found in edit.pattern.finditer(plain):
        put = _filled(edit.replacement, found, line) if edit.groups else edit.replacement
        pieces += [line.slice(at, found.start()), put]
        at = found.end()
        if not edit.everywhere:
            break
    return Text.join([*pieces, line.slice(at, len(line))]) if pieces else line


def _filled(replacement: Text, found: re.Match[str], line: Text) -> Text:
    """The replacement with `&` and `\\1` put in from the line."""
    pieces: list[Text] = []
    at = 0
    for part in re.finditer(r"\\(.)|&", replacement.plain):
        pieces.append(replacement.slice(at, part.start()))
        at = part.end()
        number = part.group(1) or "0"
        if not (number.isdigit()) or (part.group() != "&" and part.group(1) is None):
            pieces.append(Text.of(number, replacement.mark))
        elif int(number) <= (found.re.groups or 0):
            pieces.append(line.slice(*found.span(int(number))))
    return Text.join([*pieces, replacement.slice(at, len(replacement))])
