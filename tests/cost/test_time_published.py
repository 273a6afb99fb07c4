"""Published pairs of runs that differ in one thing: direction and size of the difference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cost.asking_time import seconds

from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.planner.batch_time import SHORT_SAMPLES

L70 = {
    "seq": 4096,
    "batch": 32,
    "precision": "fp8-current",
    "task": "sft",
    "grad_dtype": "bf16",
    "packing": SHORT_SAMPLES,
}
L70_FLAGS = Execution(overlaps=frozenset({"tp"}), cuda_graphs="mlp")
Q30 = {"seq": 4096, "batch": 1024, "grad_dtype": "bf16"}


def recomputing(*modules: str) -> Execution:
    return Execution(
        overlaps=frozenset({"tp"}),
        cuda_graphs="mlp",
        recompute=Recompute(granularity="selective", modules=modules),
    )


def llama(layout: Layout, flags: Execution = L70_FLAGS) -> float:
    return seconds("llama-3-70b", "32xH100", layout, execution=flags, **L70)


def qwen(dispatcher: str, graphs: str, *overlaps: str) -> float:
    flags = Execution(dispatcher=dispatcher, cuda_graphs=graphs, overlaps=frozenset(overlaps))
    return seconds("qwen3-30b-a3b", "16xH100", Layout(ep=16), execution=flags, **Q30)


BASE = Layout(tp=4, pp=4, vpp=5, sp=True)


@pytest.mark.parametrize(
    ("changed", "published"),
    [
        (lambda: llama(Layout(tp=4, pp=8, vpp=5, sp=True)), 704 / 668.0),
        (lambda: llama(BASE, recomputing("mlp")), 704 / 593.6),
        (lambda: llama(BASE, recomputing("mlp", "core_attn")), 704 / 586.8),
        (lambda: llama(BASE, recomputing("core_attn", "layernorm")), 704 / 702.0),
    ],
    ids=["pp 8", "recompute mlp", "recompute mlp and core_attn", "recompute core_attn and layernorm"],
)
def test_one_change_to_a_70b_on_32_h100(changed, published):
    """Source: Megatron Bridge, skill nemo-mbridge-perf-memory-tuning (704 TFLOP/s a GPU before)."""
    assert changed() / llama(BASE) == pytest.approx(published, abs=0.05)


def test_tp_8_for_a_70b_on_32_h100():
    assert llama(Layout(tp=8, pp=4, vpp=5, sp=True)) / llama(BASE) == pytest.approx(704 / 508.7, rel=0.12)


@pytest.mark.parametrize(
    ("changed", "base", "published"),
    [
        (("hybridep", "moe", "dp", "ep"), ("hybridep", "moe", "dp"), 20992 / 24713.8),
        (("alltoall", "none", "dp", "ep"), ("alltoall", "none", "dp"), 31310 / 41250),
        (("hybridep", "moe", "dp"), ("alltoall", "none", "dp"), 24713.8 / 41250),
    ],
    ids=["overlap of HybridEP", "overlap of all-to-all", "HybridEP and graphs for eager all-to-all"],
)
def test_one_change_to_qwen3_30b_on_16_h100(changed, base, published):
    """Source: Megatron Bridge, skill nemo-mbridge-perf-expert-parallel-overlap."""
    assert qwen(*changed) / qwen(*base) == pytest.approx(published, rel=0.1)


def test_tensor_parallel_degrees_of_a_cut_70b_on_one_b200_node():
    """Seconds for 1,024 x 32 tokens a GPU: TP 2, 4 and 8. Source: SimuMax 1.2 on B200 (Megatron-LM, BF16)."""
    from dataclasses import replace

    from meshwright.model.catalog import find

    full = find("llama-3-70b")
    model = replace(full, pattern=full.pattern[:12])
    flags = Execution(overlaps=frozenset({"dp"}))
    measured = {2: (128, 5.3765), 4: (64, 2.9646), 8: (32, 2.0737)}
    found = {
        tp: seconds(model, "8xB200", Layout(tp=tp, sp=True), batch=batch, execution=flags)
        for tp, (batch, _) in measured.items()
    }
    for tp, (batch, step) in measured.items():
        assert found[tp] == pytest.approx(step, rel=0.12), tp
        assert batch * tp == 256
    assert np.diff([found[tp] * tp for tp in (2, 4, 8)]).min() > 0
