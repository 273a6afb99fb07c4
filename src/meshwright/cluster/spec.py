"""Where training runs: GPUs, nodes, networks. Bytes, bytes/s and FLOP/s throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as the framework sees it (one rank).

    usable_memory   bytes that torch reports after driver and ECC, before the CUDA context [bytes]
    hbm             memory bandwidth [bytes/s]
    peak            dense peak by number format ("bf16", "fp8", "fp4", ...) [FLOP/s]
    nvlink          scale-up bandwidth, one direction [bytes/s]
    nvlink_domain   GPUs that the scale-up network joins
    nic             network bandwidth of the GPU's own NIC [bytes/s]
    kernels         constants of its kernels, where somebody measured this very machine
                    (`meshwright calibrate hardware`); None takes what ships
    """

    name: str
    architecture: str
    usable_memory: float
    hbm: float
    peak: Mapping[str, float]
    nvlink: float
    nvlink_domain: int
    gpus_per_node: int
    nic: float
    compute_capability: str | None = None
    memory_marketing: float = 0.0
    preliminary: bool = False
    notes: str = ""
    sources: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    kernels: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`nodes` equal nodes of `gpus_per_node` GPUs; NVLink domains may span nodes (NVL72)."""

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    nvlink_domain: int
    network: float
    """Network bandwidth a GPU, one direction [bytes/s]."""
    name: str = ""

    @property
    def world(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus_per_node
