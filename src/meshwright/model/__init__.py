"""What is trained: models from a catalog or a config.json, their parameters and FLOPs.

The public names load their module on first use, so that importing the room costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.model.catalog import Entry, entries, find, names
    from meshwright.model.change import override
    from meshwright.model.flops import flops_by_part, flops_per_token
    from meshwright.model.load import load_model
    from meshwright.model.parameters import Parameters, count_parameters
    from meshwright.model.spec import Model
    from meshwright.model.weights import (
        Weight,
        embedding_weights,
        head_weights,
        layer_weights,
        mtp_weights,
        padded_vocab,
        vision_weights,
    )

_HOME = {
    "Entry": "catalog",
    "Model": "spec",
    "Parameters": "parameters",
    "Weight": "weights",
    "count_parameters": "parameters",
    "embedding_weights": "weights",
    "entries": "catalog",
    "find": "catalog",
    "flops_by_part": "flops",
    "flops_per_token": "flops",
    "head_weights": "weights",
    "layer_weights": "weights",
    "load_model": "load",
    "mtp_weights": "weights",
    "names": "catalog",
    "override": "change",
    "padded_vocab": "weights",
    "vision_weights": "weights",
}

__all__ = [
    "Entry",
    "Model",
    "Parameters",
    "Weight",
    "count_parameters",
    "embedding_weights",
    "entries",
    "find",
    "flops_by_part",
    "flops_per_token",
    "head_weights",
    "layer_weights",
    "load_model",
    "mtp_weights",
    "names",
    "override",
    "padded_vocab",
    "vision_weights",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
