"""Kernel forms against measured tables, and the arithmetic of one GEMM worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.cluster.catalog import all_gpus, find_gpu
from meshwright.cost.kernels import GemmConstants, gemm_seconds, kernels_of

SAMPLES = json.loads((Path(__file__).parent / "data" / "measured_samples.json").read_text())
MEASURED = ("A100", "H100", "H200", "B200", "GB200", "B300", "GB300")
PLAIN = GemmConstants(peak=1e12, e0=0.5, k0=0.0, t0=1e-6, eb=1.0, a=0.0, sm=100, element=2.0, hbm=1e12)


def numbers(*values: float) -> list[np.ndarray]:
    return [np.array([float(value)]) for value in values]


def test_a_large_gemm_takes_its_flops_over_the_reached_peak():
    # 2*1280*25600*8192 FLOP at half of 1 TFLOP/s, plus a microsecond
    assert gemm_seconds(PLAIN, *numbers(1280, 25600, 8192))[0] == pytest.approx(
        2 * 1280 * 25600 * 8192 / 0.5e12 + 1e-6
    )


def test_a_thin_gemm_takes_its_bytes_over_the_bandwidth():
    # (128*4096 + 4096*128)*2 + 2*128*128 bytes at 1 TB/s; the products would take less on a fast GPU
    fast = GemmConstants(
        **{**{name: getattr(PLAIN, name) for name in PLAIN.__dataclass_fields__}, "peak": 1e15}
    )
    assert gemm_seconds(fast, *numbers(128, 128, 4096))[0] == pytest.approx(
        (2 * 128 * 4096 * 2 + 2 * 128 * 128) / 1e12 + 1e-6
    )


def test_groups_launched_apart_lose_the_tail_of_each_wave():
    # 50 tiles on 100 processors: joined, two groups fill one wave; each apart, half of its wave is lost
    together = gemm_seconds(PLAIN, *numbers(128 * 5, 256 * 10, 1024), 2.0)[0]
    apart = gemm_seconds(PLAIN, *numbers(128 * 5, 256 * 10, 1024), 2.0, apart=1.0)[0]
    assert (apart - 1e-6) / (together - 1e-6) == pytest.approx(2.0)


@pytest.mark.parametrize("gpu", MEASURED)
def test_gemm_form_lies_within_a_tenth_of_the_measured_table(gpu):
    rows = [row for row in SAMPLES["gemm"] if row["gpu"] == gpu]
    m, n, k = (np.array([row[name] for row in rows], dtype=float) for name in "mnk")
    measured = np.array([row["ms"] for row in rows]) / 1e3
    found = gemm_seconds(kernels_of(find_gpu(gpu)).gemm("bf16"), m, n, k)
    assert np.median(np.abs(found / measured - 1)) < 0.1
    assert np.quantile(np.abs(found / measured - 1), 0.9) < 0.2


@pytest.mark.parametrize(
    ("gpu", "fmt", "tflops"), [("H100", "bf16", 783), ("H100", "fp8", 1315), ("B200", "bf16", 1687)]
)
def test_the_8192_cube_runs_as_fast_as_the_best_backend(gpu, fmt, tflops):
    took = gemm_seconds(kernels_of(find_gpu(gpu)).gemm(fmt), *numbers(8192, 8192, 8192))[0]
    assert 2 * 8192**3 / took / 1e12 == pytest.approx(tflops, rel=0.12)


def test_attention_on_a100_is_that_of_flash_attention_2_and_not_of_the_slower_inference_tables():
    """171 TFLOP/s forward and backward at 16k tokens, head 64, causal. Source: Dao 2023, arXiv 2307.08691."""
    kernels = kernels_of(find_gpu("A100-80GB"))
    forward = float(kernels.attention_rate(64, np.array([16384.0]))[0])
    both = 3.5 / (1 / forward + 2.5 / (forward * kernels.backward_rate()))
    assert both == pytest.approx(171e12, rel=0.03)


@pytest.mark.parametrize("gpu", [gpu for gpu in MEASURED if gpu != "A100"])
def test_attention_form_lies_within_a_tenth_of_the_measured_table(gpu):
    rows = [row for row in SAMPLES["attention"] if row["gpu"] == gpu]
    length = np.array([row["length"] for row in rows], dtype=float)
    flops = np.array([2.0 * row["batch"] * row["heads"] * 128 * row["length"] ** 2 for row in rows])
    measured = np.array([row["ms"] for row in rows]) / 1e3
    found = flops / kernels_of(find_gpu(gpu)).attention_rate(128, length)
    assert np.median(np.abs(found / measured - 1)) < 0.1


def test_every_gpu_has_constants_and_says_when_they_are_a_relatives():
    for gpu in all_gpus():
        kernels = kernels_of(gpu)
        assert kernels.gemm("bf16").peak > 0
        assert kernels.attention_rate(128, np.array([4096.0]))[0] > 0
    assert not kernels_of(find_gpu("H100")).inherited
    assert kernels_of(find_gpu("MI300X")).inherited
    assert kernels_of(find_gpu("MI300X")).relative == "H100"
    assert kernels_of(find_gpu("GB300")).relative == "GB300"


def test_inherited_gemms_scale_with_the_peak():
    own, heir = (kernels_of(find_gpu(name)).gemm("bf16") for name in ("H100", "MI300X"))
    assert (heir.peak / own.peak, heir.e0) == (pytest.approx(1307 / 989, rel=0.01), own.e0)


def test_head_dimension_80_lies_between_64_and_128_and_a_slow_kernel_does_not_count():
    kernels, length = kernels_of(find_gpu("B200")), np.array([8192.0])
    rates = [kernels.attention_rate(dim, length)[0] for dim in (64, 80, 128, 192)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[3] > 0.8 * rates[2]  # the tables' kernel for 192 is a fallback, eight times slower


def test_measured_constants_of_ones_own_come_first():
    gpu = find_gpu("H100")
    mine = {**kernels_of(gpu).measured, "sustained": True}
    kernels = kernels_of(gpu, {gpu.name: mine})
    assert (kernels.relative, kernels.sustained, kernels.inherited) == (gpu.name, True, False)
