"""Megatron's notation for pipeline layouts: text to chunks and back.

    Et*4|(t*4|)*14tmL      16 chunks: E and four layers, 14 times four layers, a layer, MTP and loss

    E  embedding    t  a decoder layer    m  a multi-token-prediction module    L  loss (head)
    |  ends a chunk         x*n  repeats one character         (..)*n  repeats a group
    ,  is ignored

Groups do not nest, and are unrolled before single characters. As a list, each chunk is a list of
names ("embedding", "decoder", "mtp", "loss").

Source: megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list; for hybrid
patterns megatron/core/models/hybrid/hybrid_layer_allocation.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from meshwright.errors import LayoutError, QuestionError, did_you_mean

Chunk = tuple[str, ...]

NAME_OF = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
LETTER_OF = {name: letter for letter, name in NAME_OF.items()}

HYBRID_SYMBOLS = {
    "M": "Mamba",
    "G": "gated delta net",
    "*": "attention",
    "D": "sparse attention",
    "-": "MLP",
    "E": "MoE",
}
"""Layers of a hybrid pattern; `|` ends a chunk and `/` begins a multi-token-prediction module."""

LONGEST_TEXT = 10_000
MOST_ITEMS = 100_000
"""Far above any real model; keeps hostile input (`t*999999999`) from filling the memory."""

_GROUP = re.compile(r"\(([^)]+)\)\*(\d+)")
_REPEAT = re.compile(r"(.)\*(\d+)")


def parse_text(text: str) -> tuple[Chunk, ...]:
    """The chunks that a layout string describes; LayoutError with the reason where Megatron refuses it.

    >>> parse_text("Et*2|(t|)*2mL")
    (('E', 't', 't'), ('t',), ('t',), ('m', 'L'))
    """
    if len(text) > LONGEST_TEXT:
        raise QuestionError(
            f"the pipeline layout has {len(text)} characters; at most {LONGEST_TEXT} are read"
        )
    unrolled = _unroll(_REPEAT, _unroll(_GROUP, text.replace(",", "")))
    chunks = tuple(tuple(chunk) for chunk in unrolled.split("|"))
    for number, chunk in enumerate(chunks):
        for letter in chunk:
            if letter not in NAME_OF:
                raise LayoutError(_unknown_letter(letter, number, text))
    return chunks


def parse_list(rows: Sequence[object]) -> tuple[Chunk, ...]:
    """The chunks of a layout given as a list of lists of layer names.

    >>> parse_list([["embedding", "decoder"], ["decoder", "loss"]])
    (('E', 't'), ('t', 'L'))
    """
    if len(rows) > MOST_ITEMS:
        raise QuestionError(f"the pipeline layout has {len(rows)} chunks; at most {MOST_ITEMS} are read")
    return tuple(_parse_row(number, row) for number, row in enumerate(rows))


def write_text(chunks: Sequence[Chunk]) -> str:
    """The shortest plain spelling of chunks in Megatron's notation.

    >>> write_text(parse_text("Etttt|" + "tttt|" * 14 + "tmL"))
    'Et*4|(t*4|)*14tmL'
    """
    bodies = [_write_chunk(chunk) for chunk in chunks]
    text, at = "", 0
    while at < len(bodies):
        period, times = _repetition(bodies, at)
        if times > 1:
            text += "(" + "".join(body + "|" for body in bodies[at : at + period]) + f")*{times}"
            at += period * times
        else:
            text += bodies[at] + ("|" if at + 1 < len(bodies) else "")
            at += 1
    return text


def write_list(chunks: Sequence[Chunk]) -> list[list[str]]:
    """The same as a list of lists of names, as YAML and Python recipes have it."""
    return [[NAME_OF[letter] for letter in chunk] for chunk in chunks]


def draw(pp: int, chunks: Sequence[Chunk], together: bool = False) -> list[str]:
    """The layout as a table: one line a pipeline rank, one column a chunk, layers by their numbers.

    With `together`, neighbouring ranks that hold the same share one line, and layers are counted.

    >>> print("\\n".join(draw(2, parse_text("Ett|tt|t|tmL"))))
    rank    chunk 0         chunk 1
    0       E, layers 0-1   layer 4
    1       layers 2-3      layer 5, MTP, L
    """
    cells = _counted(chunks) if together else _numbered(chunks)
    rows = [[str(rank), *cells[rank::pp]] for rank in range(pp)]
    if together:
        rows = [_joined(list(run)) for _, run in groupby(rows, key=lambda row: row[1:])]
    header = ["rank", *(f"chunk {number}" for number in range(len(chunks) // pp))]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    widths[0] = max(widths[0], 5)
    return [
        "   ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]


def _numbered(chunks: Sequence[Chunk]) -> list[str]:
    cells, start = [], 0
    for chunk in chunks:
        count = chunk.count("t")
        layers = f"layer {start}" if count == 1 else f"layers {start}-{start + count - 1}"
        cells.append(_cell(chunk, layers))
        start += count
    return cells


def _counted(chunks: Sequence[Chunk]) -> list[str]:
    return [_cell(chunk, f"{n} layer" + "s" * (n != 1)) for chunk in chunks for n in [chunk.count("t")]]


def _cell(chunk: Chunk, layers: str) -> str:
    modules = chunk.count("m")
    parts = {"E": "E", "t": layers, "m": "MTP" if modules == 1 else f"{modules} MTP", "L": "L"}
    return ", ".join(text for letter, text in parts.items() if letter in chunk) or "(empty)"


def _joined(rows: list[list[str]]) -> list[str]:
    first, last = rows[0][0], rows[-1][0]
    return [first if first == last else f"{first}-{last}", *rows[0][1:]]


def parse_hybrid(pattern: str) -> tuple[list[str], list[str]]:
    """Chunks and multi-token-prediction modules of a hybrid pattern such as `M-M*|M-M*/M*`.

    Returns the symbols of each chunk (one chunk where the pattern has no `|`) and of each MTP module.

    >>> parse_hybrid("M*M-|MEM*/M*/M*")
    (['M*M-', 'MEM*'], ['M*', 'M*'])
    """
    if len(pattern) > LONGEST_TEXT:
        raise QuestionError(
            f"the hybrid pattern has {len(pattern)} characters; at most {LONGEST_TEXT} are read"
        )
    main, *modules = pattern.split("/")
    for part in (main.replace("|", ""), *modules):
        for symbol in part:
            if symbol not in HYBRID_SYMBOLS:
                known = ", ".join(f"{key} ({name})" for key, name in HYBRID_SYMBOLS.items())
                raise LayoutError(f"{symbol!r} in the hybrid pattern is not a layer; known are {known}")
    if len(set(modules)) > 1:
        raise LayoutError(
            f"the MTP modules of a hybrid pattern must be the same, and are {', '.join(sorted(set(modules)))}"
        )
    return main.split("|"), modules


def _unroll(pattern: re.Pattern[str], text: str) -> str:
    """All matches of `pattern` (what, times) written out, in one pass from the left."""
    size = len(text)

    def written_out(found: re.Match[str]) -> str:
        nonlocal size
        what, digits = found.groups()
        times = int(digits) if len(digits) < 10 else MOST_ITEMS + 1
        size += len(what) * times
        if times > MOST_ITEMS or size > 2 * LONGEST_TEXT + MOST_ITEMS:
            raise LayoutError(
                f"{found.group()[:40]!r} in the pipeline layout repeats {digits[:12]} times; "
                f"at most {MOST_ITEMS} layers are read"
            )
        return what * times

    return pattern.sub(written_out, text)


def _unknown_letter(letter: str, chunk: int, text: str) -> str:
    known = "E (embedding), t (decoder layer), m (MTP), L (loss)"
    reason = f"known are {known}"
    if letter in "()*" or letter.isdigit():
        reason = "repeats are written t*4 or (tt|)*3, and groups do not nest"
    elif letter.upper() == "E" or letter.upper() == "L" or letter.lower() in "tm":
        reason += "; upper and lower case matter"
    return f"{letter!r} in chunk {chunk} of the pipeline layout {_shortened(text)!r} is not a layer; {reason}"


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _parse_row(number: int, row: object) -> Chunk:
    if not isinstance(row, list):
        raise LayoutError(
            f"chunk {number} of the pipeline layout is a {type(row).__name__}; "
            "each chunk is a list of layer names"
        )
    return tuple(_letter(number, name) for name in row)


def _letter(number: int, name: object) -> str:
    if not isinstance(name, str):
        raise LayoutError(
            f"chunk {number} of the pipeline layout holds a {type(name).__name__}; layers are names: "
            + ", ".join(LETTER_OF)
        )
    word = name.strip().lower()
    if word == "encoder":
        raise LayoutError(
            f"chunk {number} of the pipeline layout holds an encoder layer; only decoders can be placed"
        )
    if word not in LETTER_OF:
        raise LayoutError(
            f"{name!r} in chunk {number} of the pipeline layout is not a layer"
            f"{did_you_mean(word, LETTER_OF)} Known are {', '.join(LETTER_OF)}"
        )
    return LETTER_OF[word]


@lru_cache(maxsize=4096)
def _write_chunk(chunk: Chunk) -> str:
    """`tttt` becomes `t*4`; shorter runs stay as they are."""
    written = []
    for letter, run in groupby(chunk):
        length = len(list(run))
        written.append(f"{letter}*{length}" if length > 3 else letter * length)
    return "".join(written)


def _repetition(bodies: list[str], at: int) -> tuple[int, int]:
    """The period and count at `at` that save the most characters; the last chunk has no `|` to repeat."""
    best, saved = (1, 1), 0
    end = len(bodies) - 1
    for period in range(1, min((end - at) // 2, 8) + 1):
        times = 1
        first = bodies[at : at + period]
        while (
            at + (times + 1) * period <= end
            and bodies[at + times * period : at + (times + 1) * period] == first
        ):
            times += 1
        length = sum(len(body) + 1 for body in first)
        gain = length * (times - 1) - len(f"()*{times}")
        if times > 1 and gain > saved:
            best, saved = (period, times), gain
    return best
