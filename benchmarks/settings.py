"""Execution flags of a published run, from its settings row and from what its notes say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from meshwright.cluster.spec import Cluster
from meshwright.errors import QuestionError
from meshwright.job.precedents import all_recipes as read_recipes
from meshwright.job.spec import RECOMPUTE_MODULES, Execution, Recompute, Stack
from meshwright.job.stacks import default_execution, releases
from meshwright.model.spec import Model

Row = Mapping[str, str]

PRESETS = {
    "bf16_mixed": "bf16",
    "bf16_with_fp8_current_scaling_mixed": "fp8-current",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
PRECISIONS = {
    "BF16": "bf16", "FP16": "fp16", "FP8": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4",
    "FP8-rowwise": "fp8-block", "FP4/FP8": "nvfp4",
}  # fmt: skip


def precision_of(row: Row, settings: Row) -> str:
    """The precision recipe. Megatron Bridge's "FP8" is current scaling, NeMo's is delayed scaling."""
    preset = settings.get("mixed_precision_preset", "").removesuffix("()")
    if preset:
        return PRESETS[preset]
    said = row["precision"].upper() if row["precision"] != "FP8-rowwise" else row["precision"]
    if said not in PRECISIONS:
        raise QuestionError(f"precision {row['precision']!r} not published")
    if said == "FP8" and row["framework"] == "megatron-bridge":
        return "fp8-current"
    return PRECISIONS[said]


def release_of(row: Row) -> str:
    """The nearest release of the NVIDIA stack; older software counts as the oldest known."""
    found = re.fullmatch(r"(2[5-9]\.\d\d)(\.\d\d)?", row.get("release", ""))
    known = releases()
    if found is None:
        return known[-1] if "2026" in row.get("release", "") else known[0]
    return max((name for name in known if name <= found[0]), default=known[0])


def execution_of(row: Row, settings: Row, model: Model, cluster: Cluster) -> Execution:
    """Flags as published; where a row has no settings, those of its framework's recipes of the time."""
    notes = row.get("notes", "")
    if not settings:
        return _from_notes(row, notes, model, cluster)
    overlaps = {
        "tp": settings.get("tp_comm_overlap") != "False",
        "dp": settings.get("overlap_grad_reduce") != "False",
        "ep": settings.get("moe_a2a_overlap") == "True",
    }
    return Execution(
        recompute=_recompute(settings),
        dispatcher=dispatcher_of(settings),
        cuda_graphs=graphs_of(settings),
        overlaps=frozenset(kind for kind, on in overlaps.items() if on),
        fsdp=settings.get("use_megatron_fsdp") == "True" or row.get("fsdp") not in ("", "0", "1", None),
        grouped_mlp_fusion=settings.get("te_op_fuser") == "True",
        capacity_factor=1.0 if row.get("moe_mode") == "tokendrop" else None,
    )


def _recompute(settings: Row) -> Recompute:
    modules = tuple(
        m for m in json.loads(settings.get("recompute_modules") or "[]") if m in RECOMPUTE_MODULES
    )
    if settings.get("recompute_granularity", "").startswith("selective") and modules:
        return Recompute(granularity="selective", modules=modules)
    if settings.get("recompute_num_layers"):
        return Recompute(granularity="full", method="block", num_layers=int(settings["recompute_num_layers"]))
    return Recompute()


def dispatcher_of(settings: Row) -> str:
    """`flex` has a backend; a backend named beside another dispatcher type is not in use."""
    kind = settings.get("moe_token_dispatcher_type", "").split(" ")[0]
    if kind == "flex":
        return settings.get("moe_flex_dispatcher_backend") or "deepep"
    return kind or "alltoall"


