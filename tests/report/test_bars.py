"""Bars and timeline on a terminal: 80 columns, readable without colour, true to the numbers."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

import meshwright as mw
from meshwright.api.picturing import timeline
from meshwright.planner.answer import Memory, StageMemory
from meshwright.report.bars import memory_bars, timeline_lines
from meshwright.report.passes import Pass, Tail, Timeline
from meshwright.report.text import GIB


def screen(what: RenderableType, width: int = 80, **more: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, **more)  # type: ignore[arg-type]
    console.print(what)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def stage(number: int, *sizes: float) -> StageMemory:
    names = ("weights", "gradients", "optimizer", "activations", "other")
    terms = {f"{name}_bytes": round(size * GIB) for name, size in zip(names, sizes, strict=True)}
    return StageMemory(
        stage=number, parameters=0, **terms, total_bytes=sum(terms.values()), allocated_bytes=0
    )


def memory(usable: float, *stages: StageMemory) -> Memory:
    peak = max(one.total_bytes for one in stages)
    return Memory(
        verdict="fits", usable_bytes=round(usable * GIB), peak_bytes=peak, low_bytes=peak, high_bytes=peak,
        peak_allocated_bytes=peak, per_stage=stages,
    )  # fmt: skip


def test_letters_are_shares_of_the_card() -> None:
    lines = screen(memory_bars(memory(60, stage(0, 10, 10, 10, 20, 5), stage(1, 10, 10, 10, 0, 0))))
    each = 60 * 1.02 / 63
    for line, sizes in zip(lines, ((10, 10, 10, 20, 5), (10, 10, 10, 0, 0)), strict=False):
        for letter, size in zip("wgoax", sizes, strict=True):
            assert line[8:71].count(letter) == pytest.approx(size / each, abs=1)
    assert lines[0].endswith("55.0")
    assert "| usable 60.0 GiB" in lines[-1]


def test_what_is_over_the_card_passes_its_mark() -> None:
    (line, _) = screen(memory_bars(memory(50, stage(0, 20, 20, 20, 20, 0))))
    assert line.index("|") < line.rindex("a")


def test_equal_stages_share_a_line() -> None:
    lines = screen(memory_bars(memory(60, *(stage(n, 10, 1, 1, 1, 1) for n in range(8)))))
    assert len(lines) == 2
    assert lines[0].startswith("stage 0-7 ")


def test_the_timeline_of_two_ranks() -> None:
    def one(rank: int, backward: bool, start: float, end: float) -> Pass:
        return Pass(rank=rank, chunk=0, microbatch=0, backward=backward, start=start, end=end)

    found = Timeline(
        pp=2, vpp=1, num_microbatches=1, drawn=1,
        passes=(one(0, False, 0, 1), one(1, False, 1, 2), one(1, True, 2, 4), one(0, True, 4, 6)),
        tail=(Tail(words="gradients", communication=True, seconds=1.0),),
    )  # fmt: skip
    assert screen(timeline_lines(found, width=21), width=90)[:2] == [
        "rank 0 ff......bbbbcc",
        "rank 1 ..ffbbbb....cc",
    ]


@pytest.mark.parametrize(
    ("model", "gpus", "options"),
    [
        ("llama-3-70b", "64xH100", {"tp": 4, "pp": 4, "vpp": 5}),
        ("deepseek-v3", "1024xH100", {"pp": 16, "ep": 64}),
    ],
)
def test_real_answers_keep_to_80_columns(model: str, gpus: str, options: dict[str, int]) -> None:
    answer = mw.estimate(model, gpus, mw.Options(**options))  # type: ignore[arg-type]
    assert answer.memory is not None
    for drawn in (memory_bars(answer.memory), timeline_lines(timeline(answer))):
        assert max(len(line) for line in screen(drawn, width=200)) <= 80


def test_colour_is_only_colour() -> None:
    """The letters are the same with and without it."""
    import re

    drawn = memory_bars(memory(60, stage(0, 10, 10, 10, 20, 5)))
    coloured = screen(drawn, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured[0]
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in coloured] == screen(drawn)
