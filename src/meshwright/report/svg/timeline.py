"""The pipeline timeline of one step: a row a rank, a bar a pass, what is left is the bubble."""

from __future__ import annotations

from meshwright.report.passes import Pass, Timeline
from meshwright.report.svg.axis import Scale, bottom_axis, inner_ticks, time_unit
from meshwright.report.svg.draw import WIDTH, Picture, element, fit_width, legend, picture, rect, text
from meshwright.report.text import seconds

LEFT, TOP = 46.0, 8.0
MOST_ROWS = 16
"""Ranks drawn; of more, the first ones and the last."""


def timeline_picture(timeline: Timeline, width: float = WIDTH) -> Picture:
    """All bars of the ranks that are shown."""
    width = fit_width(width)
    ranks = shown_ranks(timeline.pp)
    row = 24.0 if len(ranks) <= 8 else 18.0
    right = width - 12
    unit, name = time_unit(timeline.whole)
    ticks = inner_ticks(timeline.whole / unit, 8 if width > 520 else 6)
    scale = Scale(0, timeline.whole / unit, LEFT, right)
    bottom = TOP + row * len(ranks)
    parts = [text(4, bottom + 15, "rank", class_="soft small")]
    for index, rank in enumerate(ranks):
        y = TOP + index * row
        parts.append(text(LEFT - 8, y + row / 2 + 4, rank, anchor="end", class_="ink small"))
        if rank is None:
            continue
        parts.append(
            rect(LEFT, y + 2, scale(timeline.end / unit) - LEFT, row - 4, "idle", f"rank {rank} waits here")
        )
        parts += [_bar(one, scale, unit, y + 2, row - 4, timeline.vpp) for one in timeline.of_rank(rank)]
        parts.append(_tail(timeline, scale, unit, y + 2, row - 4))
    parts.append(bottom_axis(scale, ticks, bottom + 4, TOP, f"time [{name}]", grid=False))
    parts.append(_legend(timeline, bottom + 46, width))
    tall = legend(_items(timeline), LEFT, 0, width - LEFT - 12)[1]
    return picture(
        "timeline", "Pipeline timeline of one step", _words(timeline), width, bottom + 48 + tall, parts
    )


def shown_ranks(pp: int) -> list[int | None]:
    """Ranks to draw; None stands for those left out.

    >>> shown_ranks(3), shown_ranks(64)[-3:]
    ([0, 1, 2], [13, None, 63])
    """
    if pp <= MOST_ROWS:
        return list(range(pp))
    return [*range(MOST_ROWS - 2), None, pp - 1]


def _words(timeline: Timeline) -> str:
    form = "1F1B" if timeline.vpp == 1 else f"interleaved 1F1B over {timeline.vpp} chunks a rank"
    words = f"{form} on {timeline.pp} pipeline ranks, {timeline.num_microbatches:,} micro-batches a step"
    if timeline.drawn < timeline.num_microbatches:
        words += f" ({timeline.drawn} are drawn; the steady middle only repeats)"
    return words + f"; idle is {timeline.idle:.0%} of the time drawn."


def _class(one: Pass, vpp: int) -> str:
    """Forward and backward have a colour each; chunks above the first are paler in turn."""
    return ("c1" if one.backward else "c0") + (" pale" if vpp > 1 and one.chunk % 2 else "")


def _bar(one: Pass, scale: Scale, unit: float, y: float, tall: float, vpp: int) -> str:
    x, end = scale(one.start / unit), scale(one.end / unit)
    wide = end - x
    where = f", chunk {one.chunk}" if vpp > 1 else ""
    hint = f"rank {one.rank}{where}: {one.words}, {seconds(one.start)} to {seconds(one.end)}"
    parts = [rect(x, y, wide - min(0.6, wide * 0.1), tall, _class(one, vpp), hint)]
    if one.busy > 0.01:
        parts.append(rect(x, y + tall - 4, wide * one.busy, 4, "c3"))
    if wide >= 7 * len(str(one.microbatch)) + 2 and not (vpp > 1 and one.chunk % 2):
        parts.append(text(x + wide / 2, y + tall / 2 + 3, one.microbatch, anchor="middle", class_="on-tiny"))
    return element("g", *parts)


def _tail(timeline: Timeline, scale: Scale, unit: float, y: float, tall: float) -> str:
    parts, at = [], timeline.end
    for tail in timeline.tail:
        x, end = scale(at / unit), scale((at + tail.seconds) / unit)
        parts.append(
            rect(
                x,
                y,
                end - x,
                tall,
                "c3" if tail.communication else "c4",
                f"{tail.words}: {seconds(tail.seconds)}",
            )
        )
        at += tail.seconds
    return "".join(parts)


def _items(timeline: Timeline) -> list[tuple[str, str]]:
    items = [("c0", "forward"), ("c1", "backward"), ("c3", "exposed communication"), ("idle", "bubble")]
    if timeline.vpp > 1:
        items.insert(2, ("c0 pale", "odd chunks are paler"))
    if any(not tail.communication for tail in timeline.tail):
        items.append(("c4", "optimizer"))
    return items


def _legend(timeline: Timeline, y: float, width: float) -> str:
    return legend(_items(timeline), LEFT, y, width - LEFT - 12)[0]
