"""Every weight of a model, with its shape and the way Megatron Core divides it.

This list is the one source of parameter totals, parameters per rank, weight bytes and GEMM shapes.
A linear map y = x Wᵀ has shape (n, k): n outputs, k inputs. `split` says which side tensor
parallelism divides: "n" (column parallel), "k" (row parallel) or None (whole on every rank).

Source: megatron/core/transformer (attention.py, multi_latent_attention.py, mlp.py, moe/), with the
Transformer Engine layer spec, in which MLA's down projections are duplicated on every TP rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from meshwright.model.spec import (
    Attention,
    Ffn,
    Layer,
    LinearAttention,
    Mamba2,
    Mixer,
    Mla,
    Mlp,
    Model,
    Moe,
    Normalization,
)

Part = Literal["attn", "linear", "mamba", "mlp", "moe", "norm", "embedding", "head", "mtp", "vision", "other"]
Grid = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight (or `copies` equal ones: routed experts)."""

    name: str
    shape: tuple[int, ...]
    """(n, k) of a linear map, or the plain shape of a vector."""
    part: Part
    split: Literal["n", "k"] | None = None
    grid: Grid = "dense"
    """dense: divided by TP; expert: copies divided by EP, each divided by ETP."""
    copies: int = 1
    active: int = 1
    """How many of the copies one token uses."""
    gemm: bool = False
    """It is multiplied with every token's activations."""
    trained: bool = True
    """False for buffers that a checkpoint holds and the optimizer does not (expert bias)."""

    @property
    def count(self) -> int:
        """Elements of all copies."""
        return math.prod(self.shape) * self.copies

    @property
    def active_count(self) -> int:
        """Elements that work on one token."""
        return math.prod(self.shape) * self.active


def norm_elements(normalization: Normalization, width: int) -> int:
    """Parameters of one norm over `width` elements."""
    return {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}[normalization] * width
