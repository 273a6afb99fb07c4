"""Memory of every pipeline stage, stacked by term against what the card offers."""

from __future__ import annotations

from meshwright.cluster.spec import GIB
from meshwright.planner.answer import Memory, StageMemory
from meshwright.report.svg.axis import Scale, left_axis, round_ticks
from meshwright.report.svg.draw import WIDTH, Picture, fit_width, legend, line, picture, rect, text
from meshwright.report.text import gib

TERMS = (
    ("weights_bytes", "weights", "c0"),
    ("gradients_bytes", "gradients", "c1"),
    ("optimizer_bytes", "optimizer", "c2"),
    ("activations_bytes", "activations", "c3"),
    ("other_bytes", "other", "c4"),
)
"""Field of a stage, its word, its colour; bottom of the stack first."""
LEFT, TOP, TALL = 46.0, 30.0, 210.0


def memory_picture(memory: Memory, width: float = WIDTH) -> Picture:
    """One column a stage."""
    width = fit_width(width)
    stages = memory.per_stage
    right = width - 8
    most = max(memory.usable_bytes, memory.high_bytes) / GIB
    ticks = round_ticks(0, most * 1.04)
    scale = Scale(0, ticks[-1], TOP + TALL, TOP)
    step = (right - LEFT) / len(stages)
    wide = min(step * 0.78, 56.0)
    parts = [left_axis(scale, ticks, LEFT, right, "GiB a GPU")]
    skip = max(1, -(-len(stages) * 22 // int(right - LEFT)))
    for index, stage in enumerate(stages):
        x = LEFT + index * step + (step - wide) / 2
        parts.append(_column(stage, x, wide, scale))
        if index % skip == 0:
            parts.append(
                text(x + wide / 2, TOP + TALL + 15, stage.stage, anchor="middle", class_="ink small")
            )
    parts.append(
        text((LEFT + right) / 2, TOP + TALL + 32, "pipeline stage", anchor="middle", class_="ink small")
    )
    parts.append(_band(memory, scale, step, wide))
    y = scale(memory.usable_bytes / GIB)
    parts.append(line(LEFT, y, right, y, "dash"))
    parts.append(
        text(right, y - 5, f"usable {gib(memory.usable_bytes)} GiB", anchor="end", class_="warm small")
    )
    items = [(class_, words) for _, words, class_ in TERMS]
    keys, tall = legend(
        [*items, ("dash", "usable"), ("line", "band of the fullest stage")],
        LEFT,
        TOP + TALL + 44,
        right - LEFT,
    )
    parts.append(keys)
    fullest = max(stages, key=lambda stage: stage.total_bytes)
    words = (
        f"Stage {fullest.stage} holds most: {gib(fullest.total_bytes)} of {gib(memory.usable_bytes)} GiB "
        f"usable ({memory.verdict}); of it {_listed(fullest)}."
    )
    return picture("memory", "Memory of each pipeline stage", words, width, TOP + TALL + 48 + tall, parts)


def _column(stage: StageMemory, x: float, wide: float, scale: Scale) -> str:
    parts, below = [], 0.0
    for field, words, class_ in TERMS:
        size = getattr(stage, field) / GIB
        top = scale(below + size)
        hint = f"stage {stage.stage}, {words}: {size:.2f} GiB of {gib(stage.total_bytes)}"
        parts.append(rect(x, top, wide, scale(below) - top, class_, hint))
        below += size
    return "".join(parts)


def _band(memory: Memory, scale: Scale, step: float, wide: float) -> str:
    """The uncertainty of the fullest stage, as a whisker on its column."""
    fullest = max(range(len(memory.per_stage)), key=lambda index: memory.per_stage[index].total_bytes)
    x = LEFT + fullest * step + step / 2
    low, high = scale(memory.low_bytes / GIB), scale(memory.high_bytes / GIB)
    tick = min(wide / 2, 5.0)
    return line(x, low, x, high) + line(x - tick, low, x + tick, low) + line(x - tick, high, x + tick, high)


def _listed(stage: StageMemory) -> str:
    return ", ".join(f"{words} {gib(getattr(stage, field))}" for field, words, _ in TERMS)
