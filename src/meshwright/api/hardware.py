"""`calibrate hardware`: measure the machine at hand and keep it as a GPU file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.cluster.gpu_file import load_gpu
from meshwright.cluster.spec import Gpu
from meshwright.cost.gpu_data import gpu_file_content
from meshwright.cost.hardware import measure
from meshwright.errors import QuestionError


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGpu:
    """A measured machine: the file it is in, its content, and the GPU as Meshwright reads it back."""

    path: Path
    content: dict[str, Any]
    gpu: Gpu

    def as_dict(self) -> dict[str, Any]:
        """JSON form: the content of the file, and where it is."""
        return {"file": str(self.path), **self.content}


def calibrate_hardware(
    out: str | Path = "", *, device: str = "cuda", kind: str = "", ranks: int | None = None
) -> MeasuredGpu:
    """Measure GEMMs, attention, elementwise work and collectives of this machine, and write a GPU file.

    out     the file; by default the GPU's name in the present folder
    device  cuda or cpu
    kind    the catalog's name of the GPU, where torch's name is not known
    ranks   processes of the collectives; by default all visible GPUs (2 on a CPU)
    QuestionError without torch, without the device, or where the file cannot be written.
    """
    if kind:
        from meshwright.cluster.catalog import find_gpu

        find_gpu(kind)  # a slip is told before the minutes of measuring
    raw = measure(device, ranks=_ranks(device) if ranks is None else ranks)
    content = gpu_file_content(raw, kind)
    path = Path(out) if out else Path(f"{content['gpu']['name'].lower().replace(' ', '-')}.json")
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise QuestionError(f"{path} cannot be written: {error.strerror}") from None
    return MeasuredGpu(path=path, content=content, gpu=load_gpu(path))


def _ranks(device: str) -> int:
    if device != "cuda":
        return 2
    try:
        import torch
    except ImportError:
        return 1  # `measure` says what is missing
    return max(int(torch.cuda.device_count()), 1)
