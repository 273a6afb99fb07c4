"""Activations in host memory: what their way there and back costs in time."""

import numpy as np
import pytest

import meshwright as mw
from meshwright.cluster.catalog import find_gpu
from meshwright.cost.offload import exposed_seconds, host_bandwidth
from meshwright.job.spec import Recompute


def estimate(model, gpus, execution, **options):
    return mw.estimate(model, gpus, mw.Options(**options, recompute=Recompute(), execution=execution))


def test_links_are_those_of_the_machine():
    """PCIe Gen4, Gen5 and NVLink-C2C: at most 32, 64 and 225 GB/s a GPU in one direction."""
    for gpu, nominal in (("A100", 32e9), ("H100", 64e9), ("B200", 64e9), ("GB200", 225e9)):
        assert 0.7 * nominal < host_bandwidth(find_gpu(gpu)) < nominal


def test_compute_hides_a_transfer_of_its_own_length():
    assert exposed_seconds(np.array([53e9, 26.5e9]), np.array([0.6, 0.6]), 53e9) == pytest.approx([0.4, 0.0])


def test_without_offload_there_is_no_such_term():
    answer = estimate("llama3-8b", "8xH100", {}, tp=2, seq_length=8192, global_batch=64)
    assert answer.time.terms["offload"] == 0


def test_a_slow_link_is_waited_for_by_what_compute_does_not_hide():
    """Qwen3-30B-A3B's experts on PCIe: bytes of 48 layers over 53 GB/s, both ways, less the compute."""
    options = {"ep": 8, "mbs": 1, "seq_length": 4096, "global_batch": 64}
    flags = {"dispatcher": "alltoall", "cuda_graphs": "none", "overlaps": frozenset({"dp"})}
    plain = estimate("qwen3-30b-a3b", "8xH100", flags, **options)
    moved = estimate(
        "qwen3-30b-a3b", "8xH100", flags | {"offload_modules": ("expert_fc1", "moe_act")}, **options
    )
    hosted = 48 * 8 * 4096 * (2 * 2048 + 2 * 2 * 768)
    compute = sum(plain.time.terms[name] for name in ("gemm", "attention", "memory_bound"))
    most = 8 * 2 * hosted / 53e9  # 8 micro-batches
    assert most - compute < moved.time.terms["offload"] < most
    assert moved.detail.host.activations_bytes == pytest.approx(hosted, rel=1e-6)


def test_a_fast_link_hides_it_as_the_published_run_shows():
    """Llama 3 70B with FSDP on 64 GB200, 40 layers offloaded: 7.76 s a step (Megatron Bridge 26.04.01)."""
    flags = {"fsdp": True, "cpu_offload_layers": 40, "cuda_graphs": "none"}
    job = {
        "mbs": 2,
        "global_batch": 256,
        "seq_length": 8192,
        "precision": "fp8-current",
        "grad_dtype": "bf16",
    }
    answer = estimate("llama3-70b", "64xGB200", flags, **job)
    assert answer.time.step_seconds == pytest.approx(7.76, rel=0.1)
    assert answer.memory.verdict != "does-not-fit"
    slow = estimate("llama3-70b", "64xB200", flags, **job)
    assert slow.time.terms["offload"] > 0.2 * slow.time.step_seconds
