"""Programs that pick from lines: grep, sort, uniq, paste, xargs and the small part of awk that scripts use.

Each takes its words, its input and a way to read files, and returns its output (None: it is open).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from meshwright.frameworks.shell import awk, patterns
from meshwright.frameworks.shell.text import Text

Words = list[Text]
Reader = Callable[[str], Text | None]
Filter = Callable[[Words, Text | None, Reader], Text | None]
MAX_LINES = 10_000


def lines_of(text: Text) -> list[Text]:
    """The lines without their ends."""
    found: list[Text] = []
    start, plain = 0, text.plain
    while start < len(plain) and len(found) < MAX_LINES:
        end = plain.find("\n", start)
        end = end if end >= 0 else len(plain)
        found.append(text.slice(start, end))
        start = end + 1
    return found


def joined(lines: list[Text]) -> Text:
    """Lines with their ends."""
    return Text.join([line + Text.of("\n", line.mark) for line in lines])


def _input(names: Words, stdin: Text | None, read: Reader) -> Text | None:
    if not names or [name.plain for name in names] == ["-"]:
        return stdin
    texts = [read(name.plain) for name in names]
    known = [text for text in texts if text is not None]
    return Text.join(known) if len(known) == len(texts) else None


def grep(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """Lines that match; -v -i -E -F -w -x -o -c -h -q -m N and -e PATTERN."""
    flags = {"egrep": "E", "fgrep": "F"}.get(words[0].plain, "")
    expressions, rest, most = [], [], MAX_LINES
    at = 1
    while at < len(words):
        plain = words[at].plain
        following = words[at + 1].plain if at + 1 < len(words) else ""
        at += 1
        if plain == "-e":
            expressions.append(following)
            at += 1
        elif found := re.fullmatch(r"-(\w*)m(\d{0,6})", plain):
            flags += found.group(1)
            number = found.group(2) or following
            at += not found.group(2)
            if not number.isdigit():
                return None
            most = int(number[:6])
        elif re.fullmatch(r"-[viEFGPwxochqsn]+", plain):
            flags += plain[1:]
        elif plain.startswith("-") and plain != "-":
            return None
        else:
            rest.append(words[at - 1])
    if not expressions and rest:
        expressions, rest = [rest[0].plain], rest[1:]
    text = _input(rest, stdin, read)
    if text is None or not expressions or "n" in flags or (len(rest) > 1 and "h" not in flags):
        return None
    tests = [_pattern(expression, flags) for expression in expressions[:20]]
    patterns_ = [test for test in tests if test is not None]
    if len(patterns_) != len(expressions):
        return None
    return _matching(lines_of(text), patterns_, flags, most)


def _pattern(expression: str, flags: str) -> re.Pattern[str] | None:
    ignore = "i" in flags
    if "F" in flags:
        one: re.Pattern[str] | None = re.compile(re.escape(expression), re.IGNORECASE if ignore else 0)
    else:
        perl = expression.replace(r"\d", "[0-9]") if "P" in flags else expression
        one = patterns.compiled(perl, extended="E" in flags or "P" in flags, ignore_case=ignore)
    if one is None or not ("w" in flags or "x" in flags):
        return one
    around = ("^(?:", ")$") if "x" in flags else (r"(?<!\w)(?:", r")(?!\w)")
    return re.compile(around[0] + one.pattern + around[1], one.flags)


def _matching(lines: list[Text], tests: list[re.Pattern[str]], flags: str, most: int) -> Text | None:
    kept: list[Text] = []
    if not patterns.affordable(tests, (line.plain for line in lines)):
        return None
    for line in lines:
        hit = any(test.search(line.plain) for test in tests)
        if hit == ("v" in flags) or len(kept) >= most:
            continue
        if "o" in flags:
            kept += [
                line.slice(*found.span())
                for test in tests
                for found in test.finditer(line.plain)
                if found.group()
            ]
        else:
            kept.append(line)
    return Text.of(f"{len(kept)}\n") if "c" in flags else joined(kept)


def sort(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`sort` by characters or -n, with -r, -u, -V."""
    flags = "".join(word.plain[1:] for word in words[1:] if re.fullmatch(r"-[nruV]+", word.plain))
    names = [word for word in words[1:] if not word.plain.startswith("-")]
    if any(word.plain.startswith("-") and not re.fullmatch(r"-[nruV]+", word.plain) for word in words[1:]):
        return None
    text = _input(names, stdin, read)
    if text is None:
        return None

    def key(line: Text) -> tuple[float, list[tuple[int, str]], str]:
        number = re.match(r"\s*-?\d{1,15}(?:\.\d{1,15})?", line.plain) if "n" in flags else None
        parts = [(int(p[:15]) if p.isdigit() else -1, p) for p in re.findall(r"\d+|\D+", line.plain)]
        return (float(number.group()) if number else 0.0, parts if "V" in flags else [], line.plain)

    found = sorted(lines_of(text), key=key, reverse="r" in flags)
    return joined(_unique(found) if "u" in flags else found)


