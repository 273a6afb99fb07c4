"""Constants of the kernel forms from measured times: of published tables, or of the machine at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshwright.cost.fitting import robust_fit
from meshwright.cost.kernels import TILE_M, TILE_N, GemmConstants, gemm_seconds
from meshwright.layout.table import Floats

SPREAD = 0.1
"""Log error at which a residual of a kernel turns from squared to linear."""


def digits(value: float, count: int = 4) -> float:
    """A number with as many digits as it is sure of."""
    return float(f"{value:.{count}g}")


def fit_gemm(
    m: Floats, n: Floats, k: Floats, seconds: Floats,
    *, peak: float, sm: int, hbm: float, element: float, quantised: bool = False,
) -> dict[str, float]:  # fmt: skip
    """e0, k0, t0, eb and a of `kernels.gemm_seconds`, and how well they fit. Arrays are [N].

    quantised  the times include bringing the input to low precision: it is fitted beside the GEMM, as
               `quantise` bytes an input element, and left out of the constants
    """

    def constants(x: Floats) -> GemmConstants:
        e0, k0, t0, eb, a = (float(v) for v in np.exp(x[:5]))
        return GemmConstants(peak=peak, e0=e0, k0=k0, t0=t0, eb=eb, a=a, sm=sm, element=element, hbm=hbm)

    def model(x: Floats) -> Floats:
        return np.asarray(gemm_seconds(constants(x), m, n, k) + quantised * np.exp(x[5]) * m * k / hbm)

    fitted = robust_fit(
        lambda x: np.log(model(x) / seconds) / SPREAD,
        np.log([0.75, 120, 4e-6, 0.75, 0.1, 4.0]),
        np.array([3.0, 1.5, 1.5, 0.7, 2.0, 0.5]),
        weights=np.clip(np.ceil(m / TILE_M) * np.ceil(n / TILE_N) / sm, 0.2, 3.0),
    )
    names = ("e0", "k0", "t0", "eb", "a", *(["quantise"] if quantised else []))
    error = model(fitted.values) / seconds - 1
    large = (m >= 4096) & (n >= 4096) & (k >= 4096)
    return {
        **{name: digits(float(v)) for name, v in zip(names, np.exp(fitted.values), strict=False)},
        **errors(error),
        **({"large_bias": round(float(np.median(error[large])), 4)} if large.any() else {}),
    }


def errors(error: Floats) -> dict[str, float]:
    """Rows, and median and p90 of the absolute error."""
    off = np.abs(error)
    return {
        "rows": len(error),
        "median_error": round(float(np.median(off)), 4),
        "p90_error": round(float(np.quantile(off, 0.9)), 4),
    }


def fit_attention(length: Floats, rate: Floats) -> dict[str, float]:
    """rate*L/(L + ramp) of causal attention over L tokens. [N] tokens, [N] FLOP/s"""

    def model(x: Floats) -> Floats:
        return np.asarray(np.exp(x[0]) * length / (length + np.exp(x[1])))

    start = np.array([np.log(np.quantile(rate, 0.9)), np.log(1000.0)])
    fitted = robust_fit(lambda x: np.log(rate / model(x)) / SPREAD, start, np.array([3.0, 1.0]))
    peak, ramp = (float(v) for v in np.exp(fitted.values))
    return {"rate": digits(peak), "ramp": digits(ramp), **errors(rate / model(fitted.values) - 1)}


def fit_collective(members: Floats, message: Floats, seconds: Floats, kind: str) -> dict[str, Any]:
    """latency(n) + sent/peak(n) * (1 + (x0/bytes)^p) of one collective on n GPUs of a domain. [N]

    message  bytes of the whole buffer; sent = message*(n-1)/n, twice that for an all-reduce
    """
    sizes = sorted({int(v) for v in members})
    which = np.searchsorted(sizes, members)
    sent = message * (members - 1) / members * (2 if kind == "all_reduce" else 1)
    many = len(sizes)

    def model(x: Floats) -> Floats:
        peak, latency = np.exp(x[which]), np.exp(x[many + which])
        return np.asarray(latency + sent / peak * (1 + (np.exp(x[-2]) / message) ** np.exp(x[-1])))

    top = np.log(np.array([(sent / seconds)[which == i].max() for i in range(many)]))
    prior = np.concatenate([top, np.full(many, np.log(12e-6)), [np.log(4e6), np.log(0.8)]])
    width = np.concatenate([np.full(many, 0.3), np.full(many, 0.5), [1.5, 0.4]])
    fitted = robust_fit(lambda x: np.log(model(x) / seconds) / (SPREAD / 2), prior, width)
    values = np.exp(fitted.values)
    return {
        "peak": {str(s): digits(float(v)) for s, v in zip(sizes, values, strict=False)},
        "latency": {str(s): digits(float(v), 3) for s, v in zip(sizes, values[many:], strict=False)},
        "x0": digits(float(values[-2])),
        "power": round(float(values[-1]), 3),
        **errors(model(fitted.values) / seconds - 1),
    }


def completed(row: Mapping[str, Any], relative: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """A measured row with what was not measured taken from a relative, rates scaled by the ratio of peaks."""
    whole = {**relative, **row}
    for part in ("gemm", "attention", "collectives"):
        whole[part] = {**relative.get(part, {}), **row.get(part, {})}
    for fmt in set(relative["gemm"]) - set(row.get("gemm", {})):
        whole["gemm"][fmt] = {**relative["gemm"][fmt], "burst": True}
    for part in ("mla", "scan"):
        if part not in row and "rate" in relative.get(part, {}):
            whole[part] = {**relative[part], "rate": relative[part]["rate"] * scale}
    for size, form in relative["attention"].items():
        if size not in row.get("attention", {}):
            whole["attention"][size] = {**form, "rate": form["rate"] * scale}
    return whole
