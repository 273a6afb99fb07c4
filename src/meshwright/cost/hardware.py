"""A short micro-benchmark of the machine at hand: GEMMs, attention, elementwise work, collectives.

Needs torch, imported when called. On a GPU it takes a minute or two and yields constants of that GPU
for a calibration; on a CPU it runs with small sizes, which proves that it runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cluster.spec import Gpu
from meshwright.cost.hardware_ranks import among
from meshwright.cost.kernel_fit import completed, digits, fit_attention, fit_collective, fit_gemm
from meshwright.cost.kernels import measured_relative
from meshwright.errors import QuestionError
from meshwright.facts import load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured.

    gemms        (m, n, k); attention  (batch, heads, length, head dimension)
    elementwise  elements of the vectors that are added
    messages     bytes of the collectives' buffers, where torch.distributed is running
    seconds      least time each shape is repeated for: sustained rates, not bursts
    """

    gemms: tuple[tuple[int, int, int], ...]
    attention: tuple[tuple[int, int, int, int], ...]
    elementwise: tuple[int, ...]
    messages: tuple[int, ...]
    seconds: float


GPU_PLAN = Plan(
    gemms=tuple(
        (m, n, k)
        for m in (1024, 4096, 16384)
        for n, k in ((1024, 4096), (4096, 1024), (4096, 4096), (8192, 8192), (16384, 4096), (28672, 8192))
    ),
    attention=tuple(
        (max(1, 16384 // s), 32, s, d) for s in (1024, 2048, 4096, 8192, 16384) for d in (64, 128)
    ),
    elementwise=(2**24, 2**26, 2**28),
    messages=tuple(2**p for p in range(20, 30)),
    seconds=0.5,
)
SMALL_PLAN = Plan(
    gemms=((64, 64, 64), (64, 128, 64), (128, 128, 128), (128, 256, 128), (256, 256, 256), (256, 512, 256)),
    attention=((1, 2, 64, 64), (1, 2, 128, 64), (1, 2, 256, 64)),
    elementwise=(2**14, 2**16),
    messages=(2**12, 2**14, 2**16),
    seconds=0.002,
)


MOST_CPU_RANKS = 8


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise QuestionError("measuring hardware needs torch: pip install torch") from None
    return torch


def timed(run: Callable[[], object], least: float, device: str) -> float:
    """Seconds of one call, repeated for at least `least` seconds after a warm-up."""
    torch = _torch()
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    run()
    wait()
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        if count % 8 == 0 or not device.startswith("cuda"):
            wait()
            if time.perf_counter() - start >= least:
                break
    wait()
    return (time.perf_counter() - start) / count


def measure(device: str = "cuda", plan: Plan | None = None, *, ranks: int = 1) -> dict[str, Any]:
    """Raw times of the machine at hand: lists of rows, each with its shape and its seconds.

    ranks  processes that the collectives are measured among (one a GPU); 1: none are started
    QuestionError without torch, or where the device is not there.
    """
    torch = _torch()
    if device not in ("cpu", "cuda"):
        raise QuestionError(f"--device {device[:40]!r}: cuda or cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise QuestionError("no GPU is visible to torch; measure on a machine that has one, or --device cpu")
    there = torch.cuda.device_count() if device.startswith("cuda") else MOST_CPU_RANKS
    if not 1 <= ranks <= there:
        raise QuestionError(f"--ranks {ranks}: between 1 and {there} on this machine")
    plan = plan or (GPU_PLAN if device.startswith("cuda") else SMALL_PLAN)
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    return {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
        "machine": _machine(torch, device),
        "gemm": list(_gemms(torch, plan, device, dtype)),
        "attention": list(_attention(torch, plan, device, dtype)),
        "elementwise": list(_elementwise(torch, plan, device, dtype)),
        "collectives": among(ranks, device, plan) if ranks > 1 else [*collectives(device, plan)],
    }


def _gemms(torch: Any, plan: Plan, device: str, dtype: Any) -> Iterator[dict[str, float]]:
    for m, n, k in plan.gemms:
        a = torch.randn(m, k, device=device, dtype=dtype)
        b = torch.randn(n, k, device=device, dtype=dtype)
        yield {"m": m, "n": n, "k": k, "seconds": timed(lambda a=a, b=b: a @ b.t(), plan.seconds, device)}  # type: ignore[misc]


def _attention(torch: Any, plan: Plan, device: str, dtype: Any) -> Iterator[dict[str, float]]:
    attend = torch.nn.functional.scaled_dot_product_attention
    for batch, heads, length, dim in plan.attention:
        q, k, v = (
            torch.randn(batch, heads, length, dim, device=device, dtype=dtype, requires_grad=True)
            for _ in range(3)
        )

        def forward(q: Any = q, k: Any = k, v: Any = v) -> object:
            with torch.no_grad():
                return attend(q, k, v, is_causal=True)

        def both(q: Any = q, k: Any = k, v: Any = v) -> object:
            return attend(q, k, v, is_causal=True).sum().backward()

        once = timed(forward, plan.seconds, device)
        yield {
            "batch": batch, "heads": heads, "length": length, "head_dim": dim,
            "forward": once, "backward": max(timed(both, plan.seconds, device) - once, 0.0),
        }  # fmt: skip


def _elementwise(torch: Any, plan: Plan, device: str, dtype: Any) -> Iterator[dict[str, float]]:
    for size in plan.elementwise:
        a, b = (torch.randn(size, device=device, dtype=dtype) for _ in range(2))
        seconds = timed(lambda a=a, b=b: torch.add(a, b), plan.seconds, device)  # type: ignore[misc]
        yield {"bytes": 3.0 * size * a.element_size(), "seconds": seconds}


def _machine(torch: Any, device: str) -> dict[str, Any]:
    """What torch says about the device: memory [bytes], processors, compute capability."""
    if not device.startswith("cuda"):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return {"memory": float(pages), "sm": os.cpu_count() or 1, "capability": None, "devices": 1}
    found = torch.cuda.get_device_properties(0)
    return {
        "memory": float(found.total_memory), "sm": int(found.multi_processor_count),
        "capability": f"{found.major}.{found.minor}", "devices": int(torch.cuda.device_count()),
    }  # fmt: skip


def collectives(device: str, plan: Plan) -> Iterator[dict[str, Any]]:
    """All-gather, reduce-scatter, all-reduce and all-to-all over the world, where there is one."""
    torch = _torch()
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return
    members = dist.get_world_size()
    for message in plan.messages:
        count = message // torch.empty(0, dtype=dtype).element_size() // members * members
        whole = torch.ones(count, device=device, dtype=dtype)
        part = torch.ones(count // members, device=device, dtype=dtype)
        runs: dict[str, Callable[[], object]] = {
            "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),  # type: ignore[misc]
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),  # type: ignore[misc]
        }
        if device.startswith("cuda"):
            runs["reduce_scatter"] = lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole)  # type: ignore[misc]
            runs["alltoall"] = lambda whole=whole: dist.all_to_all_single(torch.empty_like(whole), whole)  # type: ignore[misc]
        for kind, run in runs.items():
            seconds = _timed_together(run, dist, torch.cuda.synchronize if device != "cpu" else None)
            yield {"kind": kind, "members": members, "bytes": message, "seconds": seconds}


def _timed_together(
    run: Callable[[], object], dist: Any, wait: Callable[[], object] | None, times: int = 10
) -> float:
    """Seconds of a collective: every rank repeats it equally often."""
    wait = wait or (lambda: None)
    run()
    dist.barrier()
    wait()
    start = time.perf_counter()
    for _ in range(times):
        run()
    wait()
    dist.barrier()
    return (time.perf_counter() - start) / times


def constants(raw: Mapping[str, Any], gpu: Gpu, sm: int) -> dict[str, Any]:
    """Kernel constants of a GPU from its raw times: a row for `Calibration.measured`.

    What was not measured is taken from the nearest measured relative. The times are sustained ones, so the
    calibration's burst-to-sustained factors do not apply to them. sm  streaming multiprocessors.
    """
    relative = load_json("meshwright.cost", "measured.json")["gpus"][measured_relative(gpu)[0]]
    m, n, k, seconds = (
        np.array([row[name] for row in raw["gemm"]], dtype=float) for name in ("m", "n", "k", "seconds")
    )
    fitted = fit_gemm(m, n, k, seconds, peak=gpu.peak["bf16"], sm=sm, hbm=gpu.hbm, element=2.0)
    fitted |= {name: min(fitted[name], 1.0) for name in ("e0", "eb")}  # few noisy shapes can say more
    row: dict[str, Any] = {
        "sm": sm, "hbm": gpu.hbm, "peak": {**relative["peak"], **gpu.peak}, "sustained": True,
        "nvlink": gpu.nvlink if raw["collectives"] else relative["nvlink"],  # whose curves these are
        "gemm": {"bf16": fitted},
        "attention": _attention_rates(raw["attention"], gpu.peak["bf16"]),
        "collectives": _collective_curves(raw["collectives"]),
        "memory_bound": _bandwidth_share(raw["elementwise"], gpu),
        "source": f"measured on {raw['device']} with torch {raw['torch']}",
    }  # fmt: skip
    return completed(row, relative, gpu.peak["bf16"] / relative["peak"]["bf16"])


def _attention_rates(rows: list[dict[str, float]], peak: float) -> dict[str, Any]:
    """Forms by head dimension; no kernel is believed to be faster than the peak [FLOP/s]."""
    found: dict[str, Any] = {}
    for dim in sorted({int(row["head_dim"]) for row in rows}):
        own = [row for row in rows if row["head_dim"] == dim]
        length = np.array([row["length"] for row in own], dtype=float)
        flops = np.array([2.0 * r["batch"] * r["heads"] * dim * r["length"] ** 2 for r in own])
        fitted = fit_attention(length, flops / np.array([row["forward"] for row in own]))
        found[str(dim)] = {**fitted, "rate": min(fitted["rate"], peak)}
    return found


def _collective_curves(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in sorted({row["kind"] for row in rows}):
        own = [row for row in rows if row["kind"] == kind]
        members, size, seconds = (
            np.array([row[name] for row in own], dtype=float) for name in ("members", "bytes", "seconds")
        )
        found[kind] = fit_collective(members, size, seconds, kind)
    return found


def _bandwidth_share(rows: list[dict[str, float]], gpu: Gpu) -> float:
    """Share of the stated memory bandwidth that elementwise work reaches on large vectors."""
    return digits(max(row["bytes"] / row["seconds"] for row in rows) / gpu.hbm)
