"""Where the step goes: one row a term, each beginning where the one above ended."""

from __future__ import annotations

from meshwright.planner.answer import Time
from meshwright.report.svg.axis import Scale, bottom_axis, round_ticks, time_unit
from meshwright.report.svg.draw import LETTER, WIDTH, Picture, fit_width, legend, line, picture, rect, text
from meshwright.report.text import seconds

KINDS = {
    "gemm": ("compute", "matrix products"),
    "attention": ("compute", "attention"),
    "memory_bound": ("compute", "memory-bound"),
    "recompute": ("compute", "recompute"),
    "tp": ("communication", "tensor parallel"),
    "cp": ("communication", "context parallel"),
    "ep": ("communication", "expert parallel"),
    "pp": ("communication", "pipeline messages"),
    "dp": ("communication", "data parallel"),
    "host": ("idle", "host"),
    "offload": ("communication", "offload"),
    "bubble": ("idle", "bubble"),
    "imbalance": ("idle", "imbalance of stages"),
    "optimizer": ("once a step", "optimizer"),
    "fixed": ("once a step", "fixed"),
}
"""Term: the kind that colours it, and its words."""
COLOURS = {"compute": "c0", "communication": "c1", "idle": "c3", "once a step": "c4", "other": "c5"}
ROW, TOP = 20.0, 8.0


def waterfall_picture(timed: Time, width: float = WIDTH) -> Picture:
    """Terms that are there, and their sum with its band."""
    width = fit_width(width)
    terms = {name: value for name, value in timed.terms.items() if value > timed.step_seconds * 5e-4}
    unit, name = time_unit(timed.step_seconds)
    left = 150.0 if width >= 520 else 134.0
    right = width - 62
    ticks = round_ticks(0, timed.high_seconds / unit, 6 if width >= 520 else 4)
    scale = Scale(0, ticks[-1], left, right)
    bottom = TOP + ROW * (len(terms) + 1) + 4
    parts = [bottom_axis(scale, ticks, bottom, TOP, f"time of one step [{name}]")]
    start = 0.0
    for row, (term, value) in enumerate(terms.items()):
        kind, words = KINDS.get(term, ("other", term.replace("_", " ")))
        y = TOP + row * ROW
        x, end = scale(start / unit), scale((start + value) / unit)
        share = value / timed.step_seconds
        hint = f"{words} ({term}): {seconds(value)}, {share:.1%} of the step"
        parts.append(text(left - 8, y + 14, words, anchor="end", class_="ink small"))
        parts.append(rect(x, y + 3, max(end - x, 1.0), ROW - 6, COLOURS[kind], hint, 1.5))
        parts.append(_value(f"{share:.1%}" if share < 0.1 else f"{share:.0%}", x, end, y + 14, right))
        start += value
        if row + 1 < len(terms):
            parts.append(line(end, y + ROW - 3, end, y + ROW + 3, "grid"))
    parts.append(_total(timed, scale, unit, left, TOP + ROW * len(terms)))
    used = {KINDS.get(term, ("other", ""))[0] for term in terms}
    items = [(class_, kind) for kind, class_ in COLOURS.items() if kind in used]
    keys, tall = legend([*items, ("c7", "whole step"), ("line", "its band")], 8, bottom + 44, width - 16)
    parts.append(keys)
    longest = sorted(terms, key=lambda term: -terms[term])[:3]
    words = f"One step takes {seconds(timed.step_seconds)}; most of it: " + ", ".join(
        f"{KINDS.get(term, ('', term))[1]} {terms[term] / timed.step_seconds:.0%}" for term in longest
    )
    return picture("step", "Where the step goes", words + ".", width, bottom + 46 + tall, parts)


def _value(words: str, x: float, end: float, y: float, right: float) -> str:
    """A share beside its bar: after it, or before it where there is no room."""
    if end + 6 + LETTER * len(words) < right + 58:
        return text(end + 6, y, words, class_="soft small")
    return text(x - 6, y, words, anchor="end", class_="soft small")


def _total(timed: Time, scale: Scale, unit: float, left: float, y: float) -> str:
    low, high = scale(timed.low_seconds / unit), scale(timed.high_seconds / unit)
    end, middle = scale(timed.step_seconds / unit), y + ROW / 2
    band = f"between {seconds(timed.low_seconds)} and {seconds(timed.high_seconds)}"
    hint = f"whole step {seconds(timed.step_seconds)}, {band}"
    return "".join(
        (
            text(left - 8, y + 14, "whole step", anchor="end", class_="ink small strong"),
            rect(scale(0), y + 3, end - scale(0), ROW - 6, "c7", hint, 1.5),
            line(low, middle, high, middle),
            line(low, middle - 4, low, middle + 4),
            line(high, middle - 4, high, middle + 4),
            text(high + 6, y + 14, seconds(timed.step_seconds), class_="ink small strong"),
        )
    )
