"""Seconds of single kernels: smooth analytic forms whose constants are fitted to measured tables.

The fits (`data/measured.json`) are of inference kernels in bursts; the sustained rates of training are
lower, and the calibration says by how much. A GPU without a table of its own takes the constants of
its nearest relative, scaled by the ratio of their peaks; `Kernels.inherited` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cluster.spec import Gpu
from meshwright.facts import load_json
from meshwright.layout.table import Floats

TILE_M, TILE_N = 128, 256
"""Output tile of the GEMM form; the constants are fitted with it."""
SAME_GPU = 0.05
"""Peaks that differ by less are two statements about one GPU."""
SLOW_KERNEL = 0.5
"""A head dimension that runs below this share of the usual one has no tuned kernel in the tables."""

POOR_FIT = 0.2
"""Median error above which a table's fit is not believed."""


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
    inherited: bool
    measured: Any
    table: Any

    def gemm(self, fmt: str) -> GemmConstants:
        """Constants for one number format; formats without a fit take the bf16 one."""
        fmt = "bf16" if fmt == "fp16" else fmt
        fitted = fmt if fmt in self.measured["gemm"] else "bf16"
        row, sm = self.measured["gemm"][fitted], self.measured["sm"]
        peak, used = self.gpu.peak.get(fmt) or self.gpu.peak["bf16"], self.measured["peak"][fitted]
        return GemmConstants(
            peak=used if abs(peak / used - 1.0) < SAME_GPU else peak,
            e0=row["e0"], k0=row["k0"], t0=row["t0"], eb=row["eb"], a=row["a"], sm=sm,
            element=self.table["element_bytes"][fmt], hbm=self.gpu.hbm,
        )  # fmt: skip

    @property
    def sustained(self) -> bool:
        """The constants are of long runs of this very GPU, not of bursts."""
        return bool(self.measured.get("sustained", False))

    def burst(self, fmt: str) -> bool:
        """The constants of a number format are of bursts, taken from a relative of a measured GPU."""
        form = self.measured["gemm"].get("bf16" if fmt == "fp16" else fmt, {})
        return bool(form.get("burst", False))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names under which factors of this GPU stand in a calibration."""
        names, architecture = self.table["kinds"], self.gpu.architecture
        descends = names["architecture"].get(architecture, [architecture])
        return (*descends, *names["relative"].get(self.relative, []))

    def attention_rate(self, head_dim: float, length: Floats, *, mla: bool = False) -> Floats:
        """Forward FLOP/s of fused causal bf16 attention over `length` tokens. [Q]

        The measured head dimensions are 64, 128, 192 and 256, and MLA's 192/128; between them the rate
        is interpolated. A dimension without a tuned kernel in the tables counts as its neighbour.
        """
        scale = self.gpu.peak["bf16"] / self.measured["peak"]["bf16"]
        if mla and self.measured["mla"].get("median_error", 1.0) < POOR_FIT:
            return np.asarray(self._rate(self.measured["mla"], length) * scale)
        known = {int(size): form for size, form in self._attention().items()}
        usual = known[128]["rate"]
        tuned = sorted(
            size for size, form in known.items() if form["rate"] > SLOW_KERNEL * usual or size == 64
        )
        rates = np.stack([self._rate(known[size], length) for size in tuned])  # [dims, Q]
        return np.asarray(_between(float(head_dim), tuned, rates) * scale)

    def _attention(self) -> Mapping[str, Any]:
        """Forms of fused attention by head dimension: published ones where the tables hold slower kernels."""
        published = self.table["attention"]["published"].get(self.relative, {})
        if self.sustained or not published:  # measured on this very GPU
            return dict(self.measured["attention"])
        return {**self.measured["attention"], **published}

    def flash2_share(self) -> tuple[float, float]:
        """Rates of FlashAttention-2 over those of the fused kernels, forward and backward."""
        form = self.table["attention"]["flash2"].get(self.gpu.architecture)
        return (form["forward"], form["backward"]) if form else (1.0, 1.0)

    @staticmethod
    def _rate(form: Any, length: Floats) -> Floats:
        return np.asarray(form["rate"] * length / (length + form["ramp"]))

    def backward_rate(self) -> float:
        """Rate of attention's backward pass as a share of the forward rate."""
        shares = self.table["attention"]["backward_rate"]
        return float(shares.get(self.gpu.architecture, shares["default"]))

    def scan_rate(self) -> float:
        """Forward FLOP/s of a chunked linear recurrence (gated delta rule)."""
        measured = self.measured["scan"].get("rate")
        return float(measured or self.table["scan"]["fallback_share"] * self.gpu.peak["bf16"])

    def memory_bound(self, moved: Floats, launches: Floats | float) -> Floats:
        """Seconds of elementwise work: bytes over the sustained bandwidth, plus launches. [Q]"""
        form = self.table["memory_bound"]
        reached = self.measured.get("memory_bound", form["efficiency"])
        return np.asarray(moved / (self.gpu.hbm * reached) + launches * form["launch"])


