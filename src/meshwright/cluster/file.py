"""A cluster of one's own, described in a YAML file.

name: our-cluster          # optional
nodes: 16                  # or gpus: 128
gpus_per_node: 8
nvlink_domain: 8           # optional
network_gbps: 400          # optional: bandwidth of a GPU, one direction
gpu: H100                  # a known name, a GPU file (./my-gpu.json), or a GPU of one's own:
gpu:
  based_on: H100           # the rest is inherited; without it every figure must be given
  name: H100-custom
  usable_memory_gib: 79.1
  hbm_gb_per_s: 3350
  nvlink_gb_per_s: 450
  nic_gbps: 400
  nvlink_domain: 8
  gpus_per_node: 8
  architecture: Hopper
  peak_tflops: {bf16: 989, fp8: 1979}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.cluster.catalog import GBIT, GIGA, TERA, find_gpu
from meshwright.cluster.gpu_file import is_gpu_file, load_gpu
from meshwright.cluster.parse import build_cluster, gpu_count
from meshwright.cluster.spec import GIB, Cluster, Gpu
from meshwright.errors import QuestionError, did_you_mean

LARGEST_FILE = 1_000_000
"""A cluster takes a screenful; a larger file is some other file."""

_CLUSTER_FIELDS = ("name", "nodes", "gpus", "gpus_per_node", "nvlink_domain", "network_gbps", "gpu")
_GPU_UNITS = {
    "usable_memory_gib": ("usable_memory", GIB),
    "memory_gb": ("memory_marketing", GIGA),
    "hbm_gb_per_s": ("hbm", GIGA),
    "nvlink_gb_per_s": ("nvlink", GIGA),
    "nic_gbps": ("nic", GBIT),
}
_GPU_COUNTS = ("nvlink_domain", "gpus_per_node")
_GPU_WORDS = ("name", "architecture", "compute_capability", "notes")
_GPU_FIELDS = ("based_on", *_GPU_WORDS, *_GPU_UNITS, *_GPU_COUNTS, "peak_tflops")
_GPU_NEEDED = ("name", "architecture", "usable_memory_gib", "hbm_gb_per_s", "nvlink_gb_per_s", "nic_gbps",
               *_GPU_COUNTS, "peak_tflops")  # fmt: skip
_FORMATS = ("bf16", "fp16", "fp8", "fp4", "tf32", "int8")


def load_cluster(path: Path) -> Cluster:
    """The cluster that a YAML file describes; QuestionError names the file and the field."""
    content = _fields(_read(path), _CLUSTER_FIELDS, str(path))
    if "gpu" not in content:
        raise QuestionError(f"{path}: the field gpu is missing (a known name, or a mapping with based_on)")
    gpu = described_gpu(content["gpu"], str(path))
    per_node = _optional_count(content, "gpus_per_node", path)
    return build_cluster(
        gpu,
        _world(content, per_node or gpu.gpus_per_node, path),
        per_node,
        _optional_count(content, "nvlink_domain", path),
        _number(content["network_gbps"], f"{path}: network_gbps") if "network_gbps" in content else None,
        _word(content.get("name", ""), f"{path}: name"),
    )


def _read(path: Path) -> object:
    import yaml

    try:
        size = path.stat().st_size
        if not path.is_file():
            raise QuestionError(f"{path} is not a file")
        if size > LARGEST_FILE:
            raise QuestionError(f"{path} has {size:,} bytes: too large for a cluster file")
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise QuestionError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines() or [type(error).__name__]
        raise QuestionError(f"{path} is not readable YAML: {reason[0][:200]}") from None


def _world(content: Mapping[str, Any], per_node: int, path: Path) -> int:
    """Number of GPUs from `nodes` or `gpus`; both together must agree."""
    nodes, gpus = _optional_count(content, "nodes", path), _optional_count(content, "gpus", path)
    if nodes is None and gpus is None:
        raise QuestionError(f"{path}: give the size as nodes: N or gpus: N")
    if nodes is not None and gpus is not None and nodes * per_node != gpus:
        raise QuestionError(
            f"{path}: {nodes} nodes of {per_node} are {nodes * per_node} GPUs, but gpus says {gpus}"
        )
    return gpus if gpus is not None else gpu_count((nodes or 0) * per_node)


def described_gpu(described: object, where: str) -> Gpu:
    """A known GPU by name, a GPU file, one changed from a known one, or one given in full."""
    if isinstance(described, str):
        if is_gpu_file(described):
            return load_gpu(Path(where).parent / described)
        return find_gpu(described)
    content = _fields(described, _GPU_FIELDS, f"{where}: gpu")
    values = _gpu_values(content, where)
    if "based_on" in content:
        base = find_gpu(_word(content["based_on"], f"{where}: gpu.based_on"))
        values["peak"] = {**base.peak, **values.get("peak", {})}
        sources = (f"{where}, based on {base.name}", *base.sources)
        return replace(base, **{"name": f"{base.name}-custom", "aliases": (), "sources": sources, **values})
    missing = [field for field in _GPU_NEEDED if field not in content]
    if missing:
        raise QuestionError(f"{where}: gpu lacks {', '.join(missing)}; give them, or based_on: H100")
    if "bf16" not in values["peak"]:
        raise QuestionError(f"{where}: gpu.peak_tflops lacks bf16")
    return Gpu(**{"sources": (where,), **values})


def _gpu_values(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of `Gpu` that are given, in bytes and seconds."""
    values: dict[str, Any] = {
        word: _word(content[word], f"{where}: gpu.{word}") for word in _GPU_WORDS if word in content
    }
    for field, (attribute, unit) in _GPU_UNITS.items():
        if field in content:
            values[attribute] = _number(content[field], f"{where}: gpu.{field}") * unit
    for field in _GPU_COUNTS:
        if field in content:
            values[field] = _count(content[field], f"{where}: gpu.{field}")
    if "peak_tflops" in content:
        peaks = _fields(content["peak_tflops"], _FORMATS, f"{where}: gpu.peak_tflops")
        values["peak"] = {
            kind: _number(x, f"{where}: gpu.peak_tflops.{kind}") * TERA for kind, x in peaks.items()
        }
    return values


def _fields(content: object, known: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """`content` as a mapping with known fields only."""
    if not isinstance(content, Mapping):
        raise QuestionError(f"{where} holds a {type(content).__name__}; expected fields: {', '.join(known)}")
    for field in content:
        if field not in known:
            shown = str(field)[:40] if isinstance(field, str | int | float) else type(field).__name__
            hint = did_you_mean(shown, known) or f"; known: {', '.join(known)}"
            raise QuestionError(f"{where}: unknown field {shown!r}{hint}")
    return content


def _optional_count(content: Mapping[str, Any], field: str, path: Path) -> int | None:
    return _count(content[field], f"{path}: {field}") if field in content else None


def _count(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise QuestionError(f"{where} is {_shown(value)}, not a whole number")
    return gpu_count(value, f"({where})")


def _word(value: object, where: str) -> str:
    if not isinstance(value, str | int | float):
        raise QuestionError(f"{where} is {_shown(value)}, not a word")
    return str(value)[:200]


def _number(value: object, where: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and value > 0)
    ):
        raise QuestionError(f"{where} is {_shown(value)}, not a number above 0")
    return float(value)


def _shown(value: object) -> str:
    """A value for a message; containers by their kind, so that a hostile file cannot flood the screen."""
    return repr(value)[:60] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
