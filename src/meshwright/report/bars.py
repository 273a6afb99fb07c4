"""Bars for a terminal: memory of each stage by term, and a compact timeline of one step.

Each kind has its letter, so that both can be read without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from meshwright.planner.answer import Memory, StageMemory
from meshwright.report.passes import Timeline
from meshwright.report.svg.timeline import shown_ranks
from meshwright.report.text import gib, seconds

TERMS = (
    ("weights_bytes", "w", "weights", "blue"),
    ("gradients_bytes", "g", "gradients", "yellow"),
    ("optimizer_bytes", "o", "optimizer", "green"),
    ("activations_bytes", "a", "activations", "magenta"),
    ("other_bytes", "x", "other", "bright_black"),
)
"""Field of a stage, its letter, its word, its colour."""
KINDS = {"f": "blue", "b": "yellow", "c": "magenta", "u": "bright_black", ".": "dim"}
WIDTH = 80


def memory_bars(memory: Memory, width: int = WIDTH) -> RenderableType:
    """A line a stage, stacked by term, with a mark where the card ends; equal neighbours share a line."""
    stages = memory.per_stage
    runs = [list(run) for _, run in groupby(stages, key=lambda stage: gib(stage.total_bytes))]
    names = [_name(run) for run in runs]
    left = max(len(name) for name in names)
    room = width - left - 10
    each = max(memory.usable_bytes, memory.peak_bytes) * 1.02 / room  # bytes a letter
    lines = [
        Text.assemble(
            (f"{name:>{left}} ", "bold"), _bar(run[0], each, memory.usable_bytes, room),
            f" {gib(run[0].total_bytes):>6}",
        )
        for name, run in zip(names, runs, strict=True)
    ]  # fmt: skip
    key = Text()
    for _, letter, word, colour in TERMS:
        key.append(letter, style=colour).append(f" {word}  ")
    key.append(f"| usable {gib(memory.usable_bytes)} GiB")
    return Group(*lines, key)


def _name(run: Sequence[StageMemory]) -> str:
    first, last = run[0].stage, run[-1].stage
    return f"stage {first}" if first == last else f"stage {first}-{last}"


def _bar(stage: StageMemory, each: float, usable: float, room: int) -> Text:
    """Letters by share; each term ends where the sum up to it does, so that rounding does not add up."""
    text, below, drawn = Text(), 0.0, 0
    for field, letter, _, colour in TERMS:
        below += getattr(stage, field)
        upto = min(round(below / each), room)
        text.append(letter * (upto - drawn), style=colour)
        drawn = max(drawn, upto)
    mark = min(round(usable / each), room - 1)
    plain = text.plain.ljust(room)
    if mark >= drawn:
        text.append(" " * (mark - drawn)).append("|", style="red").append(" " * (room - mark - 1))
    else:
        text = Text.assemble(text[:mark], ("|", "bold red"), text[mark + 1 :], " " * (len(plain) - drawn))
    return text


def timeline_lines(timeline: Timeline, width: int = WIDTH) -> RenderableType:
    """A line a rank: f forward, b backward, c communication, u optimizer, a dot where it waits."""
    ranks = shown_ranks(timeline.pp)
    left = len(f"rank {timeline.pp - 1}")
    room = width - left - 1
    each = timeline.whole / room
    lines = []
    for rank in ranks:
        if rank is None:
            lines.append(Text("..."))
            continue
        letters = _letters(timeline, rank, room, each)
        line = Text(f"{f'rank {rank}':>{left}} ", style="bold")
        for letter, run in groupby(letters):
            line.append("".join(run), style=KINDS[letter])
        lines.append(line)
    some = f" of {timeline.num_microbatches:,}" if timeline.drawn < timeline.num_microbatches else ""
    key = f"{timeline.drawn:,}{some} micro-batches, {seconds(timeline.whole)}; "
    key += "f forward, b backward, c gradients"
    return Group(*lines, Text(key, style="dim"))


def _letters(timeline: Timeline, rank: int, room: int, each: float) -> list[str]:
    """What a rank does at the middle of each letter."""
    letters = ["."] * room
    spans = [(one.start, one.end, "b" if one.backward else "f") for one in timeline.of_rank(rank)]
    at = timeline.end
    for tail in timeline.tail:
        spans.append((at, at + tail.seconds, "c" if tail.communication else "u"))
        at += tail.seconds
    for start, end, letter in spans:
        first, last = int(start / each + 0.5), int(end / each + 0.5)
        for place in range(first, min(last, room)):
            letters[place] = letter
    return letters
