"""The GPUs that Meshwright knows: data rows with a source for every figure, and forgiving names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from meshwright.cluster.spec import GIB, Gpu
from meshwright.errors import QuestionError, did_you_mean
from meshwright.facts import load_json

GIGA = 1e9
TERA = 1e12
GBIT = 1e9 / 8
LONGEST_NAME = 64

_QUANTITIES = (
    "memory_gb",
    "usable_memory_gib",
    "hbm_gb_per_s",
    "nvlink_gb_per_s",
    "nvlink_domain",
    "gpus_per_node",
    "nic_gbps",
)
_MAKERS = r"nvidia|amd|huawei|tesla|instinct|hgx|dgx"
_FILLER = r"sxm\d?|oam|hbm\d?e?|tensor|core|gpus?|accelerator"


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; case, separators, makers' names and `SXM` do not matter.

    A short name that fits several cards ("A100") takes the usual SXM one, and the card's notes say so.
    QuestionError names the closest known names.

    >>> find_gpu("nvidia h100 80GB HBM3").name
    'H100-80GB-SXM'
    """
    keys = _keys(name) if len(name) <= LONGEST_NAME else ()
    gpu = next((_by_key()[key] for key in keys if key in _by_key()), None)
    if gpu is None:
        shown = name if len(name) <= LONGEST_NAME else name[:20] + "..."
        close = did_you_mean(shown, _spoken_names())
        raise QuestionError(
            f"unknown GPU {shown!r}{close or '; known: ' + ', '.join(gpu_names()) + '.'} "
            "A YAML file can describe a GPU of your own (--cluster my.yaml, with based_on)."
        )
    return gpu


def gpu_names() -> tuple[str, ...]:
    """Full names of all known GPUs, in the order of the data file."""
    return tuple(gpu.name for gpu in all_gpus())


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every known GPU."""
    return tuple(gpu_from_row(row) for row in load_json("meshwright.cluster", "gpus.json")["gpus"])


def gpu_from_row(row: Mapping[str, Any]) -> Gpu:
    """A `Gpu` from a data row; ValueError when a figure is missing or has no source.

    The row is in vendors' units (GB/s, TFLOP/s, Gbit/s, GiB of memory), the `Gpu` in bytes and seconds.
    """
    name = row["name"]
    value = {key: sourced_value(row, key, name) for key in _QUANTITIES}
    peaks = row["peak_tflops"]
    if "bf16" not in peaks:
        raise ValueError(f"{name}: peak_tflops has no bf16")
    peak = {kind: sourced_value(peaks, kind, name) * TERA for kind in peaks}
    sources = dict.fromkeys(
        figure["source"] for figure in (*(row[key] for key in _QUANTITIES), *peaks.values())
    )
    return Gpu(
        name=name,
        architecture=row["architecture"],
        usable_memory=value["usable_memory_gib"] * GIB,
        hbm=value["hbm_gb_per_s"] * GIGA,
        peak=peak,
        nvlink=value["nvlink_gb_per_s"] * GIGA,
        nvlink_domain=int(value["nvlink_domain"]),
        gpus_per_node=int(value["gpus_per_node"]),
        nic=value["nic_gbps"] * GBIT,
        compute_capability=row["compute_capability"],
        memory_marketing=value["memory_gb"] * GIGA,
        preliminary=row["preliminary"],
        notes=row["notes"],
        sources=tuple(sources),
        aliases=tuple(row["aliases"]),
    )


def sourced_value(row: Mapping[str, Any], key: str, name: str) -> float:
    """The number under `key`; ValueError unless it is above 0 and says where it comes from."""
    figure = row.get(key)
    if not isinstance(figure, Mapping) or not str(figure.get("source") or "").strip():
        raise ValueError(f"{name}: {key} has no source")
    value = figure.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name}: {key} is {value!r}, not a number above 0")
    return float(value)


def _keys(name: str) -> tuple[str, str]:
    """What is left of a name without case, separators, makers and filler words: as said, and sorted."""
    words = [re.sub("sxm\\d?$", "", word) for word in re.split(r"[^a-z0-9]+", name.lower())]
    kept = [
        re.sub(r"(?<=\d)g$", "gb", word) for word in words if not re.fullmatch(f"{_MAKERS}|{_FILLER}", word)
    ]
    return "".join(kept), "".join(sorted(kept))


@cache
def _by_key() -> Mapping[str, Gpu]:
    spoken = [(name, gpu) for gpu in all_gpus() for name in (gpu.name, *gpu.aliases)]
    return {key: gpu for name, gpu in spoken for key in _keys(name)}


def _spoken_names() -> Iterator[str]:
    for gpu in all_gpus():
        yield gpu.name
        yield from gpu.aliases
