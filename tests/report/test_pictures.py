"""Pictures: well-formed, told in words, with units and legends, and true to the answer they draw."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import cache

import pytest

import meshwright as mw
from meshwright.api.picturing import PICTURES, grid_of, memory_curves, pictures, ranking, timeline
from meshwright.planner.answer import Estimate
from meshwright.report.svg.draw import Picture
from meshwright.report.svg.scatter import Point, front
from meshwright.report.text import GIB

SVG = "{http://www.w3.org/2000/svg}"
UNITS = {
    "memory": ("GiB a GPU", "pipeline stage"),
    "step": (r"time of one step \[m?s\]",),
    "timeline": (r"time \[m?s\]",),
    "memory-over": ("GiB a GPU", r"time \[m?s\]"),
    "traffic": (r"\[GiB\]",),
}
CASES = {
    "dense": ("llama-3-70b", "64xH100", {"tp": 4, "pp": 4, "vpp": 5}),
    "experts": ("deepseek-v3", "1024xH100", {"pp": 16, "ep": 64}),
    "one stage": ("llama-3-8b", "8xH100", {"tp": 2}),
    "large": ("llama-3.1-405b", "16384xH100", {"tp": 8, "pp": 16, "cp": 4, "global_batch": 2048}),
    "wide domain": ("llama-3-70b", "144xGB200", {"tp": 4, "pp": 2, "global_batch": 144}),
}


@cache
def answer(case: str) -> Estimate:
    model, gpus, options = CASES[case]
    return mw.estimate(model, gpus, mw.Options(**options))


@cache
def drawn(case: str, width: float = 760.0) -> dict[str, Picture]:
    return {one.name: one for one in pictures(answer(case), width=width)}


@pytest.mark.parametrize("case", CASES)
def test_every_picture_is_drawn_and_told_in_words(case: str) -> None:
    assert tuple(drawn(case)) == PICTURES
    for one in drawn(case).values():
        root = ET.fromstring(one.svg)
        title, words = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None
        assert title.text == one.title
        assert words is not None
        assert words.text == one.description
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {words.get('id')}"


@pytest.mark.parametrize(("name", "wanted"), UNITS.items())
def test_every_axis_names_its_unit(name: str, wanted: tuple[str, ...]) -> None:
    words = " | ".join(ET.fromstring(drawn("dense")[name].svg).itertext())
    for unit in wanted:
        assert re.search(unit, words), f"{unit} is not in {words}"


@pytest.mark.parametrize("name", PICTURES)
def test_every_colour_is_in_the_legend(name: str) -> None:
    root = ET.fromstring(drawn("dense")[name].svg)
    boxes = list(root.iter(f"{SVG}rect"))
    used = {colour for node in boxes for colour in re.findall(r"\bc\d\b", node.get("class", ""))}
    swatches = [node for node in boxes if (node.get("width"), node.get("height")) == ("12", "12")]
    explained = {colour for node in swatches for colour in re.findall(r"\bc\d\b", node.get("class", ""))}
    assert used <= explained


@pytest.mark.parametrize("width", [320.0, 360.0, 760.0])
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_drawn_outside(case: str, width: float) -> None:
    for one in drawn(case, width).values():
        root = ET.fromstring(one.svg)
        _, _, wide, tall = map(float, root.get("viewBox", "").split())
        assert wide == width
        for node in root.iter(f"{SVG}rect"):
            x, y = float(node.get("x", 0)), float(node.get("y", 0))
            assert -0.2 <= x <= x + float(node.get("width", 0)) <= wide + 0.2, one.name
            assert -0.2 <= y <= y + float(node.get("height", 0)) <= tall + 0.2, one.name


def test_memory_columns_add_up_to_what_each_stage_holds() -> None:
    found = answer("experts").memory
    assert found is not None
    held: dict[int, float] = {}
    for stage, size in re.findall(r"stage (\d+), \w+: ([\d.]+) GiB", drawn("experts")["memory"].svg):
        held[int(stage)] = held.get(int(stage), 0.0) + float(size)
    assert held == {
        stage.stage: pytest.approx(stage.total_bytes / GIB, abs=0.03) for stage in found.per_stage
    }


def test_step_bars_end_where_the_step_ends() -> None:
    root = ET.fromstring(drawn("dense")["step"].svg)
    bars = [node for node in root.iter(f"{SVG}rect") if node.find(f"{SVG}title") is not None]
    whole, last = bars[-1], bars[-2]
    end = float(whole.get("x", 0)) + float(whole.get("width", 0))
    assert float(last.get("x", 0)) + float(last.get("width", 0)) == pytest.approx(end, abs=2.0)


def test_hovering_a_rank_tells_its_coordinates() -> None:
    grid = grid_of(answer("dense"))
    words = drawn("dense")["ranks"].svg
    for rank in (0, 5, 63):
        said = re.search(rf"rank {rank}, node (\d+), NVLink domain (\d+): ([^<]*)<", words)
        assert said is not None
        assert int(said[1]) == rank // 8
        told = dict(pair.split(" ") for pair in said[3].split("  "))
        assert {axis: int(value) for axis, value in told.items()} == {
            axis: int(grid.coordinates[axis][rank]) for axis in told
        }


def test_a_large_grid_is_folded_and_says_so() -> None:
    one = drawn("large")["ranks"]
    assert len(one.svg) < 120_000
    assert "more stages of the same pattern" in one.svg
    assert "16,384 ranks in 2,048 nodes" in one.description


def test_small_grids_are_drawn_whole() -> None:
    assert len(re.findall(r"<title>rank \d+, node", drawn("dense")["ranks"].svg)) == 64


@pytest.mark.parametrize("group", ["tp", "cp", "dp", "pp", "dp-cp", "ep", "etp", "edp"])
def test_the_grid_is_coloured_by_any_kind_of_group(group: str) -> None:
    (one,) = pictures(answer("experts"), names=["ranks"], group=group)
    assert f"Coloured by {group}:" in one.description


def test_the_timeline_says_when_it_draws_a_part_of_the_step() -> None:
    laid = timeline(answer("dense"))
    assert laid.drawn < laid.num_microbatches
    assert f"({laid.drawn} are drawn" in drawn("dense")["timeline"].description


@pytest.mark.parametrize("case", ["dense", "experts", "one stage"])
def test_memory_over_the_step_peaks_at_what_the_stage_holds(case: str) -> None:
    stages = answer(case).memory
    assert stages is not None
    for curve in memory_curves(answer(case)):
        highest = max(size for _, size in curve.points)
        assert highest == pytest.approx(stages.per_stage[curve.stage].total_bytes, rel=0.02)


def test_the_pareto_front_is_what_nobody_beats() -> None:
    points = [
        Point(words=f"{step},{peak}", step_seconds=step, peak_bytes=peak, rank=1)
        for step, peak in [(1, 9), (2, 5), (2.5, 6), (3, 5), (4, 2), (5, 3)]
    ]
    beaten = {
        p.words
        for p in points
        for q in points
        if q != p and q.step_seconds <= p.step_seconds and q.peak_bytes <= p.peak_bytes
    }
    assert {p.words for p in front(points)} == {p.words for p in points} - beaten


def test_the_ranking_marks_ties_and_the_card() -> None:
    found = mw.plan("llama-3-8b", "8xH100", top=8)
    one = ranking(found, chosen=1)
    assert "usable 79.1 GiB" in one.svg
    beside = one.svg.count("of the search: ")
    assert one.svg.count("<circle") == len(found.plans) + beside
    assert f"{found.ties:,} layouts of the search are tied" in one.svg


def test_the_front_of_the_ranking_is_that_of_the_whole_search() -> None:
    """Plans are the fastest few: layouts that need far less memory are drawn beside them."""
    found = mw.plan("llama-3-8b", "8xH100", top=2)
    assert any(row["peak_bytes"] < 0.9 * found.plans[0].memory.peak_bytes for row in found.front)
    shown = ranking(found).svg
    fastest = found.front[0]["step_seconds"]
    near = [row for row in found.front if row["step_seconds"] < 1.5 * fastest]
    assert f"of the search: {near[-1]['layout']}" in shown


def test_a_layout_that_cannot_start_has_no_pictures() -> None:
    refused = mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=3))
    assert not refused.valid
    assert pictures(refused) == ()


def test_an_unknown_picture_is_named() -> None:
    with pytest.raises(mw.QuestionError, match="unknown picture 'memry'; did you mean memory"):
        pictures(answer("dense"), names=["memry"])


def test_a_picture_stands_alone_as_a_file() -> None:
    text = drawn("dense")["memory"].standalone()
    root = ET.fromstring(text)
    assert "--c0" in (root.findtext(f"{SVG}style") or "")
