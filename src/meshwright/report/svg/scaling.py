"""Scaling over the number of GPUs: throughput of the whole cluster against the straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from meshwright.report.svg.axis import Scale, left_axis, round_ticks
from meshwright.report.svg.draw import (
    WIDTH,
    Picture,
    element,
    fit_width,
    legend,
    line,
    picture,
    polyline,
    text,
)
from meshwright.report.text import seconds

LEFT, TOP, TALL = 58.0, 34.0, 220.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The best layout on one number of GPUs; tokens_per_second is that of the whole cluster."""

    gpus: int
    tokens_per_second: float
    step_seconds: float
    words: str


def scaling_picture(sizes: Sequence[Size], width: float = WIDTH) -> Picture:
    """One dot a number of GPUs, with the efficiency against the first written beside it."""
    width = fit_width(width)
    sizes = sorted(sizes, key=lambda size: size.gpus)
    right, bottom = width - 30, TOP + TALL
    first = sizes[0]
    each = first.tokens_per_second / first.gpus
    unit, name = _unit(max(size.tokens_per_second for size in sizes))
    most = max(each * sizes[-1].gpus, *(size.tokens_per_second for size in sizes)) / unit
    rows = round_ticks(0, most)
    up = Scale(0, rows[-1], bottom, TOP)
    across = Scale(0, sizes[-1].gpus, LEFT, right)
    parts = [left_axis(up, rows, LEFT, right, f"{name} of the cluster"), line(LEFT, bottom, right, bottom)]
    last_label = -1e9
    for size in sizes:
        x = across(size.gpus)
        parts.append(line(x, bottom, x, bottom + 4))
        if x - last_label > 34:
            parts.append(text(x, bottom + 16, f"{size.gpus:,}", anchor="middle", class_="ink small"))
            last_label = x
    parts.append(text((LEFT + right) / 2, bottom + 32, "GPUs", anchor="middle", class_="ink small"))
    parts.append(
        line(across(0), up(0), across(sizes[-1].gpus), up(each * sizes[-1].gpus / unit), "line-ideal")
    )
    points = [(across(size.gpus), up(size.tokens_per_second / unit)) for size in sizes]
    parts.append(polyline(points, "line-thick"))
    for size, (x, y) in zip(sizes, points, strict=True):
        share = size.tokens_per_second / size.gpus / each
        hint = (
            f"{size.gpus:,} GPUs: {size.words}, {seconds(size.step_seconds)} a step, {share:.0%} of the first"
        )
        parts.append(element("circle", element("title", escape(hint)), cx=x, cy=y, r=4.5, class_="c0"))
        if x == points[-1][0] or x - points[0][0] > 60:
            parts.append(text(x - 4, y + 18, f"{share:.0%}", anchor="middle", class_="soft small"))
    keys, tall = legend(
        [("line-thick", "best layout, its rate a GPU against the first"), ("line-ideal", "straight line")],
        LEFT, bottom + 44, right - LEFT,
    )  # fmt: skip
    parts.append(keys)
    end = sizes[-1]
    words = (
        f"From {first.gpus:,} to {end.gpus:,} GPUs the cluster goes from {first.tokens_per_second:,.0f} to "
        f"{end.tokens_per_second:,.0f} tokens/s: {end.tokens_per_second / end.gpus / each:.0%} of the first "
        "rate a GPU."
    )
    return picture("scaling", "Scaling over the number of GPUs", words, width, bottom + 46 + tall, parts)


def _unit(most: float) -> tuple[float, str]:
    if most >= 1e6:
        return 1e6, "million tokens/s"
    return (1e3, "thousand tokens/s") if most >= 1e3 else (1.0, "tokens/s")
