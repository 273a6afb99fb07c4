"""Legal numbers next to a wrong one."""

from __future__ import annotations

from collections.abc import Iterable


def divisors(number: int) -> tuple[int, ...]:
    """All divisors in rising order; empty for numbers below 1 or absurdly large."""
    if not 1 <= number <= 10**12:
        return ()
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


def around(legal: Iterable[int], wanted: int) -> tuple[int, ...]:
    """The nearest legal values below and above the wanted one (at most one of each).

    >>> around((1, 2, 4, 8), 3)
    (2, 4)
    """
    values = sorted(set(legal))
    if wanted in values:
        return (wanted,)
    below = [value for value in values if value < wanted][-1:]
    above = [value for value in values if value > wanted][:1]
    return (*below, *above)


def divisors_around(number: int, wanted: int) -> tuple[int, ...]:
    """Nearest divisors of `number`: which degrees next to `wanted` divide it.

    >>> divisors_around(160, 64)
    (40, 80)
    """
    return around(divisors(int(number)), int(wanted))


def multiples_around(step: int, wanted: int) -> tuple[int, ...]:
    """Nearest multiples of `step`, at least one step.

    >>> multiples_around(16, 36)
    (32, 48)
    """
    step, wanted = int(step), int(wanted)
    below = wanted // step * step
    return (below, below + step) if below else (step,)
