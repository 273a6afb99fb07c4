"""The nearest layouts can start, and none that can start is nearer."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.planner.guide.nearest import AXES, heads_allow, nearest_layouts

DEEPSEEK = Layout(tp=2, pp=16, ep=64)


def doublings(layout, asked):
    return sum(abs(math.log2(getattr(layout, name) / getattr(asked, name))) for name in AXES)


def test_deepseek_v3_on_256():
    near = nearest_layouts(DEEPSEEK, 256, find("deepseek-v3"))
    assert {Layout(tp=2, pp=8, ep=32, sp=True), Layout(tp=2, pp=4, ep=64, sp=True)} <= set(near)
    assert near[0] == Layout(tp=2, pp=8, ep=32, sp=True)


def test_layouts_that_ship_come_first():
    ships = Layout(pp=4, ep=64)
    assert nearest_layouts(DEEPSEEK, 256, find("deepseek-v3"), shipped=[ships])[0] == ships


def test_a_layout_that_can_start_is_its_own_nearest():
    asked = Layout(tp=2, pp=16, ep=64, sp=True)
    assert nearest_layouts(asked, 1024, find("deepseek-v3"))[0] == asked


@settings(max_examples=60, deadline=None)
@given(
    world=st.integers(1, 96),
    tp=st.integers(1, 8),
    pp=st.integers(1, 6),
    ep=st.integers(1, 8),
)
def test_nothing_nearer_exists(world, tp, pp, ep):
    asked = Layout(tp=tp, pp=pp, ep=ep)
    near = nearest_layouts(asked, world)
    assert near
    for layout in near:
        layout.check_world(world)
    sizes = range(1, world + 1)
    brute = min(
        doublings(Layout(tp=t, pp=p, ep=e), asked)
        for t, p, e in itertools.product([d for d in sizes if world % d == 0], repeat=3)
        if world % Layout(tp=t, pp=p, ep=e).min_gpus == 0 and max(t / tp, p / pp, e / ep) <= 4
    )
    assert doublings(near[0], asked) == pytest.approx(brute)


def test_a_model_bounds_every_degree():
    model = find("qwen3-30b-a3b")
    for layout in nearest_layouts(Layout(tp=16, pp=64, cp=3, ep=96), 4096, model, 4096, count=50):
        assert heads_allow(model, layout.tp)
        assert layout.pp <= model.num_layers
        assert model.num_experts % layout.ep == 0
        assert 4096 % (2 * layout.cp) == 0


def test_a_dense_model_gets_no_experts():
    near = nearest_layouts(Layout(tp=8, ep=8), 64, find("llama-3-70b"), moe=False)
    assert {layout.ep for layout in near} == {1}


def test_tp_stays_inside_the_domain():
    assert all(layout.tp <= 8 for layout in nearest_layouts(Layout(tp=16, pp=3), 64, most_tp=8, count=20))


@pytest.mark.parametrize("world", [1, 7, 8_648_640, 9_999_991, 10_000_000])
def test_any_world_is_answered_quickly(world):
    begin = time.perf_counter()
    assert nearest_layouts(Layout(tp=96, pp=96, cp=96, ep=96, etp=96), world)
    assert time.perf_counter() - begin < 10


@pytest.mark.parametrize(
    ("name", "tp", "allowed"),
    [
        ("qwen2-0.5b", 4, False),  # 14 heads
        ("qwen2-0.5b", 2, True),
        ("llama-3-70b", 16, True),  # 8 KV heads, replicated
        ("deepseek-v3", 128, True),
        ("deepseek-v3", 3, False),
        ("nemotron-h-8b", 16, False),  # 8 Mamba groups
        ("nemotron-h-8b", 8, True),
    ],
)
def test_heads(name, tp, allowed):
    assert heads_allow(find(name), tp) == allowed
