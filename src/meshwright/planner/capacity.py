"""The most that fits on given GPUs: the longest sequence or the largest micro-batch, over all layouts.

Memory never falls as either grows, so the largest value is found by doubling and halving; each probe is a
search of the whole space, in which every layout may answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshwright.cost.limits import LARGEST_MICRO_BATCH, LONGEST_SEQUENCE, longest_sequence
from meshwright.cost.question import Question
from meshwright.model.change import reaching
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes

COARSE = 1024
"""Tokens between the sequence lengths that are searched; the best layout's own limit is found exactly."""
FINE = 32
"""A searched limit is settled to one part in this many."""

Probe = Callable[[int], Found | None]
"""The layouts on which a value fits; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most that fits.

    fits      the largest value that surely fits (the upper end of the memory band inside the card); 0: none
    may_fit   the largest whose band reaches into the card: beyond `fits`, memory is tight
    question  the question at `fits` (at `may_fit` where nothing surely fits); None where nothing may fit
    found     the layouts it fits on, best first
    """

    fits: int
    may_fit: int
    question: Question | None = None
    found: Found | None = None


def surely(question: Question) -> Question:
    """The question on a card so much smaller that what may fit there surely fits on the real one."""
    band, gpu = question.calibration.memory_band, question.cluster.gpu
    smaller = replace(gpu, usable_memory=gpu.usable_memory * (1 - band) / (1 + band))
    return replace(question, cluster=replace(question.cluster, gpu=smaller))


def at_length(question: Question, tokens: int) -> Question:
    """The question with sequences of `tokens`; rotary positions have no table that could be too short."""
    job = replace(question.job, seq_length=tokens, packing=(), longest_packed_sequence=None)
    return replace(question, model=reaching(question.model, tokens), job=job)


def most_tokens(question: Question, axes: Axes) -> Capacity:
    """The longest sequence on which some layout of the space trains, the batch [samples] held."""

    def probe(asked: Question) -> Probe:
        return lambda steps: _fitting(at_length(asked, steps * COARSE), axes)

    most = LONGEST_SEQUENCE // COARSE
    found = _capacity(question, probe, [*range(1, most + 1)])
    if found.question is None or found.found is None:
        return found
    value = COARSE * (found.fits or found.may_fit)
    here = at_length(question, value)
    limit = longest_sequence(here, found.found.table)
    fits = max(limit.fits, COARSE * found.fits) if found.fits else 0
    may_fit = max(limit.may_fit, COARSE * found.may_fit)
    if positions := question.model.learned_positions:
        fits, may_fit = min(fits, positions), min(may_fit, positions)
    return Capacity(
        fits=fits, may_fit=may_fit, question=at_length(question, fits or may_fit), found=found.found
    )


def most_samples(question: Question, axes: Axes) -> Capacity:
    """The largest micro-batch, of those that divide the global batch, with which some layout trains."""

    def probe(asked: Question) -> Probe:
        return lambda mbs: _fitting(asked, replace(axes, mbs=(mbs,)))

    batch = question.job.global_batch
    sizes = [n for n in range(1, min(batch, LARGEST_MICRO_BATCH) + 1) if batch % n == 0]
    return _capacity(question, probe, sizes)


def _fitting(question: Question, axes: Axes) -> Found | None:
    found = search(question, axes)
    return found if found.fitting else None


def _capacity(question: Question, probe: Callable[[Question], Probe], values: Sequence[int]) -> Capacity:
    """The largest of some rising values that may fit, and the largest that surely fits."""
    may_fit, loose = _last(probe(question), values)
    if loose is None:
        return Capacity(fits=0, may_fit=0)
    below = [value for value in values if value <= may_fit]
    fits, tight = _last(probe(surely(question)), below)
    return Capacity(fits=fits, may_fit=may_fit, question=question, found=tight or loose)


def _last(probe: Probe, values: Sequence[int]) -> tuple[int, Found | None]:
    """The last value of a rising sequence that fits, to one part in FINE; (0, None) where none does."""
    low, high, best = -1, 0, None
    while high < len(values) and (found := probe(values[high])) is not None:
        low, best = high, found
        high = 2 * high + 1
    high = min(high, len(values))
    while high - low > 1 + (low // FINE if low > 0 else 0):
        middle = (low + high) // 2
        found = probe(values[middle])
        low, high, best = (middle, high, found) if found is not None else (low, middle, best)
    return (values[low], best) if low >= 0 else (0, None)
