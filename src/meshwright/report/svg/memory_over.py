"""Memory over one step: what stays, the activations of micro-batches in flight, and each pass's peak."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cluster.spec import GIB
from meshwright.report.passes import MemoryCurve
from meshwright.report.svg.axis import Scale, bottom_axis, inner_ticks, left_axis, round_ticks, time_unit
from meshwright.report.svg.draw import WIDTH, Picture, fit_width, legend, line, picture, polyline, text
from meshwright.report.text import gib

LEFT, TOP, TALL = 46.0, 30.0, 190.0


def memory_over_picture(curves: Sequence[MemoryCurve], usable_bytes: float, width: float = WIDTH) -> Picture:
    """One curve a stage."""
    width = fit_width(width)
    right, bottom = width - 12, TOP + TALL
    whole = max(curve.points[-1][0] for curve in curves)
    peak = {curve.stage: max(size for _, size in curve.points) for curve in curves}
    unit, name = time_unit(whole)
    ticks = inner_ticks(whole / unit, 8 if width > 520 else 6)
    across = Scale(0, whole / unit, LEFT, right)
    rows = round_ticks(0, max(usable_bytes, *peak.values()) / GIB * 1.04)
    up = Scale(0, rows[-1], bottom, TOP)
    parts = [
        left_axis(up, rows, LEFT, right, "GiB a GPU"),
        bottom_axis(across, ticks, bottom, TOP, f"time [{name}]", grid=False),
    ]
    for colour, curve in enumerate(curves):
        points = [(across(at / unit), up(size / GIB)) for at, size in curve.points]
        parts.append(polyline(points, f"stroke s{colour}"))
    y = up(usable_bytes / GIB)
    parts += [
        line(LEFT, y, right, y, "dash"),
        text(right, y - 5, f"usable {gib(usable_bytes)} GiB", anchor="end", class_="warm small"),
    ]
    items = [(f"c{colour}", f"stage {curve.stage}") for colour, curve in enumerate(curves)]
    keys, tall = legend([*items, ("dash", "usable")], LEFT, bottom + 44, right - LEFT)
    parts.append(keys)
    tops = ", ".join(f"stage {stage} {gib(size)}" for stage, size in peak.items())
    words = (
        "Weights, gradients, optimizer and buffers stay; activations come with each forward pass and go "
        f"with its backward pass. Highest [GiB]: {tops}."
    )
    return picture("memory-over", "Memory over the step", words, width, bottom + 46 + tall, parts)
