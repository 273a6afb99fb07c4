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
    said = re.match(r"(?:-s ?(\S| )? ?|-w ?)*", " ".join(word.plain for word in words[1:]))
    between = said.group(1) if said is not None and said.group(1) else "\n"
    numbers = [
        word.plain for word in words[1:] if not re.match(r"-[sw]", word.plain) and word.plain != between
    ]
    if not numbers or not all(re.fullmatch(r"-?\d{1,9}", number) for number in numbers):
        return None
    values = [int(number) for number in numbers]
    first, step, last = (1, 1, values[0]) if len(values) == 1 else (values[0], 1, values[-1])
    step = values[1] if len(values) == 3 else step
    if step == 0:
        return None
    span = range(first, last + (1 if step > 0 else -1), step)[:MAX_LINES]
    width = max((len(str(value)) for value in span), default=0) if words[1].plain == "-w" else 0
    return Text.of(between.join(f"{value:0{width}d}" for value in span) + "\n" * bool(span), words[-1].mark)


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
    """`cut -d X -f LIST` and `cut -c LIST` on each line; LIST as in `1,3-`."""
    joined = " ".join(word.plain for word in words[1:])
    delimiter = re.search(r"(?:-d ?|--delimiter=)(.)", joined)
    chosen = re.search(r"(?:^| )(?:-([fc]) ?|--(f)ields=|--(c)haracters=)([\d,-]{1,40})(?: |$)", joined)
    names = _names(words[1:])
    text = None if names is None else _input([words[0], *names], stdin, read)
    if text is None or chosen is None:
        return None
    by_char = (chosen.group(1) or chosen.group(2) or chosen.group(3)) == "c"
    between = "" if by_char else delimiter.group(1) if delimiter else "\t"
    out: list[str] = []
    for line in _lines(text):
        plain = line.plain.rstrip("\n")
        row = list(plain) if by_char else plain.split(between)
        if not by_char and len(row) == 1:
            out.append(plain)
            continue
        picked = [item for n, item in enumerate(row, 1) if _chosen(n, chosen.group(4))]
        out.append(between.join(picked))
    return Text.of("".join(f"{line}\n" for line in out), words[0].mark)


def _names(words: Words) -> Words | None:
    """The files of cut; None where it has an option that is not understood."""
    names: Words = []
    valued = False
    for word in words:
        plain = word.plain
        if valued:
            valued = False
        elif plain in ("-d", "-f", "-c"):
            valued = True
        elif not plain.startswith("-"):
            names.append(word)
        elif not re.match(r"-[dfc]|--(?:delimiter|fields|characters)=", plain):
            return None
    return names


def _chosen(number: int, ranges: str) -> bool:
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if int(low or 1) <= number <= int(high or (1 << 20 if dash else low or 0)):
            return True
    return False


CHARACTERS = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz", "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789", "[:space:]": " \t\n\r", "[:blank:]": " \t", "\\n": "\n", "\\t": "\t",
    "[:alpha:]": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
}  # fmt: skip


def _characters(said: str) -> str:
    """The characters of a set of tr."""
    for name, chars in CHARACTERS.items():
        said = said.replace(name, chars)
    return re.sub(
        r"(\w)-(\w)",
        lambda f: "".join(map(chr, range(ord(f.group(1)), min(ord(f.group(2)), ord(f.group(1)) + 99) + 1))),
        said,
    )


def _tr(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`tr a b`, `tr -d a`, `tr -cd a`, `tr -s a` with ranges and classes."""
    flags = "".join(word.plain[1:] for word in words[1:] if re.fullmatch(r"-[cCds]+", word.plain))
    sets = [_characters(word.plain) for word in words[1:] if not re.fullmatch(r"-[cCds]+", word.plain)]
    if stdin is None or not sets or not sets[0] or len(sets) > 2:
        return None
    outside = "c" in flags.lower()
    if "d" in flags:
        return Text.of("".join(char for char in stdin.plain if (char in sets[0]) == outside), stdin.mark)
    if outside and len(sets) < 2:
        return None
    text = stdin
    if len(sets) == 2:
        if not sets[1]:
            return None
        if outside:
            changed = "".join(char if char in sets[0] else sets[1][-1] for char in text.plain)
            text = Text.of(changed, text.mark)
        else:
            table = {ord(char): sets[1][min(index, len(sets[1]) - 1)] for index, char in enumerate(sets[0])}
            text = Text(tuple((piece.translate(table), mark) for piece, mark in text.spans))
    if "s" in flags:
        text = Text.of(re.sub(f"([{re.escape(sets[-1])}])\\1+", r"\1", text.plain), text.mark)
    return text


def _calculate(words: Words, stdin: Text | None, read: Reader) -> Text | None:
    """`expr a + b` and `bc` on whole numbers."""
    bc = words[0].plain == "bc" and stdin is not None
    text = stdin.plain if bc and stdin is not None else " ".join(w.plain for w in words[1:])
    if bc:
        text = re.sub(r"\bscale *= *0 *[;\n]", "", text).strip().rstrip(";").replace("^", "**")
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
