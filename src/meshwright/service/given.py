"""From plain values that were sent to the library's own: never a path, never a download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.errors import QuestionError

Given = Mapping[str, Any]
LARGEST_TEXT = 1_000_000
"""Characters of a config.json or of a script."""

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
PLAIN = (
    "seq_length", "global_batch", "precision", "optimizer", "grad_dtype", "task", "stack", "framework",
    "framework_version", "sp", "pipeline_layout",
)  # fmt: skip
CHANGES = ("num_layers", "mtp_num_layers", "vocab_size", "max_position")
OVERRIDES = ("gpus_per_node", "nvlink_domain", "network_gbps", "gpu_memory_gb")


def model_of(given: Given) -> Any:
    """The model of a question: of the catalog or of the uploaded text; never a path, never a download."""
    from meshwright.model import catalog
    from meshwright.model.change import override
    from meshwright.model.huggingface import read_config
    from meshwright.model.load import parse_config

    name, text = given.get("model"), given.get("config")
    if (name is None) == (text is None):
        raise QuestionError("give a model of the catalog, or the text of a config.json (one of the two)")
    if text is not None:
        said = str(given.get("config_name") or "config.json")
        config = parse_config(text.encode("utf-8", "replace"), said)
        stem = Path(said).stem
        model = read_config(config, name=None if stem == "config" else stem[:60] or None)
    else:
        model = catalog.find(str(name))
    changes = {key: given[key] for key in CHANGES if given.get(key) is not None}
    return override(model, changes) if changes else model


def gpus_of(given: Given) -> str | None:
    """The GPUs as they were written; never a file."""
    text = given.get("gpus")
    if text is not None and str(text).strip().lower().endswith((".yaml", ".yml")):
        raise QuestionError("write GPUs as 256xH100; files are not read here")
    return None if text is None else str(text)


def cluster_of(given: Given) -> Any:
    from meshwright.cluster.parse import parse_cluster

    cluster = parse_cluster(gpus_of(given) or "", **overrides_of(given))
    if cluster.world > MOST_GPUS:
        raise QuestionError(f"{cluster.world:,} GPUs are more than this server plans for ({MOST_GPUS:,})")
    return cluster


MOST_GPUS = 131_072


def overrides_of(given: Given) -> dict[str, Any]:
    return {name: given[name] for name in OVERRIDES if given.get(name) is not None}


def options_of(given: Given) -> Any:
    from meshwright.api.asking import Options
    from meshwright.job.spec import Recompute

    fields: dict[str, Any] = {name: given[name] for name in PLAIN if given.get(name) is not None}
    for name in DEGREES:
        value = given.get(name)
        if value is not None:
            fields[name] = tuple(value) if isinstance(value, list) else value
    row = given.get("recompute")
    if row is not None:
        fields["recompute"] = Recompute(**{**row, "modules": tuple(row.get("modules", ()))})
    execution = {k: v for k, v in (given.get("execution") or {}).items() if v is not None}
    if "overlaps" in execution:
        execution["overlaps"] = frozenset(execution["overlaps"])
    if "offload_modules" in execution:
        execution["offload_modules"] = tuple(execution["offload_modules"])
    fields["execution"] = execution
    return Options(**fields)
