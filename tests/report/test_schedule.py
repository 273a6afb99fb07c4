"""Passes laid out in time take as long as the closed forms of the papers say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshwright as mw
from meshwright.api.picturing import timeline
from meshwright.cost.schedule import plain_costs
from meshwright.report.passes import Tail, Timeline
from meshwright.report.schedule import lay_out, microbatches_drawn


def laid(pp: int, vpp: int, micro: int, tail: tuple[Tail, ...] = ()) -> Timeline:
    """Forward 1 s and backward 2 s for every chunk, instant messages."""
    ones = np.ones((pp, vpp))
    return lay_out(plain_costs(ones, 2 * ones), micro, micro, tail=tail)


@pytest.mark.parametrize(("pp", "micro"), [(2, 4), (4, 8), (8, 8), (4, 32), (1, 3)])
def test_1f1b_idles_p_minus_1_micro_batches(pp: int, micro: int) -> None:
    """Narayanan et al. 2021 (arXiv:2104.04473), section 2.2: bubble (p-1)*(t_f + t_b)."""
    assert laid(pp, 1, micro).end == pytest.approx((micro + pp - 1) * 3.0)


@pytest.mark.parametrize(("pp", "vpp", "micro"), [(4, 2, 8), (4, 4, 16), (2, 3, 4)])
def test_interleaving_divides_the_bubble_by_the_chunks(pp: int, vpp: int, micro: int) -> None:
    """The same, section 2.3: (p-1)*(t_f + t_b)/v; here each chunk takes 3 s, so a stage takes 3*v."""
    assert laid(pp, vpp, micro).end == pytest.approx(micro * vpp * 3.0 + (pp - 1) * 3.0)


def test_no_rank_does_two_things_at_once_and_no_pass_runs_before_its_input() -> None:
    found = laid(4, 2, 8)
    ends = {(p.backward, p.chunk * 4 + p.rank, p.microbatch): p.end for p in found.passes}
    for rank in range(4):
        own = found.of_rank(rank)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(own))
    for one in found.passes:
        stage = one.chunk * 4 + one.rank
        before = (one.backward, stage + (1 if one.backward else -1), one.microbatch)
        if before in ends:
            assert ends[before] <= one.start + 1e-9
    assert len(found.passes) == 2 * 4 * 2 * 8


def test_what_is_done_once_comes_after_the_last_pass() -> None:
    tail = (Tail(words="optimizer", communication=False, seconds=0.5),)
    found = laid(1, 1, 1, tail)
    assert found.end == 3.0
    assert found.whole == 3.5
    assert found.idle == 0.0


@pytest.mark.parametrize(("pp", "vpp", "micro"), [(64, 8, 4096), (1, 1, 100_000), (16, 4, 16)])
def test_long_steps_draw_whole_groups_of_some_micro_batches(pp: int, vpp: int, micro: int) -> None:
    drawn = microbatches_drawn(pp, vpp, micro, pp)
    assert pp <= drawn <= micro
    assert vpp == 1 or drawn % pp == 0


@pytest.mark.parametrize(
    "words",
    [
        {"tp": 2, "pp": 4, "global_batch": 16},
        {"tp": 2, "pp": 2, "vpp": 2, "global_batch": 8},
        {"tp": 4, "global_batch": 8},
        {"pp": 4, "global_batch": 16, "execution": {"fsdp": False, "overlaps": frozenset()}},
    ],
)
def test_a_drawn_step_takes_as_long_as_the_answer_says(words: dict[str, object]) -> None:
    """The picture, the trace and the step time are one simulation."""
    answer = mw.estimate("llama-3-8b", "8xH100", mw.Options(**words))
    assert answer.time is not None
    drawn = timeline(answer)
    assert drawn.drawn == drawn.num_microbatches
    assert drawn.whole == pytest.approx(answer.time.step_seconds, rel=1e-9)


def test_overlapped_expert_exchange_is_drawn_with_its_longer_warm_up() -> None:
    options = mw.Options(
        pp=2, vpp=2, ep=4, global_batch=32, execution={"overlaps": frozenset({"dp", "ep"})}, recompute=None
    )
    answer = mw.estimate("qwen3-30b-a3b", "8xH100", options)
    assert answer.time is not None
    first = timeline(answer).of_rank(0)
    kinds = [one.backward for one in first]
    assert kinds.index(True) == 2 * (2 - 1) + (2 - 1) * 2 + 1 + 1
