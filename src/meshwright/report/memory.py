"""Memory in detail on a terminal: remedies, peaks told apart, host memory, a stage over a step."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.planner.memory_detail import Host, MemoryDetail, RlDetail, StagePeaks, StageTimeline, words
from meshwright.planner.remedies import Remedy
from meshwright.report.fitted import Foldable
from meshwright.report.text import gib

LEVELS = "▁▂▃▄▅▆▇█"
WIDTH = 72


def remedies_part(found: tuple[Remedy, ...]) -> RenderableType:
    """Changes that make it fit, the cheapest in step time first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("change", overflow="fold")
    for name in ("GiB", "", "step"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in found:
        numerics = " (changes the numerics)" if one.numerics else ""
        table.add_row(words(one.options), gib(one.peak), one.verdict, _change(one.slower), one.why + numerics)
    return Group(Text("\nWhat to change", style="bold"), table)


def _change(slower: float) -> str:
    return "same" if abs(slower) < 0.0005 else f"{slower:+.1%}"


def detail_part(detail: MemoryDetail, capacity: float) -> RenderableType:
    """Everything that `--memory` shows; `capacity` is what the card offers [bytes]."""
    parts: list[RenderableType] = [_peaks(detail.peaks), _host(detail.host)]
    if detail.timeline is not None:
        parts.append(_timeline(detail.timeline, capacity))
    return Group(*parts)


def _peaks(found: tuple[StagePeaks, ...]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "iteration 1", "iteration 2 on", "evaluation", "checkpoint save"):
        table.add_column(name, justify="right")
    for first, last, row in _folded(found):
        table.add_row(
            f"{first}" if first == last else f"{first}-{last}",
            gib(row.first_iteration_bytes), gib(row.later_iterations_bytes), gib(row.evaluation_bytes),
            gib(row.checkpoint_save_bytes),
        )  # fmt: skip
    title = Text("\nPeaks told apart: what torch.cuda.max_memory_allocated shows [GiB]", style="bold")
    return Group(title, Foldable(table))


def _folded(found: tuple[StagePeaks, ...]) -> Iterator[tuple[int, int, StagePeaks]]:
    """Runs of stages that show the same digits, as one row."""

    def shown(row: StagePeaks) -> tuple[str, ...]:
        return tuple(
            gib(value) for value in (row.first_iteration_bytes, row.later_iterations_bytes,
                                     row.evaluation_bytes, row.checkpoint_save_bytes)
        )  # fmt: skip

    start = 0
    for index in range(1, len(found) + 1):
        if index == len(found) or shown(found[index]) != shown(found[start]):
            yield found[start].stage, found[index - 1].stage, found[start]
            start = index


def _host(host: Host) -> RenderableType:
    parts = [
        ("process", host.process_bytes),
        ("offloaded optimizer", host.optimizer_bytes),
        ("offloaded activations", host.activations_bytes),
        ("asynchronous checkpoint", host.checkpoint_bytes),
        ("while the engine generates", host.rollout_bytes),
    ]
    named = ", ".join(f"{name} {gib(value)}" for name, value in parts if value)
    title = Text("\nHost memory [GiB]", style="bold")
    line = f"  {gib(host.rank_bytes)} a rank ({named}); {gib(host.node_bytes)} a node of {host.gpus_per_node}"
    return Group(title, Text(line))


def _timeline(found: StageTimeline, capacity: float) -> RenderableType:
    left_out = found.passes - len(found.forward)
    title = f"\nStage {found.stage} over a step: {found.passes:,} passes"
    if left_out:
        title += f", of which {left_out:,} in the steady middle are left out"
    values, phases = _columns(found)
    bar = "".join(_level(value, found.floor_bytes, found.highest_bytes) for value in values)
    lines = (
        f"  {bar}\n  {phases}\n"
        f"  ▁ {gib(found.floor_bytes)} GiB between steps, █ {gib(found.highest_bytes)} at most of "
        f"{gib(capacity)} usable; optimizer step {gib(found.update_bytes)}"
    )
    return Group(Text(title, style="bold"), Text(lines))


def _columns(found: StageTimeline) -> tuple[list[int], str]:
    """Peaks in at most WIDTH columns (the highest of each), and a letter for the phase of each."""
    count = len(found.peak_bytes)
    size = max(1, -(-count // WIDTH))
    starts = range(0, count, size)
    letters = {"warm-up": "w", "steady": "s", "cool-down": "c"}
    peaks = [max(found.peak_bytes[i : i + size]) for i in starts]
    return peaks, "".join(letters[found.phase[i]] for i in starts)


def _level(value: float, low: float, high: float) -> str:
    share = (value - low) / max(high - low, 1)
    return LEVELS[min(max(int(share * len(LEVELS)), 0), len(LEVELS) - 1)]


def rl_part(found: RlDetail) -> RenderableType:
    """What a GPU holds in each phase of a reinforcement-learning step, on its fullest stage."""
    where = "on the trainer's GPUs" if found.colocated else "on GPUs of its own"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("phase", "GiB", "stage"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for name, values in found.phases.items():
        fullest = max(range(len(values)), key=lambda stage: values[stage])
        table.add_row(name, gib(values[fullest]), f"{fullest}")
    cache = "no room for a cache" if not found.engine_fits else f"{gib(found.cache_bytes)} for the cache"
    words = (
        f"  rollout engine {where}: {gib(found.engine_bytes)} GiB of a card, {gib(found.weights_bytes)} of "
        f"it weights, {cache}\n  in host memory while it generates: {gib(found.offloaded_bytes)} GiB a rank"
    )
    title = Text("\nPhases of a step: the trainer's GPUs, fullest stage", style="bold")
    return Group(title, table, Text(words, style="" if found.engine_fits else "red"))
