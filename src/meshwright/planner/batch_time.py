"""What a row of a table of runs says of time: overlaps, graphs, dispatcher, release, packed samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshwright.job.precedents import Recipe, all_recipes
from meshwright.job.spec import Execution, OverlapKind
from meshwright.job.stacks import releases

Row = Mapping[str, str]

SHORT_SAMPLES = ((128, 0.15), (256, 0.6), (512, 0.25))
"""Lengths of the packed SQuAD samples that the fine-tuning benchmarks of NeMo and Megatron Bridge train on
(tokens, share): an estimate; mean about 250."""

GRAPHS = {"transformer_engine": "moe", "full_iteration": "full", "local": "full"}
"""CUDA-graph scope by what a recipe calls its implementation."""


def release_of(row: Row) -> str:
    """The release of the NVIDIA stack a row was run with; older software counts as the oldest known."""
    known, text = releases(), row.get("release") or ""
    found = re.fullmatch(r"(2[5-9]\.\d\d)(\.\d\d)?", text)
    if found is None:
        return known[-1] if "bridge" in text or "2026" in text else known[0]
    return max((name for name in known if name <= found[0]), default=known[0])


def time_flags(row: Row, settings: Row, usual: Execution) -> dict[str, Any]:
    """Flags that decide how long a step takes, as the settings, a named recipe or the notes state them."""
    recipe = None if settings else named_recipe(row)
    if recipe is not None:
        return _of_recipe(recipe)
    changes: dict[str, Any] = {"overlaps": _overlaps(row, settings, usual)}
    graphs = _graphs(settings)
    if graphs is not None:
        changes["cuda_graphs"] = graphs
    elif "graphs moe_router" in (row.get("notes") or ""):
        changes["cuda_graphs"] = "moe"
    elif '"LAYER_CUDA_GRAPH": "1"' in (row.get("notes") or ""):
        changes["cuda_graphs"] = "attn"
    kind = (settings.get("moe_token_dispatcher_type") or "").split(" ")[0]
    if kind and kind != "flex":  # a backend beside another type is not in use
        changes["dispatcher"] = kind
    elif settings and not kind and not settings.get("moe_flex_dispatcher_backend"):
        changes["dispatcher"] = "alltoall"  # what Megatron Core does when nothing is said
    return changes


def _overlaps(row: Row, settings: Row, usual: Execution) -> frozenset[OverlapKind]:
    """Settings first; user buffers are NeMo's and Megatron Bridge's habit, and no other framework's."""
    framework, notes = row.get("framework") or "", row.get("notes") or ""
    kinds: set[OverlapKind] = set(usual.overlaps)
    buffers = framework.startswith(("nemo", "megatron-bridge")) or "tp-comm-overlap" in notes
    if not buffers or '"TP_COMM_OVERLAP": "False"' in notes:
        kinds -= {"tp"}
    if re.search(r"async ?TP", notes, re.IGNORECASE):
        kinds |= {"tp"}
    if "+1f1b overlap" in notes or "EP overlap on" in notes:
        kinds |= {"ep"}
    elif not settings:
        kinds -= {"ep"}
    columns: tuple[tuple[OverlapKind, str], ...] = (
        ("tp", "tp_comm_overlap"), ("dp", "overlap_grad_reduce"), ("ep", "moe_a2a_overlap"),
    )  # fmt: skip
    for kind, column in columns:
        said = settings.get(column)
        if said:
            kinds = kinds | {kind} if said == "True" else kinds - {kind}
        elif settings and kind == "ep":
            kinds -= {"ep"}
    return frozenset(kinds)


def _graphs(settings: Row) -> str | None:
    """The CUDA-graph scope that settings name; None where there are no settings."""
    if not settings:
        return None
    implementation, scope = settings.get("cuda_graph_impl") or "", settings.get("cuda_graph_scope") or ""
    if implementation in ("", "none"):
        return "none"
    whole = implementation == "full_iteration" or "full_iteration" in scope
    if whole or (implementation == "yes" and not scope):
        return "full"
    if "moe_router" in scope:
        return "moe" if "attn" in scope else "router"
    return "mlp" if "mlp" in scope else "attn"


def named_recipe(row: Row) -> Recipe | None:
    """The shipped recipe that a row's notes name, by its full name or the short one for its GPUs."""
    found = re.search(r"recipe=(\w+)", row.get("notes") or "")
    if found is None:
        return None
    name, notes = found[1], row.get("notes") or ""
    stem = name.removesuffix("_config")
    gpus = f"{row.get('gpus')}gpu_{(row.get('gpu') or '').lower()}"
    rows = [recipe for recipe in all_recipes() if recipe.recipe == name] or [
        recipe for recipe in all_recipes() if recipe.recipe.startswith(f"{stem}_") and gpus in recipe.recipe
    ]
    tuned = "perf recipe" in notes
    return next((recipe for recipe in rows if (recipe.kind == "perf") == tuned), rows[0] if rows else None)


def _of_recipe(recipe: Recipe) -> dict[str, Any]:
    kinds = {"tp": recipe.tp_overlap, "ep": recipe.ep_overlap, "dp": recipe.dp_overlap}
    changes: dict[str, Any] = {
        "overlaps": frozenset(kind for kind, on in kinds.items() if on),
        "cuda_graphs": GRAPHS.get(recipe.cuda_graphs, "none"),
    }
    return changes | ({"dispatcher": recipe.dispatcher} if recipe.dispatcher else {})


def packing_of(row: Row, moe: bool) -> tuple[tuple[int, float], ...]:
    """Samples packed into a sequence: short ones in the fine-tuning benchmarks, else none are known."""
    tuned = row.get("task") in ("sft", "lora")
    ours = (row.get("framework") or "") in ("nemo", "megatron-bridge")
    return SHORT_SAMPLES if tuned and ours and not moe else ()
