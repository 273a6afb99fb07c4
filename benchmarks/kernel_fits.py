"""Constants of the kernel and collective forms, fitted to measured tables.

    pip download aiconfigurator-core --no-deps && unzip aiconfigurator_core-*.whl
    python benchmarks/kernel_fits.py aiconfigurator_core/systems

Reads the measured GEMM, attention and NCCL tables of that package as data (pyarrow, of the `calibrate`
extra), fits the forms of `meshwright.cost.kernels` and `.network`, and writes cost/data/measured.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import meshwright.cost
from meshwright.cost.kernel_fit import fit_attention, fit_collective, fit_gemm

GPUS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "measured_gpus.json").read_text(encoding="utf-8")
)["gpus"]
SOURCE = (
    "fits of benchmarks/kernel_fits.py to the measured tables of aiconfigurator-core 0.12.0 (Apache-2.0): "
    "inference kernels of three backends, one GPU at a time, in bursts; NCCL inside one node"
)
DTYPES = {"bf16": ("bfloat16",), "fp8": ("fp8", "fp8_block"), "fp4": ("nvfp4",)}
ELEMENT = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625}
MOST_ROWS = 6000


def read(root: Path, gpu: str, pattern: str, columns: list[str]) -> Iterator[dict[str, np.ndarray]]:
    """The tables of one kind, as columns."""
    for path in sorted((root / "data" / gpu).glob(pattern)):
        table = pq.read_table(path)
        if set(columns) <= set(table.column_names):
            yield {name: np.asarray(table[name].to_pylist()) for name in columns}


def joined(root: Path, gpu: str, pattern: str, columns: list[str]) -> dict[str, np.ndarray]:
    found = list(read(root, gpu, pattern, columns))
    return {name: np.concatenate([t[name] for t in found]) for name in columns} if found else {}


def median_by(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median of the values of each distinct key row."""
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    order = np.lexsort((values, index.ravel()))
    start = np.searchsorted(index.ravel()[order], np.arange(len(distinct)))
    stop = np.searchsorted(index.ravel()[order], np.arange(len(distinct)), side="right")
    ranked = values[order]
    return distinct, (ranked[(start + stop - 1) // 2] + ranked[(start + stop) // 2]) / 2


def least_by(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least value of each distinct key row."""
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    least = np.full(len(distinct), np.inf)
    np.minimum.at(least, index.ravel(), values)
    return distinct, least


def thinned(*arrays: np.ndarray, most: int = MOST_ROWS) -> tuple[np.ndarray, ...]:
    if len(arrays[0]) <= most:
        return arrays
    picked = np.random.default_rng(0).permutation(len(arrays[0]))[:most]
    return tuple(a[picked] for a in arrays)


def gemm_fit(root: Path, gpu: dict[str, Any], dtype: str) -> dict[str, float]:
    """e0, k0, t0, eb, a of one number format, from the fastest backend of each training-sized shape.

    The low-precision tables include the quantisation of the input: it is fitted beside the GEMM, as
    `quantise` bytes an input element, and left out of the constants.
    """
    columns = ["gemm_dtype", "m", "n", "k", "latency"]
    data = joined(root, gpu["data"], "gemm/*/*/gemm_perf.parquet", columns)
    if not data:
        return {}
    keep = (
        np.isin(data["gemm_dtype"], DTYPES[dtype])
        & (data["m"] >= 256)
        & (data["n"] >= 256)
        & (data["k"] >= 256)
    )
    if keep.sum() < 100:
        return {}
    shapes = np.stack([data[name][keep] for name in "mnk"], axis=1)
    shapes, seconds = least_by(shapes, data["latency"][keep] / 1e3)
    big = seconds > 8e-6
    shapes, seconds = thinned(shapes[big], seconds[big])
    m, n, k = (shapes[:, i].astype(float) for i in range(3))
    return fit_gemm(
        m, n, k, seconds, peak=gpu["peak"][dtype], sm=gpu["sm"], hbm=gpu["hbm"],
        element=ELEMENT[dtype], quantised=dtype != "bf16",
    )  # fmt: skip


def attention_fit(root: Path, gpu: dict[str, Any], head_dim: int) -> dict[str, float]:
    """Forward rate*L/(L + ramp) of causal bf16 attention over L tokens, from the fastest backend.

    Work of at least two waves; lengths of 1024 and more.
    """
    columns = ["batch_size", "isl", "num_heads", "head_dim", "window_size", "attn_dtype", "latency"]
    data = joined(root, gpu["data"], "attention/*/*/context_attention_perf.parquet", columns)
    if not data:
        return {}
    keep = (data["head_dim"] == head_dim) & (data["window_size"] == 0) & (data["attn_dtype"] == "bfloat16")
    return _attention(data, keep, float(head_dim))


def mla_fit(root: Path, gpu: dict[str, Any]) -> dict[str, float]:
    """The same for multi-head latent attention: 192 wide queries and keys, 128 wide values."""
    columns = ["batch_size", "isl", "num_heads", "mla_dtype", "kv_cache_dtype", "step", "latency"]
    data = joined(root, gpu["data"], "mla/*/*/context_mla_perf.parquet", columns)
    if not data:
        return {}
    keep = (data["mla_dtype"] == "bfloat16") & (data["kv_cache_dtype"] == "bfloat16") & (data["step"] == 0)
    return _attention(data, keep, (192 + 128) / 2)


def _attention(data: dict[str, np.ndarray], keep: np.ndarray, width: float) -> dict[str, float]:
    keep = keep & (data["isl"] >= 1024) & (data["batch_size"] * data["num_heads"] * data["isl"] >= 2**20)
    if keep.sum() < 20:
        return {}
    shapes = np.stack([data[name][keep] for name in ("batch_size", "isl", "num_heads")], axis=1)
    shapes, seconds = least_by(shapes, data["latency"][keep] / 1e3)
    batch, length, heads = (shapes[:, i].astype(float) for i in range(3))
    rate = 2.0 * batch * heads * width * length**2 / seconds  # causal: half of 4*L^2
    return fit_attention(length, rate)


SMALLEST_MESSAGE = 2**20
"""Bytes below which training sends nothing that matters."""


def collective_fit(root: Path, gpu: dict[str, Any], kind: str) -> dict[str, Any]:
    """Seconds = latency(n) + sent/peak(n) * (1 + (x0/bytes)^p) of one collective on n GPUs of a node.

    sent = bytes*(n-1)/n, twice that for an all-reduce; bytes of the whole buffer.
    """
    columns = ["nccl_dtype", "num_gpus", "message_size", "op_name", "latency"]
    data = joined(root, gpu["data"], "comm/nccl/*/nccl_perf.parquet", columns)
    if not data:
        return {}
    keep = (data["op_name"] == kind) & (data["nccl_dtype"] == "half")
    keep &= data["message_size"] * 2 >= SMALLEST_MESSAGE
    keys = np.stack([data["num_gpus"][keep], data["message_size"][keep]], axis=1)
    if len(keys) < 10:
        return {}
    keys, seconds = median_by(keys, data["latency"][keep] / 1e3)
    return fit_collective(keys[:, 0].astype(float), keys[:, 1] * 2.0, seconds, kind)


def scan_fit(root: Path, gpu: dict[str, Any]) -> dict[str, float]:
    """Forward FLOP/s of the chunked gated delta rule, 4*heads*v*(k + 64) FLOPs a token (median)."""
    columns = ["kernel_source", "num_tokens", "head_k_dim", "num_v_heads", "head_v_dim", "phase", "latency"]
    data = joined(root, gpu["data"], "linear_attention/trtllm/*/gdn_perf.parquet", columns)
    if not data:
        return {}
    keep = (data["kernel_source"] == "chunk_gated_delta_rule") & (data["phase"] == "context")
    keep &= data["num_tokens"] >= 8192
    if not keep.any():
        return {}
    own = {name: column[keep] for name, column in data.items()}
    flops = 4.0 * own["num_v_heads"] * own["head_v_dim"] * (own["head_k_dim"] + 64) * own["num_tokens"]
    return {"rate": float(f"{np.median(flops / own['latency'] * 1e3):.4g}"), "rows": int(keep.sum())}


def gpu_row(root: Path, name: str) -> dict[str, Any]:
    gpu = GPUS[name]
    return {
        "sm": gpu["sm"],
        "hbm": gpu["hbm"],
        "nvlink": gpu["nvlink"],
        "peak": gpu["peak"],
        "gemm": {dtype: fit for dtype in gpu["peak"] if (fit := gemm_fit(root, gpu, dtype))},
        "attention": {str(d): fit for d in (64, 128, 192, 256) if (fit := attention_fit(root, gpu, d))},
        "mla": mla_fit(root, gpu),
        "scan": scan_fit(root, gpu),
        "collectives": {
            kind: fit
            for kind in ("all_gather", "reduce_scatter", "all_reduce", "alltoall")
            if (fit := collective_fit(root, gpu, kind))
        },
        "source": f"aiconfigurator-core 0.12.0 systems/data/{gpu['data']}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", type=Path, help="the unpacked aiconfigurator_core/systems")
    parser.add_argument("--gpus", nargs="*", default=list(GPUS))
    parser.add_argument(
        "--out", type=Path, default=Path(meshwright.cost.__file__).parent / "data" / "measured.json"
    )
    args = parser.parse_args()
    rows = {}
    for name in args.gpus:
        rows[name] = gpu_row(args.systems, name)
        print(name, json.dumps(rows[name]), flush=True)
    about = {
        "source": SOURCE,
        "units": "seconds, bytes/s, FLOP/s; message sizes in bytes of the whole buffer",
        "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    args.out.write_text(json.dumps({**about, "gpus": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