def _between(value: float, known: list[int], rates: Floats) -> Floats:
    """Rates at `value`: linear between the known sizes, falling with the root below. [dims, Q] -> [Q]"""
    above = int(np.searchsorted(known, value))
    if above == 0 or above == len(known):
        return np.asarray(rates[min(above, len(known) - 1)] * (min(value / known[0], 1.0) ** 0.5))
    share = (value - known[above - 1]) / (known[above] - known[above - 1])
    return np.asarray(rates[above - 1] * (1 - share) + rates[above] * share)


def kernels_of(gpu: Gpu, measured: Mapping[str, Any] | None = None) -> Kernels:
    """Constants of a GPU: those that somebody `measured` under its name, its own fit, else its relative's."""
    table = load_json("meshwright.cost", "kernels.json")
    if measured and gpu.name in measured:
        return Kernels(gpu=gpu, relative=gpu.name, inherited=False, measured=measured[gpu.name], table=table)
    relative, own = measured_relative(gpu)
    rows = load_json("meshwright.cost", "measured.json")["gpus"]
    return Kernels(gpu=gpu, relative=relative, inherited=not own, measured=rows[relative], table=table)


def measured_relative(gpu: Gpu) -> tuple[str, bool]:
    """The measured GPU whose constants this one takes, and whether it is the same GPU."""
    measured = load_json("meshwright.cost", "measured.json")["gpus"]
    relatives = load_json("meshwright.cost", "kernels.json")["nearest_relative"]
    own = [name for name in measured if gpu.name.upper() == name or gpu.name.upper().startswith(name + "-")]
    if own:
        return max(own, key=len), True
    return relatives.get(gpu.architecture, "H100"), False


def gemm_seconds(
    c: GemmConstants,
    m: Floats,
    n: Floats,
    k: Floats,
    groups: Floats | float = 1.0,
    out_bytes: float = 2.0,
    apart: Floats | float = 0.0,
) -> Floats:
    """Seconds of `groups` GEMMs (m, n, k) run together: waves of 128x256 tiles, or HBM, whichever is longer.

    tiles = groups*ceil(m/128)*ceil(n/256); w = tiles/sm; w += a*(ceil(w) - w)
    t = max(w*2*128*256*(k + k0)*sm/(peak*e0), bytes/(hbm*eb)) + t0

    out_bytes  bytes moved an output element: 2 where bf16 is written, 8 where fp32 is added to
    apart      share of every group's last partial wave that is lost, where groups are launched one by one
    Arrays broadcast. Fitted for m, n, k from 256 to 65k: median error 4-6 %, nine in ten within 15 %.
    """
    each = np.ceil(m / TILE_M) * np.ceil(n / TILE_N) / c.sm
    waves = groups * each
    waves = waves + c.a * (np.ceil(waves) - waves) + apart * groups * (np.ceil(each) - each)
    compute = waves * 2.0 * TILE_M * TILE_N * (k + c.k0) * c.sm / (c.peak * c.e0)
    moved = groups * ((m * k + n * k) * c.element + out_bytes * m * n)
    return np.asarray(np.maximum(compute, moved / (c.hbm * c.eb)) + c.t0)
