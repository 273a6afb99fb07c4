"""Number formats: what a precision recipe keeps in memory and which GEMM rate it runs at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.cluster.spec import Gpu
from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import Precision
from meshwright.job.stacks import supported_precisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One precision recipe on one GPU generation. Bytes an element.

    gemm          number format of the linear layers' GEMMs ("bf16", "fp8", "fp4")
    weight        quantised copies of a linear layer's parameter that stay between steps (bf16: the weight)
    low_precision_weights  whether Megatron Bridge's recipe keeps those alone, without a bf16 weight
    saved_input   what a linear layer keeps of its input for the weight gradient
    quantise      bytes moved to quantise one input element (0 where nothing is quantised)
    """

    name: str
    gemm: str
    weight: float
    low_precision_weights: bool
    saved_input: float
    quantise: float

    @property
    def quantised(self) -> bool:
        return self.gemm not in ("bf16", "fp16")


def recipe_for(precision: Precision, gpu: Gpu) -> Recipe:
    """The recipe on this GPU; QuestionError where the GPU has no such tensor cores."""
    rows = load_json("meshwright.cost", "precision.json")["recipes"]
    row = rows[precision]
    if not _able(precision, row, gpu):
        able = ", ".join(name for name, other in rows.items() if _able(name, other, gpu))
        raise QuestionError(f"{gpu.name} has no tensor cores for {precision}; it can do {able}")
    weight = row["weight_by_architecture"].get(gpu.architecture, row["weight"])
    return Recipe(
        name=precision,
        gemm=row["gemm"],
        weight=weight,
        low_precision_weights=row["low_precision_weights"],
        saved_input=row["saved_input"],
        quantise=row["quantise"],
    )


def _able(name: str, row: Mapping[str, Any], gpu: Gpu) -> bool:
    """Whether the GPU multiplies in the recipe's number format, and its architecture (if known) so scaled."""
    supported = supported_precisions(gpu)
    return bool(gpu.peak.get(row["gemm"])) and (supported is None or name in supported)
