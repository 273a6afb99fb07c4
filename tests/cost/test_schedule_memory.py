"""Micro-batches in flight, the timeline of a stage, peaks told apart, host memory, limits."""

import numpy as np
import pytest

from meshwright.cost.host import host_memory
from meshwright.cost.limits import largest_micro_batch, longest_sequence
from meshwright.cost.peaks import peaks
from meshwright.cost.stages import in_flight
from meshwright.cost.timeline import timeline
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout

GIB = 2**30


def test_1f1b_holds_pp_less_the_stage(ask):
    asked = ask("llama-3-8b", "4xH100", Layout(pp=4), batch=16)
    assert in_flight(asked.table, asked.view)[0, :, 0].tolist() == [4, 3, 2, 1]


def test_few_micro_batches_are_all_that_can_be_in_flight(ask):
    asked = ask("llama-3-8b", "4xH100", Layout(pp=4), batch=2)
    assert in_flight(asked.table, asked.view)[0, :, 0].tolist() == [2, 2, 2, 1]


def test_interleaving_holds_its_warm_up_and_one_more(ask):
    """pp 4, vpp 2: 2*3 + 4 + 1 = 11 passes on rank 0, of which chunk 0 has 7; 5 on the last rank."""
    asked = ask("llama-3-8b", "4xH100", Layout(pp=4, vpp=2), batch=16)
    held = in_flight(asked.table, asked.view)[0]
    assert held.sum(axis=1).tolist() == [11, 9, 7, 5]
    assert held[0].tolist() == [7, 4]


def test_a_larger_group_lets_more_chunks_run_ahead(ask):
    """microbatch_group_size_per_vp_stage 6 instead of pp 4: 2*3 + 6 + 1 passes."""
    asked = ask("llama-3-8b", "4xH100", Layout(pp=4, vpp=2), batch=24, execution=Execution(vp_group=6))
    assert in_flight(asked.table, asked.view)[0, 0].sum() == 13


@pytest.mark.parametrize(
    ("model", "layout", "batch"),
    [
        ("llama-3-8b", Layout(tp=2, sp=True), 8),
        ("llama-3-8b", Layout(pp=4), 16),
        ("llama-3-8b", Layout(pp=4), 2),
        ("llama-3-8b", Layout(pp=4, vpp=2), 16),
        ("qwen3-30b-a3b", Layout(pp=2, vpp=4, ep=4), 16),
    ],
)
def test_the_highest_point_of_a_timeline_is_the_peak(ask, model, layout, batch):
    asked = ask(model, "8xH100", layout, batch=batch * layout.dp(8))
    for stage in range(layout.pp):
        line = timeline(asked.question, asked.table, asked.view, stage=stage)
        assert line.highest == pytest.approx(float(asked.memory.allocated[0, stage]))


def test_a_timeline_rises_in_the_warm_up_and_ends_where_it_began(ask):
    asked = ask("llama-3-8b", "8xH100", Layout(pp=4), batch=32)
    line = timeline(asked.question, asked.table, asked.view, stage=0)
    assert len(line) == 2 * 16
    assert line.phase[:3] == ("warm-up",) * 3
    assert line.phase[-3:] == ("cool-down",) * 3
    assert (np.diff(line.held[:4]) > 0).all()
    assert line.held[-1] == pytest.approx(line.floor)
    assert sorted(line.microbatch[line.forward].tolist()) == list(range(16))


def test_a_stage_that_is_not_there_is_named(ask):
    asked = ask("llama-3-8b", "8xH100", Layout(pp=4), batch=32)
    with pytest.raises(QuestionError, match="stages 0 to 3"):
        timeline(asked.question, asked.table, asked.view, stage=4)


def test_iteration_2_needs_adams_moments_more(ask):
    """8 bytes a parameter over 8 replicas, where the peak is in the backward pass."""
    asked = ask("llama-3-8b", "8xH100", Layout(), seq=8192)
    told = peaks(asked.question, asked.table, asked.view)
    moments = 8 * asked.memory.parameters[0, 0] / 8
    assert told.steady[0, 0] - told.first[0, 0] == pytest.approx(moments)
    assert told.steady[0, 0] == asked.memory.allocated[0, 0]
    assert told.evaluation[0, 0] < told.first[0, 0]
    assert told.save[0, 0] < told.evaluation[0, 0]


def test_an_offloaded_optimizer_takes_16_bytes_a_parameter_of_host_memory(ask):
    asked = ask("llama-3-8b", "8xH100", Layout(), execution=Execution(optimizer_offload=1.0))
    host = host_memory(asked.question, asked.table, asked.view)
    assert host.optimizer[0, 0] == pytest.approx(16 * asked.memory.parameters[0, 0] / 8)
    assert host.node[0] == pytest.approx(8 * host.total[0].max())


def test_optimizer_offload_frees_as_much_as_was_measured(ask):
    """Qwen3-30B-A3B, TP2 PP2 EP4 on 16 H100: 15.2 GB between none and all of it.

    Source: Megatron-Bridge, skills/nemo-mbridge-perf-cpu-offloading/card.yaml (47.2 and 32.0 GB).
    """
    layout = Layout(tp=2, pp=2, ep=4, sp=True)
    held = [
        ask("qwen3-30b-a3b", "16xH100", layout, execution=Execution(optimizer_offload=share))
        .memory.terms["optimizer"][0]
        .max()
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert (held[0] - held[4]) / 1e9 == pytest.approx(15.2, rel=0.05)
    assert np.allclose(np.diff(held), (held[4] - held[0]) / 4)


def test_the_longest_sequence_is_the_last_that_fits(ask):
    layout, execution = Layout(tp=8, pp=4, sp=True), Execution(recompute=Recompute(granularity="full"))
    asked = ask("llama-3-70b", "64xH100", layout, execution=execution)
    limit = longest_sequence(asked.question, asked.table)
    assert limit.fits % (128 * 8) == 0
    assert limit.fits <= limit.may_fit

    def verdict(seq: int) -> str:
        return str(ask("llama-3-70b", "64xH100", layout, seq=seq, execution=execution).memory.verdicts()[0])

    assert verdict(limit.fits) == "fits"
    assert verdict(limit.fits + 128 * 8) != "fits"


def test_the_largest_micro_batch_is_the_last_that_fits(ask):
    asked = ask("llama-3-8b", "8xH100", Layout(tp=8, sp=True), batch=64)
    limit = largest_micro_batch(asked.question, asked.table)

    def verdict(mbs: int) -> str:
        layout = Layout(tp=8, sp=True, mbs=mbs)
        return str(ask("llama-3-8b", "8xH100", layout, batch=64 * mbs).memory.verdicts()[0])

    assert limit.fits > 1
    assert verdict(limit.fits) == "fits"
    assert verdict(limit.fits + 1) != "fits"


def test_nothing_fits_where_the_state_alone_does_not(ask):
    asked = ask("llama-3-70b", "8xH100", Layout())
    assert longest_sequence(asked.question, asked.table).may_fit == 0


def test_an_uneven_layout_is_priced_with_its_own_stages(ask):
    """8 layers as 1, 2, 2, 3: the last stage is the heaviest, not the average one."""
    from meshwright.model.catalog import find
    from meshwright.planner.batch import with_layers

    pipeline = PipelineLayout.first_last(8, 4, first=1, last=3)
    model = with_layers(find("llama-3-8b"), 8)
    asked = ask(model, "4xH100", Layout(pp=4), batch=4, pipeline=pipeline)
    held = asked.memory.parameters[0]
    assert int(held.argmax()) == 3
    assert held[3] - held[2] == pytest.approx(218112000 + 128256 * 4096 + 4096)
