"""Small pure programs that launch scripts use to compute values: dirname, seq, head, cut, ...

Each takes its words, its input and a way to read files near the script, and returns its output, or
None where the answer depends on the machine.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable

from meshwright.frameworks.shell import arith
from meshwright.frameworks.shell.tables import TABLES
from meshwright.frameworks.shell.text import Text

Words = list[Text]
Reader = Callable[[str], Text | None]
Filter = Callable[[Words, Text | None, Reader], Text | None]
MAX_LINES = 10_000


def _line(words: Words, text: str) -> Text:
    return Text.of(text + "\n", words[-1].mark)


def _operands(words: Words) -> list[Text]:
    return [word for word in words[1:] if not word.plain.startswith("-") or word.plain == "-"]


def _dirname(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    names = _operands(words)
    return _line(words, os.path.dirname(names[0].plain) or ".") if names else None


def _basename(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    names = _operands(words)
    if not names:
        return None
    base = os.path.basename(names[0].plain.rstrip("/"))
    return _line(words, base.removesuffix(names[1].plain) if len(names) > 1 else base)


def _realpath(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    names = _operands(words)
    return _line(words, os.path.normpath(names[-1].plain)) if names else None


def _pwd(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    return _line(words, ".")


def _seq(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    numbers = [word.plain for word in words[1:]]
    if not numbers or not all(re.fullmatch(r"-?\d{1,9}", number) for number in numbers):
        return None
    values = [int(number) for number in numbers]
    first, step, last = (1, 1, values[0]) if len(values) == 1 else (values[0], 1, values[-1])
    step = values[1] if len(values) == 3 else step
    if step == 0:
        return None
    span = range(first, last + (1 if step > 0 else -1), step)[:MAX_LINES]
    return Text.of("".join(f"{value}\n" for value in span), words[-1].mark)


def _input(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """The text a filter works on: its files, else its standard input."""
    names = [name for name in _operands(words) if name.plain != "-"]
    if not names:
        return stdin
    texts = [read(name.plain) for name in names]
    return Text.join([text for text in texts if text is not None]) if None not in texts else None


def _cat(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    return _input(words, stdin, read)


def _tee(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    return stdin


def _lines(text: Text) -> list[Text]:
    lines: list[Text] = []
    start = 0
    plain = text.plain
    while start < len(plain) and len(lines) < MAX_LINES:
        end = plain.find("\n", start)
        end = end + 1 if end >= 0 else len(plain)
        lines.append(text.slice(start, end))
        start = end
    return lines


def _count(words: Words) -> tuple[int | None, Words]:
    """The line count of head and tail (-n 1, -n1, -1) and the words without it."""
    rest: Words = [words[0]]
    count: int | None = 10
    skip = False
    for number, word in enumerate(words[1:], 1):
        plain = word.plain
        if skip:
            skip = False
        elif plain == "-n":
            following = words[number + 1].plain if number + 1 < len(words) else ""
            count, skip = (int(following) if following.isdigit() else None), True
        elif found := re.fullmatch(r"-n?(\d{1,9})", plain):
            count = int(found.group(1))
        else:
            rest.append(word)
    return count, rest


def _head(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    count, rest = _count(words)
    text = _input(rest, stdin, read)
    if text is None or count is None:
        return None
    lines = _lines(text)
    chosen = lines[:count] if words[0].plain == "head" else lines[max(0, len(lines) - count) :]
    return Text.join(chosen)


def _wc(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    text = _input(words, stdin, read)
    if text is None:
        return None
    flags = "".join(word.plain for word in words[1:] if word.plain.startswith("-"))
    if "l" in flags:
        return _line(words, str(text.plain.count("\n")))
    if "w" in flags:
        return _line(words, str(len(text.plain.split())))
    return _line(words, str(len(text))) if "c" in flags or "m" in flags else None


def _cut(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`cut -d X -f N` on each line."""
    joined = " ".join(word.plain for word in words[1:])
    delimiter = re.search(r"-d ?(.)", joined)
    chosen = re.search(r"-f ?(\d{1,4})(?![\d,-])", joined)
    if stdin is None or delimiter is None or chosen is None:
        return None
    index = int(chosen.group(1)) - 1
    rows = [line.plain.rstrip("\n").split(delimiter.group(1)) for line in _lines(stdin)]
    picked = [row[index] if index < len(row) else "" for row in rows]
    return Text.of("".join(f"{text}\n" for text in picked), words[0].mark)


