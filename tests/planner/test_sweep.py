"""Several numbers of GPUs side by side: reading them, scaling, fronts, objectives."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job
from meshwright.model.catalog import find
from meshwright.planner.economics import Rates
from meshwright.planner.objectives import choose, front, keep_for, ordered, read_objective, time_and_memory
from meshwright.planner.search import search
from meshwright.planner.space import Axes, free_flags
from meshwright.planner.sweep import (
    auto_clusters,
    auto_kind,
    jobs,
    pareto,
    parse_clusters,
    scaling,
    sequences,
    strong,
    sweep,
    weak,
)

AXES = Axes(flags=free_flags(Execution()))
ASKED = Question(
    model=find("llama-3-8b"), cluster=parse_cluster("8xH100"), job=Job(seq_length=4096, global_batch=256)
)


@pytest.fixture(scope="module")
def points():
    clusters = parse_clusters("8,16,32,64xH100")
    return sweep([(one, AXES) for one in strong(ASKED, clusters)], rates=Rates(price=2.0), tokens=1e12)


@pytest.mark.parametrize(
    ("text", "worlds", "gpus"),
    [
        ("64,128,256xH100", [64, 128, 256], {"H100-80GB-SXM"}),
        ("64xH100, 32xB200", [64, 32], {"H100-80GB-SXM", "B200-SXM"}),
        ("1,024xH100", [1024], {"H100-80GB-SXM"}),
        ("8, 16 x A100-80GB", [8, 16], {"A100-80GB-SXM"}),
        ("2x8xH100,4x8xH100", [16, 32], {"H100-80GB-SXM"}),
        ("16,32xRTX-PRO-6000", [16, 32], {"RTX-PRO-6000-Server-96GB"}),
    ],
)
def test_lists_of_clusters(text: str, worlds: list[int], gpus: set[str]):
    found = parse_clusters(text)
    assert [cluster.world for cluster in found] == worlds
    assert {cluster.gpu.name for cluster in found} == gpus


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64,128", "64, 128 GPUs of which kind"),
        ("64xH100,32", "32 GPUs of which kind"),
        ("64xH10", "unknown GPU"),
        ("64,,128xH100", "is not a cluster"),
        (",".join(["8"] * 100) + "xH100", "at most 64"),
        ("9" * 5000, "not a number|of which kind"),
    ],
)
def test_lists_that_are_none(text: str, says: str):
    with pytest.raises(QuestionError, match=says):
        parse_clusters(text)


def test_auto_names_a_kind_or_none():
    assert (auto_kind("auto"), auto_kind("autoxH100"), auto_kind("64xH100")) == ("", "H100", None)


def test_auto_starts_with_the_fewest_that_fit_and_doubles():
    seventy = replace(ASKED, model=find("llama-3-70b"))
    worlds = [cluster.world for cluster in auto_clusters(seventy, AXES, most=128)]
    assert all(b == 2 * a for a, b in itertools.pairwise(worlds))
    assert worlds[-1] <= 128
    assert search(strong(seventy, [parse_cluster(f"{worlds[0]}xH100")])[0], AXES).fitting
    assert auto_clusters(replace(ASKED, model=find("llama-3.1-405b")), AXES, most=8) == ()


def test_strong_scaling_loses_efficiency_and_never_speed(points):
    rows = scaling(points)
    assert [row.point.gpus for row in rows] == [8, 16, 32, 64]
    assert (rows[0].speedup, rows[0].efficiency) == (1.0, 1.0)
    assert all(a.speedup < b.speedup <= b.point.gpus / 8 * 1.05 for a, b in itertools.pairwise(rows))


def test_weak_scaling_holds_the_batch_of_a_gpu():
    asked = weak(ASKED, parse_clusters("8,16,64xH100"))
    assert [one.job.global_batch for one in asked] == [256, 512, 2048]
    rows = scaling(sweep([(one, AXES) for one in asked]))
    assert all(0.8 < row.efficiency < 1.2 for row in rows)


def test_what_if_over_the_sequence_holds_the_tokens_of_a_step():
    asked = sequences(ASKED, [2048, 8192, 32768])
    assert {one.job.tokens_per_step for one in asked} == {4096 * 256}
    assert [one.job.global_batch for one in sequences(ASKED, [2048, 8192], hold="batch")] == [256, 256]
    speeds = [point.tokens_per_second for point in sweep([(one, AXES) for one in asked])]
    assert speeds == sorted(speeds, reverse=True)  # attention grows with the sequence
    with pytest.raises(QuestionError, match="sequence length is 0"):
        sequences(ASKED, [0])


def test_numerics_vary_only_as_several_questions():
    asked = jobs(ASKED, {"precision": ("bf16", "fp8-current"), "global_batch": (128, 256)})
    assert [(one.job.precision, one.job.global_batch) for one in asked] == [
        ("bf16", 128), ("bf16", 256), ("fp8-current", 128), ("fp8-current", 256),
    ]  # fmt: skip
    with pytest.raises(QuestionError, match="did you mean precision"):
        jobs(ASKED, {"precison": ("bf16",)})
    with pytest.raises(QuestionError, match="unknown precision"):
        jobs(ASKED, {"precision": ("bf17",)})


def test_a_front_has_what_none_beats_and_nothing_else():
    rng = np.random.default_rng(1)
    a, b = rng.random(200), rng.random(200)
    kept = set(front(a, b).tolist())
    for row in range(200):
        beaten = ((a <= a[row]) & (b <= b[row]) & ((a < a[row]) | (b < b[row]))).any()
        assert (row in kept) == (not beaten)


def test_the_front_of_time_and_memory_runs_from_the_fastest_to_the_leanest():
    found = search(ASKED, AXES, keep=math.inf)
    rows = time_and_memory(found)
    step, peak = found.step[rows], found.peak[rows]
    assert (step[0], peak[-1]) == (found.step.min(), found.peak.min())
    assert (np.diff(step) > 0).all()
    assert (np.diff(peak) < 0).all()


def test_each_objective_chooses_what_it_names(points):
    assert choose(points, "throughput").gpus == 64
    assert choose(points, "fewest-gpus").gpus == 8
    assert choose(points, "memory") is min(points, key=lambda point: point.peak)
    cheapest = choose(points, "cost")
    assert cheapest.economics.total_cost <= 1.05 * min(point.economics.total_cost for point in points)
    assert choose(points, "tokens-per-dollar").gpus <= cheapest.gpus
    assert [point.gpus for point in pareto(points)] == [64, 32, 16, 8]
    assert pareto(points, "cost")[0].gpus == 64


def test_the_memory_objective_puts_the_leanest_layout_first():
    found = search(ASKED, AXES, keep=keep_for("memory"))
    lean = ordered(found, "memory")
    assert lean.peak[0] <= found.peak.min() * 1.01
    assert ordered(found, "throughput") is found
    with pytest.raises(QuestionError, match="did you mean throughput"):
        read_objective("thruput")


def test_a_point_that_does_not_fit_has_no_numbers():
    (point,) = sweep([(replace(ASKED, model=find("llama-3.1-405b")), AXES)])
    assert not point.fits
    assert point.as_dict()["step_seconds"] is None
    assert choose([point], "throughput") is None
    assert scaling([point]) == ()
