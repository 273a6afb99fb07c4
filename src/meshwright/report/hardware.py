"""The screen of `calibrate hardware`: what the machine reached, beside what its data sheet says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def hardware_screen(content: Mapping[str, Any], path: str) -> RenderableType:
    """Rates of the kernels and links, and how to use the file."""
    gpu, kernels, measured = content["gpu"], content["kernels"], content["measured"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "reached", "of", "fit error"):
        table.add_column(name)
    gemm, peak = kernels["gemm"]["bf16"], gpu["peak_tflops"]["bf16"]
    best = max(2.0 * r["m"] * r["n"] * r["k"] / r["seconds"] for r in measured["gemm"]) / 1e12
    table.add_row("matrix products", f"{best:.3g} TFLOP/s", f"{peak:.4g}", f"{gemm['median_error']:.1%}")
    for size in sorted({str(row["head_dim"]) for row in measured["attention"]}, key=int):
        form = kernels["attention"][size]
        table.add_row(
            f"attention, head {size}", f"{form['rate'] / 1e12:.3g} TFLOP/s", "", f"{form['median_error']:.1%}"
        )
    moved = kernels["memory_bound"] * kernels["hbm"] / 1e9
    table.add_row("elementwise", f"{moved:,.0f} GB/s", f"{kernels['hbm'] / 1e9:,.0f}", "")
    for kind in sorted({row["kind"] for row in measured["collectives"]}):
        form = kernels["collectives"][kind]
        size = max(form["peak"], key=int)
        table.add_row(
            f"{kind.replace('_', '-')} on {size}", f"{form['peak'][size] / 1e9:.3g} GB/s",
            f"{gpu['nvlink_gb_per_s']:.4g}", f"{form['median_error']:.1%}",
        )  # fmt: skip
    return Group(
        Text(f"{gpu['name']}: {content['source']}\n", style="bold"),
        table,
        Text(f"\nwritten: {path}\nuse it: meshwright plan MODEL --gpus 64x{_shown(path)}"),
    )


def _shown(path: str) -> str:
    return path if path.startswith(("/", "./", "~")) else f"./{path}"
