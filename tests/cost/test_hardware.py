"""The micro-benchmark runs on a CPU, and its constants come back from times that were made from them."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.cluster.catalog import find_gpu
from meshwright.cost.kernel_fit import fit_attention, fit_collective, fit_gemm
from meshwright.cost.kernels import GemmConstants, gemm_seconds, kernels_of

torch = pytest.importorskip("torch")

from meshwright.cost.hardware import SMALL_PLAN, constants, measure  # noqa: E402
from meshwright.errors import QuestionError  # noqa: E402


def test_gemm_constants_come_back():
    rng = np.random.default_rng(1)
    m, n, k = (2.0 ** rng.uniform(9, 14, 300) for _ in range(3))
    true = GemmConstants(peak=1e15, e0=0.8, k0=150, t0=4e-6, eb=0.7, a=0.1, sm=132, element=2.0, hbm=3e12)
    found = fit_gemm(m, n, k, gemm_seconds(true, m, n, k), peak=1e15, sm=132, hbm=3e12, element=2.0)
    assert found["e0"] == pytest.approx(0.8, rel=0.02)
    assert found["median_error"] < 0.01


def test_attention_constants_come_back():
    length = np.array([1024.0, 2048, 4096, 8192, 16384])
    found = fit_attention(length, 7e14 * length / (length + 1200))
    assert (found["rate"], found["ramp"]) == (pytest.approx(7e14, rel=0.02), pytest.approx(1200, rel=0.05))


def test_collective_constants_come_back():
    size = np.tile(2.0 ** np.arange(20, 30), 2)
    members = np.repeat([2.0, 8.0], 10)
    peak = np.where(members == 2, 3e11, 4e11)
    took = 8e-6 + size * (members - 1) / members / peak * (1 + (5e6 / size) ** 0.7)
    found = fit_collective(members, size, took, "all_gather")
    assert found["peak"]["8"] == pytest.approx(4e11, rel=0.05)
    assert found["median_error"] < 0.02


def test_a_cpu_can_be_measured_and_fills_a_row():
    raw = measure("cpu", SMALL_PLAN)
    assert all(row["seconds"] > 0 for row in raw["gemm"])
    gpu = find_gpu("H100")
    row = constants(raw, gpu, sm=132)
    kernels = kernels_of(gpu, {gpu.name: row})
    assert kernels.sustained
    assert kernels.gemm("bf16").e0 == row["gemm"]["bf16"]["e0"]
    assert "cpu" in row["source"]
    assert {"fp8", "bf16"} <= set(row["gemm"])  # what was not measured is the relative's


def test_a_gpu_that_is_not_there_is_said_to_be_missing():
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    with pytest.raises(QuestionError, match="no GPU is visible"):
        measure("cuda")
