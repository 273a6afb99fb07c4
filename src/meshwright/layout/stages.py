"""What a pipeline stage is made of: the kinds of blocks, and how many of each a chunk holds.

A block is a decoder layer, a multi-token-prediction module, the embedding, the vision tower or the
head. Layers whose activations are fully recomputed are kinds of their own, since they cost otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LayoutError
from meshwright.job.spec import Recompute
from meshwright.layout.notation import Chunk
from meshwright.model.spec import Model

Role = Literal["layer", "mtp", "embedding", "vision", "head"]
RECOMPUTED = "+recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKind:
    """One kind of block; `layer` indexes `model.kinds` for decoder layers and MTP modules."""

    name: str
    role: Role
    layer: int | None = None
    recomputed: bool = False


@lru_cache(maxsize=256)
def describe_kinds(model: Model) -> tuple[BlockKind, ...]:
    """The kinds of blocks of a model, in the order of `block_kinds`."""
    layers = [BlockKind(name=f"layer{index}", role="layer", layer=index) for index in range(len(model.kinds))]
    modules = _distinct(model.mtp)
    mtp = [
        BlockKind(name="mtp" if number == 0 else f"mtp{number}", role="mtp", layer=layer)
        for number, layer in enumerate(modules)
    ]
    plain = layers + mtp
    twins = [
        BlockKind(name=kind.name + RECOMPUTED, role=kind.role, layer=kind.layer, recomputed=True)
        for kind in plain
    ]
    ends = [BlockKind(name="embedding", role="embedding")]
    if model.vision is not None:
        ends.append(BlockKind(name="vision", role="vision"))
    ends.append(BlockKind(name="head", role="head"))
    return (*plain, *twins, *ends)


def block_kinds(model: Model) -> tuple[str, ...]:
    """Names of the last axis of `SplitTable.counts`.

    In this order: `layer0`, `layer1`, ... for each of `model.kinds`; `mtp` (then `mtp1`, ... where the
    modules differ); the fully recomputed twins of those (`layer0+recompute`, ...); `embedding` with
    learned positions; `vision` where there is a tower; `head` (final norm, output projection, loss).
    """
    return tuple(kind.name for kind in describe_kinds(model))


def count_blocks(
    model: Model, chunks: Sequence[Chunk], recompute: Recompute
) -> NDArray[np.int16]:  # [chunks, kinds]
    """How many blocks of each kind every chunk holds; decoder layers are taken in order.

    Full recompute puts layers on their recomputed twins: all of them (uniform), or the first
    `num_layers` of each chunk (block). With `block` Megatron does not recompute MTP modules.

    Source: megatron/core/transformer/transformer_block.py and multi_token_prediction.py,
    _checkpointed_forward.
    """
    kinds = len(model.kinds)
    modules = _distinct(model.mtp)
    base = kinds + len(modules)
    size = _sizes(chunks)
    stop = np.cumsum(size[:, 0])
    _same_number("decoder layers", int(stop[-1]), model.num_layers)
    _same_number("MTP modules", int(size[:, 1].sum()), len(model.mtp))
    start = stop - size[:, 0]
    passed = _running_count(model.pattern, kinds)  # [layers + 1, kinds]
    middle = start + np.minimum(_recomputed_layers(recompute, model.num_layers), size[:, 0])

    counts = np.zeros((len(chunks), len(describe_kinds(model))), dtype=np.int16)
    counts[:, base : base + kinds] = passed[middle] - passed[start]
    counts[:, :kinds] = passed[stop] - passed[middle]
    if model.mtp:
        offset = base if recompute.granularity == "full" and recompute.method == "uniform" else 0
        ends = np.cumsum(size[:, 1])
        seen = _running_count(tuple(modules.index(layer) for layer in model.mtp), len(modules))
        counts[:, offset + kinds : offset + base] = seen[ends] - seen[ends - size[:, 1]]
    counts[:, 2 * base] = size[:, 2]
    if model.vision is not None:
        counts[:, 2 * base + 1] = size[:, 2]
    counts[:, -1] = size[:, 3]
    return counts


def _sizes(chunks: Sequence[Chunk]) -> NDArray[np.int64]:
    """How often each chunk holds t, m, E, L; [chunks, 4]."""
    size = np.zeros((len(chunks), 4), dtype=np.int64)
    size[:, 0] = [chunk.count("t") for chunk in chunks]
    for number, chunk in enumerate(chunks):
        if len(chunk) != size[number, 0]:
            size[number, 1:] = [chunk.count(letter) for letter in "mEL"]
    return size


def recompute_code(recompute: Recompute) -> tuple[str, int | None]:
    """What of a recompute setting decides the counts: equal codes give equal counts."""
    if recompute.granularity != "full":
        return "none", None
    return recompute.method, recompute.num_layers if recompute.method == "block" else None


def _recomputed_layers(recompute: Recompute, num_layers: int) -> int:
    """Most layers of one chunk that are fully recomputed."""
    method, limit = recompute_code(recompute)
    if method == "none":
        return 0
    return num_layers if limit is None else limit


@lru_cache(maxsize=256)
def _running_count(pattern: tuple[int, ...], kinds: int) -> NDArray[np.int64]:
    """Of each kind, how many come before each position; shape [len(pattern) + 1, kinds]."""
    passed = np.zeros((len(pattern) + 1, kinds), dtype=np.int64)
    passed[np.arange(1, len(pattern) + 1), np.asarray(pattern, dtype=np.int64)] = 1
    counted: NDArray[np.int64] = np.cumsum(passed, axis=0)
    return counted


def _distinct(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


def _same_number(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        change = f"add {wanted - found}" if found < wanted else f"remove {found - wanted}"
        raise LayoutError(f"the pipeline layout places {found} {what} and the model has {wanted}; {change}")
