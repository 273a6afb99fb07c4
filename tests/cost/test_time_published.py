"""Published pairs of runs that differ in one thing: direction and size of the difference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cost.asking_time import seconds, times

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


@pytest.mark.parametrize(
    ("sizes", "length", "published"),
    [
        ((24, 2048, 16), 2048, 196),
        ((24, 2048, 16), 8192, 220),
        ((32, 2560, 32), 2048, 205),
        ((32, 2560, 32), 8192, 225),
    ],
)
def test_gpt_on_8_a100_with_flash_attention_2(sizes, length, published):
    """TFLOP/s a GPU of GPT-3 1.3B and 2.7B, attention counted in full. Source: Dao 2023, arXiv 2307.08691,
    table 1 (8 x A100 80GB)."""
    from meshwright.model.spec import Attention, Layer, Mlp, Model

    layers, hidden, heads = sizes
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True)
    layer = Layer(mixer=attention, ffn=Mlp(ffn=4 * hidden, gated=False, bias=True))
    model = Model(
        name="gpt", family="gpt", hidden=hidden, kinds=(layer,), pattern=(0,) * layers, vocab_size=50304,
        tied=True, normalization="layer", learned_positions=length,
    )  # fmt: skip
    batch, mbs = 2**20 // length, 16384 // length
    step = seconds(model, "8xA100-80GB", Layout(mbs=mbs), seq=length, batch=batch)
    counted = 6 * (12 * layers * hidden**2 + 50304 * hidden) + 12 * layers * hidden * length
    assert batch * length * counted / step / 8 / 1e12 == pytest.approx(published, rel=0.06)


def test_flash_attention_2_is_slower_on_hopper_than_the_fused_kernels():
    """1.5 to 2.0 times forward, 1.5 to 1.75 backward. Source: Shah et al. 2024, arXiv 2407.08608."""
    long = {"seq": 32768, "batch": 64}
    fused, flash = (
        times("llama-3-8b", "8xH100", Layout(tp=8, sp=True), execution=flags, **long).terms["attention"][0]
        for flags in (Execution(), Execution(attention_backend="flash"))
    )
    assert 1.5 < flash / fused < 1.85
