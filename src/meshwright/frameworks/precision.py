"""Number formats: Megatron's switches, Bridge's mixed_precision names, the planner's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.frameworks.reading import Plain
from meshwright.frameworks.spelling import table

FP8_RECIPES = {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}


def precision_of(options: Mapping[str, Any]) -> str:
    """bf16, fp16, fp8, fp8-current, fp8-block, mxfp8 or nvfp4, from Megatron's switches."""
    if options.get("fp8"):
        return FP8_RECIPES.get(str(options.get("fp8_recipe") or "delayed"), "fp8")
    if options.get("fp4"):
        return "nvfp4"
    return "fp16" if options.get("fp16") is True else "bf16"


def switches(precision: str) -> dict[str, Plain]:
    """Megatron's switches for a precision."""
    if precision == "fp16":
        return {"fp16": True}
    found: dict[str, Plain] = {"bf16": True}
    recipe = next((name for name, word in FP8_RECIPES.items() if word == precision), None)
    if recipe is not None:
        found |= {"fp8": "hybrid", "fp8_recipe": recipe}
    elif precision == "nvfp4":
        found["fp4"] = "e2m1"
    return found


def mixed_precision(options: Mapping[str, Any]) -> str:
    """Name of Bridge's mixed-precision recipe."""
    names: dict[str, str] = table()["precisions"]
    return names[precision_of(options)]


def of_mixed_precision(name: str) -> dict[str, Plain] | None:
    """Megatron's switches for a name of Bridge, None for one that is not known."""
    names: dict[str, str] = table()["precisions"]
    word = next((word for word, spelled in names.items() if word != "what" and name.endswith(spelled)), None)
    return switches(word) if word else None
