"""The ranking: step time against memory, with the Pareto front and the band of ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from meshwright.cluster.spec import GIB
from meshwright.report.svg.axis import Scale, bottom_axis, left_axis, round_ticks, time_unit
from meshwright.report.svg.draw import (
    WIDTH,
    Picture,
    element,
    fit_width,
    legend,
    line,
    picture,
    polyline,
    rect,
    text,
)
from meshwright.report.text import gib, seconds

LEFT, TOP, TALL = 50.0, 34.0, 240.0
RADII = (3.0, 4.0, 5.5)
"""Of a layout that is no plan, of a plan, of one of the first five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layout among others.

    step_seconds  time of a step [s]
    peak_bytes    memory of its fullest stage [bytes]
    rank          its place in the ranking, from 1; 0 for one of the search that is not among the plans
    """

    words: str
    step_seconds: float
    peak_bytes: float
    rank: int
    tied: bool = False
    chosen: bool = False


def front(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both time and memory, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.step_seconds, p.peak_bytes)):
        if not kept or point.peak_bytes < kept[-1].peak_bytes:
            kept.append(point)
    return kept


def scatter_picture(
    points: Sequence[Point], usable_bytes: float, width: float = WIDTH, *, ties: int = 0, slack: float = 0.0
) -> Picture:
    """A dot a layout.

    points  the plans, and what else of the search is on its front
    ties    layouts of the whole search that are told apart from the fastest by nothing but habit
    slack   how much slower than the fastest a tied layout may be, relatively; 0 marks the tied plans only
    """
    width = fit_width(width)
    right, bottom = width - 14, TOP + TALL
    unit, name = time_unit(min(point.step_seconds for point in points))
    times = [point.step_seconds / unit for point in points]
    ticks = round_ticks(min(times) * 0.985, max(times) * 1.015, 6 if width > 520 else 4)
    across = Scale(ticks[0], ticks[-1], LEFT, right)
    most = max(*(point.peak_bytes for point in points), usable_bytes) / GIB
    rows = round_ticks(0, most * 1.03)
    up = Scale(0, rows[-1], bottom, TOP)
    parts = [
        left_axis(up, rows, LEFT, right, "GiB on the fullest GPU"),
        bottom_axis(across, ticks, bottom, TOP, f"time of one step [{name}]"),
    ]
    tied = [point.step_seconds / unit for point in points if point.tied]
    if len(tied) > 1:
        low, high = across(min(tied)), across(max(*tied, min(tied) * (1 + slack)))
        low, high = max(low - 6, LEFT), min(high + 6, right)
        words = f"{max(ties, len(tied)):,} layouts of the search are tied"
        parts.insert(0, rect(low, TOP, high - low, TALL, "band", words))
    y = up(usable_bytes / GIB)
    parts += [
        line(LEFT, y, right, y, "dash"),
        text(right, y - 5, f"usable {gib(usable_bytes)} GiB", anchor="end", class_="warm small"),
    ]
    best = front(points)
    parts.append(polyline([(across(p.step_seconds / unit), up(p.peak_bytes / GIB)) for p in best], "front"))
    parts += [
        _dot(p, across(p.step_seconds / unit), up(p.peak_bytes / GIB), on_front=p in best)
        for p in reversed(points)
    ]
    keys, tall = legend(
        [("c0", "plan"), ("c3", "on the Pareto front"), ("front", "Pareto front of the search"),
         ("band", "tied with the fastest"), ("dash", "usable memory")],
        LEFT, bottom + 44, right - LEFT,
    )  # fmt: skip
    parts.append(keys)
    plans = [point for point in points if point.rank]
    first = min(plans, key=lambda point: point.rank)
    said = f"; {ties:,} layouts of the whole search are tied with the fastest" if ties > 1 else ""
    words = (
        f"{len(plans)} plans{said}; the first is {first.words} with {seconds(first.step_seconds)} and "
        f"{gib(first.peak_bytes)} GiB. On the front of time and memory: "
        f"{', '.join(p.words for p in best[:6])}."
    )
    return picture("ranking", "Step time against memory", words, width, bottom + 46 + tall, parts)


def _dot(point: Point, x: float, y: float, *, on_front: bool) -> str:
    place = f"{point.rank}. " if point.rank else "of the search: "
    hint = f"{place}{point.words}: {seconds(point.step_seconds)}, {gib(point.peak_bytes)} GiB"
    class_ = ("c3" if on_front else "c0 pale") + (" chosen" if point.chosen else "")
    drawn = element(
        "circle",
        element("title", escape(hint)),
        cx=x,
        cy=y,
        r=RADII[(point.rank > 0) + (0 < point.rank <= 5)],
        class_=class_,
    )
    label = text(x + 8, y - 6, point.rank, class_="ink small strong") if point.rank == 1 else ""
    return drawn + label
