"""A measured machine as the content of a GPU file (`meshwright.cluster.gpu_file` reads it)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.cluster.catalog import GBIT, GIGA, TERA, find_gpu
from meshwright.cluster.gpu_file import KIND, VERSION
from meshwright.cluster.spec import GIB, Gpu
from meshwright.cost.hardware import constants
from meshwright.errors import QuestionError

REACHED = 0.95
"""Share of an unknown device's peak that its best kernel is taken to reach."""
LINKS = {"nvlink": 25e9, "nic": 12.5e9}
"""Bandwidths written for a device that is not in the catalog and has no measured collectives [bytes/s]: a
PCIe link and a 100 Gbit/s NIC. They stand in the file, to be corrected."""


def gpu_file_content(raw: Mapping[str, Any], kind: str = "") -> dict[str, Any]:
    """What is written of raw times: the GPU, its kernels' constants, the times themselves.

    kind  the catalog's name of the GPU, where torch's own name of it is not known
    """
    gpu = device_of(raw, kind)
    source = f"measured on {raw['device']} with torch {raw['torch']} by `meshwright calibrate hardware`"
    return {
        "meshwright": KIND,
        "version": VERSION,
        "source": source,
        "date": datetime.date.today().isoformat(),
        "gpu": _fields(gpu),
        "kernels": constants(raw, gpu, sm=int(raw["machine"]["sm"])),
        "measured": {name: raw[name] for name in ("gemm", "attention", "elementwise", "collectives")},
    }


def device_of(raw: Mapping[str, Any], kind: str = "") -> Gpu:
    """The catalog's GPU with the memory that torch sees, or one made from the times alone."""
    machine = raw["machine"]
    try:
        if not kind and raw["device"] == "cpu":
            raise QuestionError("a CPU is in no catalog")
        return replace(find_gpu(kind or str(raw["device"])), usable_memory=float(machine["memory"]))
    except QuestionError:
        if kind:
            raise
    flops = max(2.0 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in raw["gemm"])
    moved = max(row["bytes"] / row["seconds"] for row in raw["elementwise"])
    link = max((row["bytes"] / row["seconds"] for row in raw["collectives"]), default=LINKS["nvlink"])
    devices = int(machine["devices"])
    return Gpu(
        name=f"{raw['device']}-measured"[:60], architecture="unknown",
        usable_memory=float(machine["memory"]), hbm=moved / REACHED, peak={"bf16": flops / REACHED},
        nvlink=float(link), nvlink_domain=max(devices, 1), gpus_per_node=max(devices, 1), nic=LINKS["nic"],
        compute_capability=machine["capability"], memory_marketing=float(machine["memory"]),
        notes="not in the catalog: peak and bandwidth are those that its best kernels reached, the network "
        "is a guess to correct",
    )  # fmt: skip


def _fields(gpu: Gpu) -> dict[str, Any]:
    """The GPU in the words and units of a cluster file, digits that are sure."""

    def short(value: float) -> float:
        return float(f"{value:.6g}")

    return {
        "name": gpu.name,
        "architecture": gpu.architecture,
        "usable_memory_gib": short(gpu.usable_memory / GIB),
        "memory_gb": short((gpu.memory_marketing or gpu.usable_memory) / GIGA),
        "hbm_gb_per_s": short(gpu.hbm / GIGA),
        "nvlink_gb_per_s": short(gpu.nvlink / GIGA),
        "nic_gbps": short(gpu.nic / GBIT),
        "nvlink_domain": gpu.nvlink_domain,
        "gpus_per_node": gpu.gpus_per_node,
        "peak_tflops": {fmt: short(value / TERA) for fmt, value in gpu.peak.items()},
        **({"compute_capability": gpu.compute_capability} if gpu.compute_capability else {}),
        **({"notes": gpu.notes} if gpu.notes else {}),
    }
