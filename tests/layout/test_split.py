"""The automatic pipeline split against brute force: every legal split of small models."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from meshwright.errors import QuestionError
from meshwright.job.spec import Recompute
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.split import Split, SplitCosts, StageLimits, best_split, default_costs
from meshwright.layout.stages import block_kinds, count_blocks, describe_kinds
from meshwright.model.load import load_model
from meshwright.model.spec import Attention, Layer, Mlp, Model

ATTENTION = Attention(heads=8, kv_heads=8, head_dim=64)
ODD_DEPTHS = (43, 46, 47, 61, 62, 78, 94, 126)


def small_model(pattern: list[int], mtp: int = 0) -> Model:
    kinds = tuple(Layer(mixer=ATTENTION, ffn=Mlp(ffn=64 * (n + 1))) for n in range(max(pattern) + 1))
    return Model(
        name="small", family="test", hidden=512, kinds=kinds, pattern=tuple(pattern), vocab_size=1000,
        mtp=(0,) * mtp,
    )  # fmt: skip


def costs_of(
    model: Model, layers: list[float], ends: dict[str, float], apart: float | None = None
) -> SplitCosts:
    """Seconds of each kind as given; bytes proportional, so that memory limits mean something."""
    seconds = np.array(
        [
            layers[kind.layer or 0] if kind.role == "layer" else ends.get(kind.role, 0.0)
            for kind in describe_kinds(model)
        ]
    )
    return SplitCosts(
        seconds=seconds, static_bytes=3 * seconds, activation_bytes=seconds, mtp_apart_bytes=apart
    )


def every_split(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """All ways to fill the chunks: at least one layer each, none needed on the first and the last."""
    low = [0] + [1] * (chunks - 2) + [0]
    spare = layers - sum(low)
    for cuts in itertools.combinations(range(spare + chunks - 1), chunks - 1):
        edges = (-1, *cuts, spare + chunks - 1)
        yield tuple(
            high - before - 1 + least for before, high, least in zip(edges, edges[1:], low, strict=False)
        )


def price(
    model: Model, layers: tuple[int, ...], pp: int, costs: SplitCosts, in_flight: np.ndarray
) -> np.ndarray:
    """Seconds and bytes of each rank, [2, pp], from the counts of blocks that the layout holds."""
    chunks = [["t"] * count for count in layers]
    chunks[0].insert(0, "E")
    chunks[-1] += ["m"] * len(model.mtp) + ["L"]
    counts = count_blocks(model, [tuple(chunk) for chunk in chunks], Recompute()).astype(float)
    held = counts @ costs.static_bytes + in_flight.T.reshape(-1) * (counts @ costs.activation_bytes)
    grid = np.stack([counts @ costs.seconds, held]).reshape(2, -1, pp)
    return grid.sum(axis=1)


def brute_force(
    model: Model, pp: int, vpp: int, costs: SplitCosts, limits: StageLimits | None
) -> float | None:
    in_flight = np.ones((pp, vpp)) if limits is None else limits.in_flight
    best = None
    for layers in every_split(model.num_layers, pp * vpp):
        load, held = price(model, layers, pp, costs, in_flight)
        if limits is None or (held <= limits.memory * (1 + 1e-9)).all():
            best = float(load.max()) if best is None else min(best, float(load.max()))
    return best


def drawn(seed: int, pp: int, kinds: int) -> tuple[Model, SplitCosts, StageLimits | None]:
    dice = random.Random(seed)
    model = small_model(
        [dice.randrange(kinds) for _ in range(dice.randint(pp + 1, 9))], mtp=dice.choice((0, 1))
    )
    times = [dice.choice((1.0, 1.3, 0.7, 2.0)) for _ in model.kinds]
    ends = {"embedding": dice.choice((0.0, 0.5)), "head": dice.choice((0.4, 2.5)), "mtp": 1.6}
    limits = None
    if dice.random() < 0.6:
        memory = np.array([dice.uniform(12, 40) for _ in range(pp)])
        limits = StageLimits(memory=memory, in_flight=np.arange(pp, 0, -1, dtype=float)[:, None])
    return model, costs_of(model, times, ends), limits


@pytest.mark.parametrize("seed", range(60))
def test_one_chunk_a_rank_is_optimal(seed: int) -> None:
    pp = 2 + seed % 3
    model, costs, limits = drawn(seed, pp, kinds=3)
    found = best_split(model, pp, 1, costs, limits)
    wanted = brute_force(model, pp, 1, costs, limits)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert found.slowest == pytest.approx(wanted)
        assert found.gap == 0


@pytest.mark.parametrize("seed", range(40))
def test_equal_layers_are_optimal_on_interleaved_chunks_within_memory(seed: int) -> None:
    pp, vpp = ((2, 2), (3, 2), (2, 3))[seed % 3]
    dice = random.Random(seed)
    model = small_model([0] * dice.randint(pp * vpp, 11), mtp=dice.choice((0, 1)))
    costs = costs_of(model, [1.0], {"embedding": 0.3, "head": dice.choice((0.4, 2.5)), "mtp": 1.6})
    memory = np.full(pp, dice.choice((30.0, 45.0, 60.0, np.inf)))
    limits = StageLimits(memory=memory, in_flight=np.array([[float(2 * vpp - v) for v in range(vpp)]] * pp))
    found, wanted = best_split(model, pp, vpp, costs, limits), brute_force(model, pp, vpp, costs, limits)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert found.slowest == pytest.approx(wanted)
        assert found.gap == 0


def is_near_even(split: tuple[int, ...], head: float, longest: float) -> bool:
    """Between half and twice an equal share; a last chunk whose head weighs half a share may hold none."""
    share = sum(split) / len(split)
    bound = split[:-1] if head > longest * share / 2 else split
    return max(split) <= max(2, np.ceil(2 * share)) and min(bound) >= np.ceil(share / 2)


@pytest.mark.parametrize("seed", range(40))
def test_unequal_layers_on_interleaved_chunks_are_optimal_among_near_even_splits(seed: int) -> None:
    pp, vpp = ((2, 2), (3, 2), (2, 3), (4, 2))[seed % 4]
    dice = random.Random(seed)
    model = small_model([dice.randrange(3) for _ in range(dice.randint(pp * vpp, 12))])
    head = dice.choice((0.3, 2.0))
    costs = costs_of(model, [1.0, 1.4, 0.6], {"head": head})
    found = best_split(model, pp, vpp, costs)
    assert found is not None
    near_even = [split for split in every_split(model.num_layers, pp * vpp) if is_near_even(split, head, 1.4)]
    wanted = min(float(price(model, split, pp, costs, np.ones((pp, vpp)))[0].max()) for split in near_even)
    assert found.bound <= wanted * (1 + 1e-9)
    assert found.slowest == pytest.approx(wanted)
    load = price(model, found.layers, pp, costs, np.ones((pp, vpp)))[0]
    assert load.max() == pytest.approx(found.slowest)


def deep_model(depth: int, mtp: int) -> Model:
    """Three cheap layers first, as DeepSeek-V3 has them, then one kind."""
    return small_model([0] * 3 + [1] * (depth - 3), mtp)


@pytest.mark.parametrize("depth", ODD_DEPTHS)
@pytest.mark.parametrize(
    ("pp", "vpp"), [(4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (16, 2), (4, 4), (8, 4), (8, 3)]
)
def test_odd_depths_have_a_split_within_one_percent_of_the_bound(depth: int, pp: int, vpp: int) -> None:
    model = deep_model(depth, mtp=1)
    for ends in ({"head": 1.5, "mtp": 2.5}, {"head": 0.4, "mtp": 1.4, "embedding": 0.3}):
        for layers in ([1.0, 1.0], [0.8, 1.3]):
            found = best_split(model, pp, vpp, costs_of(model, layers, ends))
            if pp * vpp - 2 > depth:
                assert found is None
                continue
            assert found is not None
            assert found.gap <= 0.01
            assert sum(found.layers) == depth
            assert min(found.layers[1:-1], default=1) >= 1


def chunk_by_chunk(model: Model, pp: int, vpp: int, costs: SplitCosts) -> float:
    """Slowest rank when the slowest *chunk* is made fastest, as a contiguous division does it."""
    flat = best_split(model, pp * vpp, 1, costs)
    assert flat is not None
    return float(price(model, flat.layers, pp, costs, np.ones((pp, vpp)))[0].max())


def test_ranks_are_evened_out_where_evening_out_chunks_loses_a_tenth() -> None:
    model = small_model([0] * 61, mtp=1)
    costs = costs_of(model, [1.0], {"head": 1.5, "mtp": 2.5})
    lost = []
    for pp, vpp in ((8, 2), (8, 4), (16, 2), (16, 3), (4, 8)):
        found = best_split(model, pp, vpp, costs)
        assert found is not None
        lost.append(chunk_by_chunk(model, pp, vpp, costs) / found.slowest)
    assert min(lost) >= 1.0 - 1e-9
    assert max(lost) > 1.1


def test_layers_move_away_from_a_rank_that_is_short_of_memory() -> None:
    model = small_model([0] * 16)
    costs = costs_of(model, [1.0], {"head": 0.0})
    roomy = StageLimits(memory=np.full(4, 1e9), in_flight=np.array([[4.0], [3.0], [2.0], [1.0]]))
    tight = StageLimits(memory=np.array([22.0, 1e9, 1e9, 1e9]), in_flight=roomy.in_flight)
    even, moved = best_split(model, 4, 1, costs, roomy), best_split(model, 4, 1, costs, tight)
    assert even is not None
    assert moved is not None
    assert even.layers == (4, 4, 4, 4)
    assert moved.layers[0] == 3  # 3 layers x (3 bytes static + 4 in flight x 1 byte) = 21
    assert max(moved.layers) == 5


def test_memory_that_no_split_respects_gives_none() -> None:
    model = small_model([0] * 8)
    costs = costs_of(model, [1.0], {"head": 0.0})
    assert (
        best_split(model, 4, 1, costs, StageLimits(memory=np.full(4, 5.0), in_flight=np.ones((4, 1)))) is None
    )
    assert (
        best_split(model, 2, 2, costs, StageLimits(memory=np.full(2, 5.0), in_flight=np.ones((2, 2)))) is None
    )


def test_unequal_layers_respect_memory_on_interleaved_chunks() -> None:
    model = small_model([0, 1] * 12)
    costs = costs_of(model, [1.0, 1.4], {"head": 1.0})
    limits = StageLimits(memory=np.array([26.0, 60.0, 60.0, 60.0]), in_flight=np.ones((4, 2)))
    found = best_split(model, 4, 2, costs, limits)
    assert found is not None
    load, held = price(model, found.layers, 4, costs, limits.in_flight)
    assert (held <= limits.memory * (1 + 1e-9)).all()
    free = best_split(model, 4, 2, costs)
    assert free is not None
    assert price(model, free.layers, 4, costs, limits.in_flight)[1][0] > 26.0
    assert load.max() >= free.slowest


def test_mtp_leaves_the_loss_only_where_that_is_allowed_and_faster() -> None:
    """61 layers on 32 ranks: beside MTP the loss stage is by far the slowest."""
    model = small_model([0] * 61, mtp=1)
    ends = {"head": 1.5, "mtp": 2.6}
    beside = PipelineLayout.automatic(model, 32, 1, costs_of(model, [1.0], ends))
    apart = PipelineLayout.automatic(model, 32, 1, costs_of(model, [1.0], ends, apart=0.0))
    assert beside is not None
    assert apart is not None
    assert beside.string() == "Et|(tt|)*30mL"
    assert apart.string().endswith("m|L")
    apart.validate(61, 1)


def test_block_recompute_charges_the_first_layers_of_each_chunk() -> None:
    model = small_model([0] * 6)
    names = block_kinds(model)
    seconds = np.array([{"layer0": 1.0, "layer0+recompute": 2.0}.get(name, 0.0) for name in names])
    costs = SplitCosts(seconds=seconds, static_bytes=0 * seconds, activation_bytes=0 * seconds)
    found = best_split(
        model, 2, 1, costs, recompute=Recompute(granularity="full", method="block", num_layers=2)
    )
    assert found is not None
    assert (found.layers, found.slowest) == ((3, 3), 5.0)
    whole = best_split(model, 2, 1, costs, recompute=Recompute(granularity="full"))
    assert whole is not None
    assert whole.slowest == 6.0


def test_too_few_layers_or_one_rank_with_chunks_have_no_split() -> None:
    model = small_model([0] * 5)
    costs = default_costs(model)
    assert best_split(model, 8, 1, costs) is None
    assert best_split(model, 1, 2, costs) is None
    assert best_split(model, 7, 1, costs) is not None  # embedding and loss have stages of their own


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_costs_that_are_no_costs_are_refused(value: float) -> None:
    model = small_model([0] * 4)
    good = default_costs(model)
    with pytest.raises(QuestionError, match="seconds"):
        best_split(model, 2, 1, replace(good, seconds=good.seconds + value))


def test_head_weight_of_llama_3_70b() -> None:
    """Vocabulary 128256 x 8192 over the 855,638,016 weights of a layer's matrices: 1.228."""
    model = load_model("llama3-70b")
    weights = dict(zip(block_kinds(model), default_costs(model).seconds, strict=True))
    layer = 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672
    assert layer == 855_638_016
    assert weights["head"] == pytest.approx(128256 * 8192 / layer)
    assert weights["embedding"] == 0


def test_typical_splits_take_milliseconds() -> None:
    model = deep_model(61, mtp=1)
    equal = costs_of(model, [1.0, 1.0], {"head": 1.5, "mtp": 2.5})
    unequal = costs_of(model, [0.8, 1.3], {"head": 1.5, "mtp": 2.5})
    for costs, pp, vpp, limit in (
        (equal, 16, 1, 0.02),
        (equal, 8, 4, 0.02),
        (unequal, 16, 1, 0.02),
        (unequal, 8, 4, 0.1),
    ):
        spent = min(timed(model, pp, vpp, costs) for _ in range(3))
        assert spent < limit, (pp, vpp)


def timed(model: Model, pp: int, vpp: int, costs: SplitCosts) -> float:
    begun = time.process_time()
    assert isinstance(best_split(model, pp, vpp, costs), Split)
    return time.process_time() - begun


def test_a_very_deep_model_does_not_hang() -> None:
    begun = time.process_time()
    assert best_split(small_model([0] * 20_000), 512, 1, default_costs(small_model([0] * 20_000))) is not None
    model = small_model([0, 1] * 1500)
    assert best_split(model, 64, 1, costs_of(model, [1.0, 1.5], {"head": 2.0})) is not None
    assert time.process_time() - begun < 10
