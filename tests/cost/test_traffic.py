"""Bytes sent in a step, against sums worked by hand from the models' published sizes."""

from __future__ import annotations

import pytest

import meshwright as mw
from meshwright.api.picturing import grid_of, pipeline_of
from meshwright.cost.traffic import Traffic, traffic
from meshwright.planner.answer import layout_of

LLAMA_3_8B = 8_030_261_248
"""Parameters of meta-llama/Meta-Llama-3-8B (its safetensors index)."""


def rows(model: str, gpus: str, **options: object) -> dict[str, Traffic]:
    answer = mw.estimate(model, gpus, mw.Options(**options))  # type: ignore[arg-type]
    assert answer.valid, answer.findings
    found = traffic(
        answer.question, layout_of(answer), answer.execution, pipeline_of(answer), grid_of(answer)
    )
    return {row.group: row for row in found}


def test_data_parallel_sends_gradients_and_parameters_once() -> None:
    """Reduce-scatter of 4-byte gradients and all-gather of 2-byte weights over 8 ranks."""
    found = rows("llama-3-8b", "8xH100", global_batch=8, execution={"fsdp": False})
    assert set(found) == {"dp-cp"}
    assert found["dp-cp"].near == pytest.approx(LLAMA_3_8B * 6 * 7 / 8)
    assert found["dp-cp"].far == 0.0


def test_a_ring_over_two_nodes_leaves_each_once_in_eight_hops() -> None:
    found = rows("llama-3-8b", "16xH100", global_batch=16, execution={"fsdp": False})
    assert found["dp-cp"].far / (found["dp-cp"].far + found["dp-cp"].near) == pytest.approx(1 / 8)


def test_tensor_parallel_gathers_and_scatters_around_two_regions_a_layer() -> None:
    """32 layers x 2 regions + the head; 5 transfers of seq x hidden x 2 bytes, half of it sent at tp 2."""
    found = rows("llama-3-8b", "2xH100", tp=2, seq_length=4096, global_batch=1, recompute=None)
    assert found["tp"].near == pytest.approx(65 * 5 * 4096 * 4096 * 2 / 2)


def test_pipeline_messages_cross_each_boundary_both_ways() -> None:
    """One boundary between two stages: an activation and a gradient, so one message a rank on average."""
    found = rows("llama-3-8b", "2xH100", pp=2, seq_length=4096, global_batch=4)
    assert found["pp"].near == pytest.approx(4 * 4096 * 4096 * 2)


def test_experts_send_what_is_not_their_own() -> None:
    """Mixtral 8x7B: 32 layers, top 2, hidden 4096; dispatch and combine, forward and backward."""
    found = rows("mixtral-8x7b", "8xH100", ep=8, seq_length=4096, global_batch=8)
    tokens = 4096
    assert found["ep"].near == pytest.approx(4 * 32 * 2 * tokens * 4096 * 2 * 7 / 8)


def test_groups_that_only_some_leave_their_domain_count_on_average() -> None:
    """GB200 NVL72: of 8 expert groups of 16 on 128 GPUs only that of ranks 64 to 79 spans two racks: each of
    its members finds 8 of its 15 peers in the other."""
    found = rows("qwen3-235b-a22b", "128xGB200", pp=8, ep=16, global_batch=1024)
    share = found["ep"].far / (found["ep"].far + found["ep"].near)
    assert share == pytest.approx(8 / 15 / 8)
