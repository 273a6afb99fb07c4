"""Seconds of single kernels: smooth analytic forms whose constants are fitted to measured tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cluster.spec import Gpu
from meshwright.facts import load_json
from meshwright.layout.table import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """Constants of the GEMM form of one GPU and number format.

    peak  FLOP/s of the GPU; e0 share of it that a large GEMM reaches [-]; k0 ramp in k [elements];
    t0 launch [s]; eb share of HBM bandwidth [-]; a weight of the last partial wave [-]; sm processors
    """

    peak: float
    e0: float
    k0: float
    t0: float
    eb: float
    a: float
    sm: int
    element: float
    hbm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernel constants of one GPU; `relative` names the measured GPU that they come from."""

    gpu: Gpu
    relative: str
    constants: dict[str, Any]
    table: dict[str, Any]

    def gemm(self, dtype: str) -> GemmConstants:
        """Constants for one number format; formats without a fit take the widest one fitted."""
        known = self.constants["gemm"]
        fitted = dtype if dtype in known else "bf16"
        row = known[fitted]
        peak = self.gpu.peak.get(dtype) or self.gpu.peak["bf16"]
        used = self.table["peak_used"][self.relative].get(fitted)
        same_gpu = used is not None and abs(peak / used - 1.0) < 0.05
        return GemmConstants(
            peak=used if same_gpu else peak,
            e0=row["e0"],
            k0=row["k0"],
            t0=row["t0"],
            eb=row["eb"],
            a=row["a"],
            sm=self.constants["sm"],
            element={"fp8": 1.0, "fp4": 0.5625}.get(dtype, 2.0),
            hbm=self.gpu.hbm,
        )

    def attention_rate(self, head_dim: int, length: Floats) -> Floats:
        """Forward FLOP/s of fused causal attention at a sequence length. [Q]"""
        form = self.constants["attention"]
        base = self.table["peak_used"][self.relative]["bf16"]
        scale = self.gpu.peak["bf16"] / base
        rates = {int(k): v for k, v in self.table["attention"]["head_dim_rate"].items()}
        by_dim = float(np.interp(head_dim, sorted(rates), [rates[k] for k in sorted(rates)]))
        return form["rate"] * scale * by_dim * length / (length + form["ramp"])

    def memory_bound(self, moved: Floats, launches: float) -> Floats:
        """Seconds of elementwise work: bytes over the sustained bandwidth, plus launches. [Q]"""
        form = self.table["memory_bound"]
        return moved / (self.gpu.hbm * form["efficiency"]) + launches * form["launch"]


def kernels_of(gpu: Gpu) -> Kernels:
    """Constants of a GPU: its own fit, else those of the nearest relative."""
    table = load_json("meshwright.cost", "kernels.json")
    own = [name for name in table["gpus"] if gpu.name.upper().startswith(name)]
    relative = max(own, key=len) if own else table["nearest_relative"].get(gpu.architecture, "H100")
    return Kernels(gpu=gpu, relative=relative, constants=table["gpus"][relative], table=table)


def gemm_seconds(c: GemmConstants, m: Floats, n: Floats, k: Floats, groups: Floats | float = 1.0) -> Floats:
    """Seconds of `groups` GEMMs (m, n, k) run together: waves of 128x256 tiles, or HBM, whichever is longer.

    Arrays broadcast. Valid for m, n, k from about 64 to 65k; median error against the tables 4 % (bf16),
    7-8 % (fp8, fp4).
    """
    tiles = groups * np.ceil(m / 128) * np.ceil(n / 256)
    waves = tiles / c.sm
    waves = waves + c.a * (np.ceil(waves) - waves)
    compute = waves * 2.0 * 128 * 256 * (k + c.k0) / (c.peak * c.e0 / c.sm)
    moved = groups * (m * k * c.element + n * k * c.element + 2.0 * m * n)
    return np.asarray(np.maximum(compute, moved / (c.hbm * c.eb)) + c.t0)
