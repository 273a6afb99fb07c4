"""The pipeline as events: Megatron's own order of passes, hand-worked lengths, and the closed form."""

from __future__ import annotations

import ast
import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

from meshwright.cost.schedule import (
    PipelineCosts,
    chrome_trace,
    passes_of_stage,
    pipeline_seconds,
    plain_costs,
    schedule_table,
    simulate,
)
from meshwright.cost.schedule_length import step_length
from meshwright.errors import QuestionError


def megatron_schedule_table():
    """Megatron Core's own function, taken out of its file so that torch is not needed."""
    found = importlib.util.find_spec("megatron.core")
    if found is None or found.origin is None:
        pytest.skip("megatron-core is not installed")
    path = Path(found.origin).parent / "pipeline_parallel" / "schedules.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if getattr(n, "name", "") == "get_schedule_table")
    space: dict[str, object] = {}
    exec(compile(ast.Module([node], []), str(path), "exec"), space)
    return space["get_schedule_table"]


@pytest.mark.parametrize(
    ("micro", "chunks", "group"), [(8, 2, 4), (12, 3, 4), (10, 2, 4), (4, 5, 4), (9, 4, 2)]
)
def test_passes_run_in_megatrons_order(micro, chunks, group):
    assert schedule_table(micro, chunks, group) == list(megatron_schedule_table()(micro, chunks, group))


@pytest.mark.parametrize(
    ("stage", "stages", "chunks", "group", "combined", "warm"),
    [
        (0, 4, 1, 4, False, 3),
        (3, 4, 1, 4, False, 0),
        (0, 4, 2, 4, False, 10),  # (4-0-1)*2 + (2-1)*4
        (3, 4, 2, 4, False, 4),
        (0, 8, 5, 8, False, 46),  # 7*2 + 4*8
        (0, 4, 2, 4, True, 11),
        (0, 1, 1, 1, True, 1),
    ],
)
def test_fill_is_as_long_as_megatron_makes_it(stage, stages, chunks, group, combined, warm):
    assert passes_of_stage(stage, stages, chunks, 64, group, combined=combined)[1] == warm


def test_one_forward_one_backward_of_two_stages_by_hand():
    # F is 1 s, B is 2 s, two micro-batches: stage 1 waits 1 s, runs F B F B, and stage 0 ends with B
    timeline = simulate(plain_costs(np.array([1.0, 1.0]), np.array([2.0, 2.0])), 2)
    assert timeline.seconds == pytest.approx(9.0)
    assert timeline.busy(0) == timeline.busy(1) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("stages", "chunks", "micro"), [(4, 1, 8), (8, 1, 32), (4, 2, 8), (8, 5, 64), (16, 4, 16)]
)
def test_equal_stages_idle_as_long_as_the_papers_bubble(stages, chunks, micro):
    """Bubble (pp-1)/(vpp*M) of the ideal time. Source: Narayanan et al. 2021, section 2.2."""
    costs = plain_costs(np.full((stages, chunks), 1.0 / chunks), np.full((stages, chunks), 2.0 / chunks))
    ideal = 3.0 * micro
    assert pipeline_seconds(costs, micro) == pytest.approx(ideal * (1 + (stages - 1) / (chunks * micro)))


def test_a_slow_last_stage_sets_the_pace():
    forward = np.array([1.0, 1.0, 1.0, 1.5])
    seconds = simulate(plain_costs(forward, 2 * forward), 16).seconds
    assert seconds == pytest.approx(16 * 4.5 + 3 * 3.0)


def test_closed_form_is_exact_where_stages_differ_in_one_place():
    forward = np.full((8, 3), 0.4)
    forward[-1, -1] += 0.2
    costs = plain_costs(forward, 2 * forward)
    stage = 3 * forward.sum(axis=1)
    closed = 40 * stage.max() + (stage.sum() - stage.max()) / 3
    assert pipeline_seconds(costs, 40) == pytest.approx(closed, rel=1e-9)


