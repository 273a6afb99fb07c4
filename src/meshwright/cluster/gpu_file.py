"""A GPU of one's own as one JSON file: what it is, and what its kernels and links were measured to do.

`meshwright calibrate hardware` writes such files; `--gpus 64x./my-gpu.json` and `gpu: ./my-gpu.json` in a
cluster's YAML file read them.

    {"meshwright": "gpu", "version": 1,
     "gpu": {"name": .., "based_on": .., the fields of a cluster file's `gpu`},
     "kernels": {constants of GEMM, attention, memory-bound work and collectives},
     "measured": {the raw times}, "source": "..", "date": ".."}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.cluster.spec import Gpu
from meshwright.errors import QuestionError

KIND = "gpu"
VERSION = 1
LARGEST_FILE = 5_000_000
DEEPEST = 6
NEEDED: tuple[tuple[str, ...], ...] = (
    ("sm",),
    ("hbm",),
    ("nvlink",),
    ("peak", "bf16"),
    ("attention", "128", "rate"),
    ("mla", "rate"),
    *(("gemm", "bf16", name) for name in ("e0", "k0", "t0", "eb", "a")),
    *(
        ("collectives", kind, name)
        for kind in ("all_gather", "reduce_scatter", "all_reduce", "alltoall")
        for name in ("peak", "latency", "x0", "power")
    ),
)
ABOVE_ZERO = frozenset({"sm", "hbm", "nvlink", "rate", "e0", "eb", "power"})


def is_gpu_file(text: str) -> bool:
    """Whether words name a GPU file rather than a kind of GPU."""
    return text.strip().lower().endswith(".json")


def load_gpu(path: Path) -> Gpu:
    """The GPU of a file, with its kernels; QuestionError says what is wrong with the file."""
    from meshwright.cluster.file import described_gpu

    data = _read(path)
    if not isinstance(data, Mapping) or data.get("meshwright") != KIND or "gpu" not in data:
        raise QuestionError(f"{path} is no GPU file: `meshwright calibrate hardware` writes one")
    if data.get("version") != VERSION:
        raise QuestionError(
            f"{path} is of version {str(data.get('version'))[:20]}; this Meshwright reads {VERSION}"
        )
    gpu = described_gpu(data["gpu"], str(path))
    source = str(data.get("source") or path)[:200]
    gpu = replace(gpu, sources=(source, *gpu.sources))
    kernels = data.get("kernels")
    if kernels is None:
        return gpu
    if not isinstance(kernels, Mapping):
        raise QuestionError(f"{path}: kernels holds a {type(kernels).__name__}, not a mapping")
    _check(kernels, f"{path}: kernels", 0)
    for place in NEEDED:
        _needed(kernels, place, path)
    return replace(gpu, kernels=dict(kernels))


def _read(path: Path) -> Any:
    try:
        if not path.is_file():
            raise QuestionError(f"there is no file {path}")
        if path.stat().st_size > LARGEST_FILE:
            raise QuestionError(f"{path} has over {LARGEST_FILE:,} bytes: too large for a GPU file")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise QuestionError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"{path} is not JSON: {str(error)[:100]}") from None


def _check(value: object, where: str, depth: int) -> None:
    """Numbers must be finite and not negative, and nothing may be nested absurdly."""
    if depth > DEEPEST:
        raise QuestionError(f"{where} is nested too deeply")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check(inner, f"{where}.{str(name)[:40]}", depth + 1)
            if name in ABOVE_ZERO and isinstance(inner, int | float) and not inner > 0:
                raise QuestionError(f"{where}.{name} is {inner}; it must be above 0")
    elif isinstance(value, float | int) and not isinstance(value, bool):
        small = where.endswith(("_bias", "bias"))  # how well a form fits may have either sign
        if not math.isfinite(value) or (value < 0 and not small):
            raise QuestionError(f"{where} is {value}; it must be a number of at least 0")
    elif not isinstance(value, bool | str | None):
        raise QuestionError(f"{where} holds a {type(value).__name__}")


def _needed(kernels: Mapping[str, Any], place: tuple[str, ...], path: Path) -> None:
    at: Any = kernels
    for name in place:
        if not isinstance(at, Mapping) or name not in at:
            raise QuestionError(f"{path}: kernels lacks {'.'.join(place)}")
        at = at[name]
    per_size = place[-1] in ("peak", "latency") and place[0] == "collectives"
    if per_size and not (isinstance(at, Mapping) and at and all(str(size).isdigit() for size in at)):
        raise QuestionError(f"{path}: kernels.{'.'.join(place)} holds one number for each group size")
    if not per_size and (isinstance(at, bool) or not isinstance(at, int | float)):
        raise QuestionError(f"{path}: kernels.{'.'.join(place)} is not a number")