def _tr(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`tr a b` and `tr -d a` for plain characters and the two alphabets."""
    arguments = [word.plain for word in words[1:]]
    if stdin is None or len(arguments) != 2:
        return None
    classes = {"[:lower:]": "abcdefghijklmnopqrstuvwxyz", "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    classes |= {"a-z": classes["[:lower:]"], "A-Z": classes["[:upper:]"], "\\n": "\n"}
    if arguments[0] == "-d":
        gone = classes.get(arguments[1], arguments[1])
        return Text.of("".join(char for char in stdin.plain if char not in gone), stdin.mark)
    old, new = (classes.get(argument, argument) for argument in arguments)
    if not old or not new:
        return None
    table = {ord(char): new[min(index, len(new) - 1)] for index, char in enumerate(old)}
    return Text(tuple((text.translate(table), mark) for text, mark in stdin.spans))


def _calculate(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`expr a + b` and `bc` on whole numbers."""
    text = (
        stdin.plain if words[0].plain == "bc" and stdin is not None else " ".join(w.plain for w in words[1:])
    )
    if not re.fullmatch(r"[\d\s+*/%()-]{1,200}", text):
        return None
    try:
        return _line(words, str(arith.evaluate(text, _no_variable, lambda name, index, value: None)))
    except arith.Open:
        return None


def _no_variable(name: str, index: str | None) -> int:
    raise arith.Open(frozenset({name}))


def printf(words: Words) -> Text:
    """`printf FORMAT ARGUMENTS`: %s and %d in order, everything else as written."""
    if words and words[0].plain == "--":
        words = words[1:]
    if not words:
        return Text()
    template, arguments = words[0], list(words[1:])
    pieces: list[Text] = []
    while True:
        used = False
        at = 0
        for found in re.finditer(r"%[-0]?\d{0,3}(?:\.\d{1,2})?[sdibfgxX]|%q|\\n|\\t|%%", template.plain):
            pieces.append(template.slice(at, found.start()))
            at = found.end()
            word = found.group()
            if word[0] == "\\" or word == "%%":
                pieces.append(Text.of({"\\n": "\n", "\\t": "\t"}.get(word, "%"), template.mark))
            elif arguments:
                pieces.append(_padded(arguments.pop(0), word))
                used = True
        pieces.append(template.slice(at, len(template)))
        if not (arguments and used) or len(pieces) > MAX_LINES:
            return Text.join(pieces)


def _padded(text: Text, conversion: str) -> Text:
    width, kind = conversion[1:-1], conversion[-1]
    if not text.is_known or (not width and kind not in "fgxX"):
        return text
    number = kind if kind in "dxX" else "d" if kind == "i" else ""
    try:
        if number:
            return Text.of(f"%{width}{number}" % int(text.plain or "0"), text.mark)
        if kind in "fg":
            return Text.of(conversion % float(text.plain or "0"), text.mark)
    except (ValueError, OverflowError):
        return text
    return Text.of(f"%{width.lstrip('0')}s" % text.plain, text.mark)


FILTERS: dict[str, Filter] = {
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "pwd": _pwd,
    "seq": _seq,
    "cat": _cat,
    "tee": _tee,
    "head": _head,
    "tail": _head,
    "wc": _wc,
    "cut": _cut,
    "tr": _tr,
    "expr": _calculate,
    "bc": _calculate,
    **TABLES,
}