def test_closed_form_and_simulation_agree_on_uneven_pipelines():
    rng = np.random.default_rng(7)
    off = []
    for _ in range(150):
        stages, chunks = int(rng.choice([2, 4, 8, 12])), int(rng.choice([1, 2, 3, 5]))
        micro = stages * int(rng.integers(1, 9))
        forward = rng.uniform(0.85, 1.15, size=(stages, chunks))
        stage = 3 * forward.sum(axis=1)
        closed = micro * stage.max() + (stage.sum() - stage.max()) / chunks
        off.append(abs(closed / pipeline_seconds(plain_costs(forward, 2 * forward), micro) - 1))
    assert np.median(off) < 0.01
    assert np.quantile(off, 0.99) < 0.07


@pytest.mark.parametrize("chunks", [1, 3])
def test_long_steps_are_extrapolated_to_what_a_full_simulation_gives(chunks):
    rng = np.random.default_rng(3)
    forward = rng.uniform(0.9, 1.1, size=(6, chunks))
    costs = plain_costs(forward, 2 * forward, message=0.05, blocking=0.3)
    assert pipeline_seconds(costs, 120) == pytest.approx(simulate(costs, 120).seconds, rel=2e-3)


def test_messages_lengthen_fill_and_drain():
    forward = np.ones(4)
    quiet = simulate(plain_costs(forward, 2 * forward), 8).seconds
    slow = simulate(plain_costs(forward, 2 * forward, message=0.1), 8).seconds
    assert slow >= quiet + 2 * 3 * 0.1 - 1e-9


def test_overlapped_exchange_is_hidden_only_in_the_steady_state():
    hidden, exposed = np.ones((1, 1)), np.full((1, 1), 1.5)
    costs = PipelineCosts(
        forward=hidden, backward=2 * hidden, alone_forward=exposed, alone_backward=2 * exposed
    )
    assert simulate(costs, 10, combined=True).seconds == pytest.approx(1.5 + 9 * 3.0 + 3.0)


def test_every_pass_is_there_once_and_none_overlaps_on_a_stage():
    timeline = simulate(plain_costs(np.ones((4, 2)), 2 * np.ones((4, 2))), 8)
    assert len({slot[:4] for slot in timeline.slots}) == len(timeline.slots) == 4 * 2 * 8 * 2
    for stage in range(4):
        own = sorted((s.start, s.end) for s in timeline.slots if s.stage == stage)
        assert all(end <= start + 1e-12 for (_, end), (start, _) in itertools.pairwise(own))


def test_a_group_smaller_than_the_pipeline_is_refused():
    with pytest.raises(QuestionError, match="groups of 2 micro-batches cannot fill 4 stages"):
        simulate(plain_costs(np.ones((4, 2)), np.ones((4, 2))), 8, group=2)


def test_trace_has_one_complete_event_a_pass():
    timeline = simulate(plain_costs(np.ones(2), 2 * np.ones(2)), 3)
    events = chrome_trace(timeline, names=["first"])["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == 2 * 3 * 2
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(timeline.seconds * 1e6)
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["first", "stage 1"]


@pytest.mark.parametrize(
    ("stages", "chunks", "micro", "group", "combined"),
    [(1, 1, 3, 1, False), (1, 3, 4, 2, False), (4, 1, 2, 4, False), (4, 1, 9, 4, True), (4, 3, 8, 4, False),
     (3, 2, 7, 5, True), (8, 2, 5, 8, False)],
)  # fmt: skip
def test_the_length_alone_is_that_of_the_simulated_passes(stages, chunks, micro, group, combined):
    rng = np.random.default_rng(stages * 100 + micro)
    forward, backward, more, most = rng.uniform(0.5, 2.0, size=(4, stages, chunks))
    costs = PipelineCosts(
        forward=forward, backward=backward, alone_forward=forward + more, alone_backward=backward + most,
        message=0.07, blocking=0.4,
    )  # fmt: skip
    whole = simulate(costs, micro, group=group, combined=combined).seconds
    assert step_length(costs, micro, group, combined=combined) == whole
