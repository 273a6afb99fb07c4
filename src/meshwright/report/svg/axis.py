"""Scales and axes: round ticks, grid lines, and a unit on every axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.report.svg.draw import line, text


@dataclass(frozen=True, slots=True)
class Scale:
    """From values (low..high) to pixels (start..stop); `log` for powers."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, 1e-300))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.stop - self.start)


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks at round numbers (steps of 1, 2 or 5) that cover low..high.

    >>> round_ticks(0, 87, 5)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if not math.isfinite(high - low) or high <= low:
        return [low]
    rough = (high - low) / max(most, 1)
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * m for m in (1, 2, 5, 10) if base * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def inner_ticks(high: float, most: int = 6) -> list[float]:
    """Ticks at round numbers from 0 that stay inside 0..high.

    >>> inner_ticks(6.3, 7)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    return [tick for tick in round_ticks(0, high, most) if tick <= high]


def shown(value: float) -> str:
    """A tick's label.

    >>> shown(1200.0), shown(0.05), shown(2.0)
    ('1,200', '0.05', '2')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.10g}"


def left_axis(scale: Scale, ticks: Sequence[float], x: float, right: float, name: str) -> str:
    """A vertical axis at `x` with grid lines to `right`; `name` (with its unit) stands above it."""
    parts = [text(x - 4, min(scale.start, scale.stop) - 10, name, anchor="start", class_="ink small")]
    for tick in ticks:
        y = scale(tick)
        parts += [
            line(x, y, right, y, "grid"),
            text(x - 6, y + 4, shown(tick), anchor="end", class_="ink small"),
        ]
    return "".join(parts)


def bottom_axis(
    scale: Scale, ticks: Sequence[float], y: float, top: float, name: str, *, grid: bool = True
) -> str:
    """A horizontal axis at `y` with grid lines up to `top`; `name` (with its unit) stands under it."""
    parts = [line(scale.start, y, scale.stop, y, "line")]
    for tick in ticks:
        x = scale(tick)
        if grid:
            parts.append(line(x, y, x, top, "grid"))
        parts.append(text(x, y + 15, shown(tick), anchor="middle", class_="ink small"))
    parts.append(text((scale.start + scale.stop) / 2, y + 32, name, anchor="middle", class_="ink small"))
    return "".join(parts)


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit a time is best shown in: seconds of one unit, and its name.

    >>> time_unit(12.0), time_unit(0.02)
    ((1.0, 's'), (0.001, 'ms'))
    """
    return (1.0, "s") if seconds >= 1 else (1e-3, "ms")
