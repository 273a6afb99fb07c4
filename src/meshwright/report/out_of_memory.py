"""The screen of an out-of-memory error."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.cost.oom import OutOfMemory
from meshwright.planner.out_of_memory import Diagnosis
from meshwright.report.memory import remedies_part
from meshwright.report.terminal import plan_words
from meshwright.report.text import gib


def diagnosis_screen(found: Diagnosis) -> RenderableType:
    """Where in the step, why, what helps; beside it what was predicted."""
    error = found.error
    parts: list[RenderableType] = [Text(f"Out of memory: {error.stage}{_where(error)}", style="bold red")]
    if sizes := _sizes(error):
        parts.append(Text(sizes))
    parts += _list("Why", list(error.causes))
    parts += _list("What helps", list(error.remedies))
    if found.plan is not None and found.stage is not None and found.plan.memory is not None:
        parts += _list(f"Predicted for {plan_words(found.plan)}", _predicted(found))
        if found.plan.detail is not None and found.plan.detail.remedies:
            parts.append(remedies_part(found.plan.detail.remedies))
    return Group(*parts)


def _list(title: str, lines: list[str]) -> list[RenderableType]:
    """A title and lines that wrap under themselves."""
    if not lines:
        return []
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row("  -", Text(line))
    return [Text(f"\n{title}", style="bold"), grid]


def _where(error: OutOfMemory) -> str:
    named = [f"rank {error.rank}"] if error.rank is not None else []
    named += [f"GPU {error.device}"] if error.device is not None else []
    return f" ({', '.join(named)})" if named else ""


def _sizes(error: OutOfMemory) -> str:
    """What the message says, in GiB."""
    sizes = [
        ("tried to allocate", error.tried),
        ("allocated by tensors", error.allocated),
        ("reserved by torch", error.reserved),
        ("free", error.free),
        ("of the device", error.capacity),
    ]
    return ", ".join(f"{name} {gib(value)}" for name, value in sizes if value is not None) + (
        " GiB" if any(value is not None for _, value in sizes) else ""
    )


def _predicted(found: Diagnosis) -> list[str]:
    stage, memory = found.stage, None if found.plan is None else found.plan.memory
    if stage is None or memory is None:
        return []
    lines = [
        f"stage {stage.stage}: {gib(stage.total_bytes)} GiB of {gib(memory.usable_bytes)} usable, "
        f"{gib(stage.allocated_bytes)} of it allocated by tensors (the layout: {memory.verdict})"
    ]
    if found.unlike is not None:
        more = "more" if found.unlike > 0 else "less"
        lines.append(
            f"torch had {gib(abs(found.unlike))} GiB {more} allocated than that when it asked for "
            f"{gib(found.error.tried or 0)}"
        )
    return lines
