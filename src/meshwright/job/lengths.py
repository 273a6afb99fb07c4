"""Lengths of the samples that are packed into a sequence, as people write them.

    "2048:0.5,8192:0.5"   half of the samples has 2,048 tokens, half 8,192
    lengths.txt           one sample a line: its length, or its length and how many have it
    lengths.json          [512, 700, ...] or {"512": 10, "700": 3}

Shares count samples, as a histogram does; a job keeps shares of tokens (`Job.packing`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meshwright.errors import QuestionError

MOST_BINS = 64
"""Lengths beyond this many are merged, so that a large file costs no more than a small one."""
LARGEST_FILE = 50_000_000
_PAIR = re.compile(r"\s*([0-9_]+)\s*[:= ]\s*([0-9.eE+-]+)\s*")
_EXAMPLE = 'write --sequence-lengths "2048:0.5,8192:0.5" (length:share of samples), or name a file'


def read_sequence_lengths(text: str) -> tuple[tuple[int, float], ...]:
    """(tokens, share of all tokens) of packed samples; QuestionError where the words or the file are none."""
    words = text.strip()
    if words and all(_PAIR.fullmatch(word) for word in words.split(",")):
        pairs = [_PAIR.fullmatch(word) for word in words.split(",")]
        return token_shares((pair[1], pair[2]) for pair in pairs if pair)
    path = Path(words)
    if not words or len(words) > 1000 or not path.is_file():
        raise QuestionError(f"--sequence-lengths {words[:60]!r} is neither pairs nor a file; {_EXAMPLE}")
    return token_shares(_pairs_in(path))


def token_shares(samples: Iterable[tuple[Any, Any]]) -> tuple[tuple[int, float], ...]:
    """Shares of tokens from (length, number of samples), lengths rising; neighbours merged above MOST_BINS.

    >>> token_shares([(1024, 3), (3072, 1)])
    ((1024, 0.5), (3072, 0.5))
    """
    counts: dict[int, float] = {}
    for length, number in samples:
        try:
            tokens, weight = int(str(length).replace("_", "")), float(number)
        except (ValueError, OverflowError):
            raise QuestionError(
                f"a sample of length {str(length)[:40]!r}, {str(number)[:40]!r} times: {_EXAMPLE}"
            ) from None
        if not 1 <= tokens <= 10**9 or not 0 < weight < math.inf:
            raise QuestionError(
                f"{weight:g} samples of {tokens:,} tokens: lengths are at least 1, shares above 0"
            )
        counts[tokens] = counts.get(tokens, 0.0) + weight
    if not counts:
        raise QuestionError(f"no sample length was given; {_EXAMPLE}")
    whole = sum(length * weight for length, weight in counts.items())
    found = [(length, length * weight / whole) for length, weight in sorted(counts.items())]
    return tuple(found) if len(found) <= MOST_BINS else tuple(_merged(found))


def _merged(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most MOST_BINS lengths, each the mean of neighbours by tokens: mean attention stays the same."""
    merged: list[tuple[int, float]] = []
    taken = weight = moment = 0.0
    for position, (length, share) in enumerate(found):
        weight, moment, taken = weight + share, moment + share * length, taken + share
        if taken >= (len(merged) + 1) / MOST_BINS or position == len(found) - 1:
            merged.append((max(round(moment / weight), 1), weight))
            weight = moment = 0.0
    return merged


def _pairs_in(path: Path) -> Iterable[tuple[Any, Any]]:
    """(length, number) of every line or JSON entry of a file."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise QuestionError(
                f"{path} is larger than {LARGEST_FILE:,} bytes; give a histogram of its lengths"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QuestionError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if text.lstrip()[:1] in ("[", "{"):
        return _pairs_of_json(path, text)
    rows = [re.split(r"[\s,:;]+", line.strip()) for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if not row[0].startswith("#")]
    wrong = next((row for row in rows if len(row) > 2), None)
    if wrong is not None:
        raise QuestionError(
            f"{path}: a line has {len(wrong)} values; it holds a length, or a length and a count"
        )
    return [(row[0], row[1] if len(row) == 2 else 1) for row in rows]


def _pairs_of_json(path: Path, text: str) -> list[tuple[Any, Any]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"{path} is not JSON: {str(error)[:100]}") from None
    if isinstance(data, Mapping):
        return list(data.items())
    return [tuple(row) if isinstance(row, list) and len(row) == 2 else (row, 1) for row in data]