def graphs_of(settings: Row) -> str:
    """The CUDA-graph scope: of the iteration, of layer parts, or none."""
    impl, scope = settings.get("cuda_graph_impl", ""), settings.get("cuda_graph_scope", "")
    if impl in ("", "none"):
        return "none"
    if impl == "full_iteration" or "full_iteration" in scope or (impl == "yes" and not scope):
        return "full"
    if "moe_router" in scope:
        return "moe" if "attn" in scope else "router"
    return "mlp" if "mlp" in scope else "attn"


def recipe_named(row: Row) -> str:
    """The recipe that a row's notes name, or ""."""
    found = re.search(r"recipe=(\w+)", row.get("notes", ""))
    return found[1] if found else ""


def _from_recipe(name: str, gpus: str, tuned: bool) -> Execution | None:
    """Flags of a shipped recipe, by its name or the short one that goes with the GPUs."""
    if not name:
        return None
    stem = name.removesuffix("_config")
    rows = [row for row in read_recipes() if row.recipe == name] or [
        row for row in read_recipes() if row.recipe.startswith(f"{stem}_") and gpus in row.recipe
    ]
    row = next((r for r in rows if (r.kind == "perf") == tuned), rows[0] if rows else None)
    if row is None:
        return None
    overlaps = {"tp": row.tp_overlap, "ep": row.ep_overlap, "dp": row.dp_overlap}
    modules = tuple(row.recompute_modules.split())
    graphs = {"transformer_engine": "moe", "full_iteration": "full", "local": "full"}
    return Execution(
        recompute=Recompute(
            granularity=row.recompute, modules=modules if row.recompute == "selective" else ()
        ),
        dispatcher=row.dispatcher or "alltoall",
        cuda_graphs=graphs.get(row.cuda_graphs, "none"),
        overlaps=frozenset(kind for kind, on in overlaps.items() if on),
        fsdp=row.fsdp,
    )


def _from_notes(row: Row, notes: str, model: Model, cluster: Cluster) -> Execution:
    gpus = f"{row['gpus']}gpu_{row['gpu'].lower()}"
    shipped = _from_recipe(recipe_named(row), gpus, "perf recipe" in notes)
    if shipped is not None:
        return shipped
    base = default_execution(Stack(release="25.09"), cluster.gpu, model.is_moe)
    overlaps = set(base.overlaps)
    framework = row.get("framework", "")
    buffers = framework.startswith(("nemo", "megatron-bridge")) or "tp-comm-overlap" in notes
    if not buffers or '"TP_COMM_OVERLAP": "False"' in notes:
        overlaps -= {"tp"}
    if "+1f1b overlap" in notes or "EP overlap on" in notes:
        overlaps |= {"ep"}
    if "AsyncTP" in notes or "async TP" in notes:
        overlaps |= {"tp"}
    dispatcher = next((d for d in ("deepep", "hybridep") if d in notes.lower()), "alltoall")
    return Execution(
        recompute=_recompute_from_notes(notes),
        dispatcher=dispatcher,
        cuda_graphs="moe"
        if "graphs moe_router" in notes
        else "attn"
        if '"LAYER_CUDA_GRAPH": "1"' in notes
        else "none",
        overlaps=frozenset(overlaps),
        fsdp=is_sharded(row),
        capacity_factor=1.0 if row.get("moe_mode") == "tokendrop" else None,
    )


def is_sharded(row: Row) -> bool:
    """Weights are sharded over data parallel ranks."""
    said = row.get("fsdp", "")
    return said not in ("", "0") and (said != "1" or "FSDP" in row.get("notes", ""))


def _recompute_from_notes(notes: str) -> Recompute:
    if re.search(r"act_ckpt=true|AC=full|full recompute|recompute=full|recompute ON", notes, re.IGNORECASE):
        return Recompute(granularity="full")
    if re.search(r"recompute=norm, act", notes):
        return Recompute(granularity="selective", modules=("layernorm", "moe_act"))
    if re.search(r"AC=(selective|per-op SAC)", notes):
        return Recompute(granularity="selective", modules=("mlp",))
    return Recompute()