def _unique(lines: list[Text]) -> list[Text]:
    return [line for n, line in enumerate(lines) if n == 0 or line.plain != lines[n - 1].plain]


def uniq(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    return joined(_unique(lines_of(stdin))) if stdin is not None and len(words) == 1 else None


def paste(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`paste -sd,`: the lines as one."""
    said = " ".join(word.plain for word in words[1:])
    found = re.fullmatch(r"-s ?(?:-?d ?(.))?(?: -)?|-d ?(.) -s(?: -)?", said)
    if stdin is None or found is None:
        return None
    between = found.group(1) or found.group(2) or "\t"
    return Text.join(lines_of(stdin), between) + Text.of("\n", stdin.mark)


def xargs(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`xargs` alone or before echo: the words of the input on one line."""
    said = [word.plain for word in words[1:]]
    each = said[:1] in (["-n1"], ["-L1"]) or said[:2] in (["-n", "1"], ["-L", "1"])
    said = [word for word in said if not (each and word in ("-n1", "-L1", "-n", "-L", "1"))]
    if stdin is None or said not in ([], ["echo"], ["echo", "-n"]) or re.search(r"['\"\\]", stdin.plain):
        return None
    return Text.join(list(stdin.fields()), "\n" if each else " ") + Text.of("\n", stdin.mark)


def tac(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    text = _input(words[1:], stdin, read)
    return joined(lines_of(text)[::-1]) if text is not None else None


def run_awk(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """awk with -F and -v; programs beyond `awk.Program` are open."""
    separator: str | None = None
    variables: dict[str, str] = {}
    rest: Words = []
    at = 1
    while at < len(words):
        plain = words[at].plain
        if plain in ("-F", "-v") and at + 1 < len(words):
            at += 1
            plain += words[at].plain
        if plain.startswith("-F") and not rest:
            separator = plain[2:]
        elif plain.startswith("-v") and not rest:
            name, _, value = plain[2:].partition("=")
            variables[name] = value
        elif plain.startswith("-") and not rest:
            return None
        else:
            rest.append(words[at])
        at += 1
    if not rest:
        return None
    program = awk.parse(rest[0].plain)
    if program is None:
        return None
    text = Text() if program.only_begin else _input(rest[1:], stdin, read)
    if text is None:
        return None
    found = awk.run(program, [line.plain for line in lines_of(text)], separator, variables)
    return None if found is None else Text.of(found, rest[0].mark)


TABLES: dict[str, Filter] = {
    "grep": grep,
    "egrep": grep,
    "fgrep": grep,
    "sort": sort,
    "uniq": uniq,
    "paste": paste,
    "xargs": xargs,
    "tac": tac,
    "awk": run_awk,
    "gawk": run_awk,
    "mawk": run_awk,
}
