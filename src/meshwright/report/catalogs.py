"""Terminal tables of the models and GPUs that are known by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.report.fitted import Foldable
from meshwright.report.text import count, gib


def models_screen(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not rows:
        return Text("No model by that name.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("active", justify="right", no_wrap=True)
    table.add_column("Hugging Face id", overflow="fold")
    for row in rows:
        total, active = row["parameters"], row["active_parameters"]
        table.add_row(
            row["name"],
            count(total) if total else "?",
            count(active) if active and active != total else "",
            row["hugging_face_id"] or "",
        )
    return Foldable(table)


def gpus_screen(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not rows:
        return Text("No GPU by that name.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GPU", "GiB", "HBM GB/s", "bf16 TFLOP/s", "fp8", "NVLink GB/s", "NVL", "NIC Gb/s"):
        table.add_column(name, justify="left" if name == "GPU" else "right", no_wrap=name == "GPU")
    for row in rows:
        peak = row["peak_flops"]
        table.add_row(
            row["name"], gib(row["usable_memory_bytes"]), f"{row['hbm_bytes_per_second'] / 1e9:,.0f}",
            f"{peak.get('bf16', 0) / 1e12:,.0f}", f"{peak['fp8'] / 1e12:,.0f}" if peak.get("fp8") else "",
            f"{row['nvlink_bytes_per_second'] / 1e9:,.0f}", str(row["nvlink_domain"]),
            f"{row['nic_bytes_per_second'] * 8 / 1e9:,.0f}",
        )  # fmt: skip
    return Foldable(table)
