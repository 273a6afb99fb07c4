"""Execution flags and number formats from the columns of a table of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import RECOMPUTE_MODULES, Execution, Job, Precision, Recompute
from meshwright.planner.batch_time import time_flags

Row = Mapping[str, str]


def said(row: Row, name: str) -> str:
    """A cell, empty where it is missing or a question mark."""
    value = (row.get(name) or "").strip()
    return "" if value in ("?", "-", "None", "none", "nan") else value


def whole(row: Row, name: str) -> int | None:
    """A whole number, None where the cell is empty."""
    text = said(row, name)
    if not text:
        return None
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise QuestionError(f"column {name} is {text[:40]!r}; it must be a whole number") from None


def hints(row: Row) -> str:
    """Cells of free words, where rows write flags that have no column."""
    return " ".join(row.get(name) or "" for name in ("other_settings", "notes", "precision", "model")).lower()


def precision_of(row: Row, settings: Row) -> Precision:
    """The precision recipe; Megatron Bridge's "FP8" is current scaling, elsewhere delayed scaling."""
    preset, text = said(settings, "mixed_precision_preset"), said(row, "precision").lower()
    for words, name in (
        ("mxfp8", "mxfp8"), ("nvfp4", "nvfp4"), ("fp8_current", "fp8-current"),
        ("fp8_subchannel", "fp8-block"),
    ):  # fmt: skip
        if words in preset or words in text:
            return name  # type: ignore[return-value]
    if "fp4" in text:
        return "nvfp4"
    if "fp8" in text:
        current = "bridge" in row.get("framework", "") or "tensorwise" in text or "rowwise" in text
        return "fp8-current" if current else "fp8"
    if text in ("", "?") and "mlperf" in said(row, "model").lower():
        return _of_mlperf(row)
    return "fp16" if text == "fp16" else "bf16"


def _of_mlperf(row: Row) -> Precision:
    """What NVIDIA's MLPerf Training code of the row's round runs in on its GPU."""
    round_ = re.match(r"v(\d+)\.(\d+)", row.get("release") or "")
    number, gpu = [int(part) for part in round_.groups()] if round_ else [0, 0], said(row, "gpu")
    found: Precision = next(
        form["precision"]
        for form in load_json("meshwright.planner", "mlperf.json")["rounds"]
        if number >= form["since"]
        and gpu.startswith(tuple(form.get("on", ("",))))
        and not gpu.startswith(tuple(form.get("not_on", ())))
    )
    return found


def job_of(job: Job, row: Row, settings: Row) -> Job:
    """Gradient and optimizer number formats that the settings state."""
    changes: dict[str, Any] = {}
    framework = row.get("framework", "")
    if said(settings, "grad_reduce_in_fp32") == "False" or "bridge" in framework or "nemo" in framework:
        changes["grad_dtype"] = "bf16"
    if said(settings, "grad_reduce_in_fp32") == "True":
        changes["grad_dtype"] = "fp32"
    if said(settings, "use_precision_aware_optimizer") == "True":
        changes["optimizer"] = "adam-precision-aware"
    if "muon" in (row.get("notes") or "").lower().split(":")[0]:
        changes["optimizer"] = "muon"
    return replace(job, **changes)


def execution_of(row: Row, settings: Row, usual: Execution) -> Execution:
    """Execution flags of the row and its settings over what the stack usually does."""
    changes: dict[str, Any] = {"recompute": recompute_of(row, settings)}
    sharding = said(row, "sharding").lower()
    changes["fsdp"] = (
        said(settings, "use_megatron_fsdp") == "True"
        or sharding.startswith("fsdp")
        or "fsdp" in row.get("framework", "").lower()
        or re.match(r"FSDP\b", row.get("notes") or "") is not None
        or said(row, "fsdp").lower() not in ("", "0", "1", "no", "off", "false")
    )
    if "fsdp2" in row.get("framework", "").lower():
        changes |= {
            "cross_entropy_fusion": False,
            "cross_entropy_impl": "torch",
            "overlaps": frozenset({"dp"}),
        }
    if "dist_opt=false" in sharding:
        changes["distributed_optimizer"] = False
    dispatcher = (
        said(settings, "moe_flex_dispatcher_backend")
        or said(settings, "moe_token_dispatcher_type").split(" ")[0]
    )
    hinted = next(
        (name for name in ("hybridep", "deepep", "allgather", "alltoall") if name in hints(row)), ""
    )
    dispatcher = hinted or dispatcher
    if dispatcher in ("allgather", "alltoall", "deepep", "hybridep"):
        changes["dispatcher"] = dispatcher
    if said(settings, "cpu_offloading_num_layers"):
        changes["cpu_offload_layers"] = whole(settings, "cpu_offloading_num_layers")
    if said(settings, "fsdp_double_buffer") == "True":
        changes["fsdp_double_buffer"] = True
    if said(settings, "te_op_fuser") == "True":
        changes["grouped_mlp_fusion"] = True
    if said(row, "moe_mode") == "tokendrop":
        changes["capacity_factor"] = 1.0
    if "optimizer_cpu_offload=true" in hints(row):
        changes["optimizer_offload"] = 1.0
    timing = time_flags(row, settings, usual)
    if "overlaps" in changes:
        timing.pop("overlaps", None)
    return replace(usual, **(changes | timing))


def recompute_of(row: Row, settings: Row) -> Recompute:
    """What is computed again, from the settings, the column `recompute` or the notes."""
    if said(settings, "recompute_granularity") or said(settings, "recompute_modules"):
        modules = tuple(re.findall(r"\w+", said(settings, "recompute_modules")))
        granularity = said(settings, "recompute_granularity").split(" ")[0] or "selective"
        if granularity == "full":
            return Recompute(granularity="full")
        return Recompute(granularity="selective", modules=modules)
    number = whole(settings, "recompute_num_layers")
    if number:
        return Recompute(granularity="full", method="block", num_layers=number)
    text = (said(row, "recompute") or noted_recompute(row)).lower()
    full = re.match(r"full(?:\s+(uniform|block))?(?:\s+(\d+))?", text)
    if full:
        method: Literal["uniform", "block"] = "block" if full.group(1) == "block" else "uniform"
        return Recompute(granularity="full", method=method, num_layers=int(full.group(2) or 1))
    modules = tuple(name for name in re.findall(r"[a-z_]+", text) if name in RECOMPUTE_MODULES)
    if modules:
        return Recompute(granularity="selective", modules=modules)
    if "selective" in text and "fsdp2" in row.get("framework", "").lower():
        # every second matrix product is recomputed: about what Megatron's `mlp` does
        return Recompute(granularity="selective", modules=("mlp",))
    return Recompute(granularity="selective", modules=("core_attn",)) if "selective" in text else Recompute()


def noted_recompute(row: Row) -> str:
    """What a row's notes say of recomputation, in the words of the column."""
    notes = row.get("notes") or ""
    full = r"act_ckpt=true|AC=full|full recompute|recompute=full|recompute ON|full activation"
    if re.search(full, notes, re.IGNORECASE):
        return "full"
    return "selective" if re.search(r"AC=(selective|per-op SAC)", notes) else ""


def says_recompute(row: Row, settings: Row) -> bool:
    """Whether anything states what is computed again."""
    columns = (
        "recompute_granularity",
        "recompute_modules",
        "recompute_num_layers",
        "cpu_offloading_num_layers",
    )
    stated = any(said(settings, name) for name in columns)
    return stated or bool(said(row, "recompute")) or bool(noted_recompute(row))
