"""What is the most that fits: the longest sequence or the largest micro-batch of a given layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.memory import MemoryTable, memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.layout.table import LayoutTable

LONGEST_SEQUENCE = 1 << 24
LARGEST_MICRO_BATCH = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The largest value that surely fits, and the largest that may (inside the band); 0 where none does."""

    fits: int
    may_fit: int


def longest_sequence(question: Question, table: LayoutTable) -> Limit:
    """Tokens of the longest sequence that the first layout of a table can train on, its batch unchanged.

    Steps of 128 tokens for each context-parallel and sequence-parallel rank, as the engine needs them.
    """
    one = table.rows(np.array([0]))
    step = 128 * int(one.cp[0]) * (int(one.tp[0]) if bool(one.sp[0]) else 1)

    def used(number: int) -> MemoryTable:
        job = replace(question.job, seq_length=number * step)
        return memory(replace(question, job=job), one, all_stages(one.splits))

    found = _largest(used, LONGEST_SEQUENCE // step)
    return Limit(fits=found.fits * step, may_fit=found.may_fit * step)


def largest_micro_batch(question: Question, table: LayoutTable) -> Limit:
    """Samples of the largest micro-batch that the first layout of a table can take.

    The global batch is not rounded: whether it divides is for the caller to say.
    """
    one = table.rows(np.array([0]))

    def used(number: int) -> MemoryTable:
        mbs = np.array([number], dtype=np.int64)
        # as many micro-batches as before, so that as many are in flight
        gbs = one.gbs * number // one.mbs
        return memory(
            question, replace(one, mbs=mbs, gbs=np.maximum(gbs, mbs * one.dp)), all_stages(one.splits)
        )

    return _largest(used, LARGEST_MICRO_BATCH)


def _largest(used: Callable[[int], MemoryTable], most: int) -> Limit:
    """Largest whole numbers that fit and may fit; memory never falls as the number grows."""

    def fits(number: int) -> bool:
        return str(used(number).verdicts()[0]) == "fits"

    def may_fit(number: int) -> bool:
        return bool(used(number).may_fit[0])

    return Limit(fits=_last_true(fits, most), may_fit=_last_true(may_fit, most))


def _last_true(holds: Callable[[int], bool], most: int) -> int:
    """The last of 1 ... most for which a condition holds that, once false, stays false; 0 if none."""
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
