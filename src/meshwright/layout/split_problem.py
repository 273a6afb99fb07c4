"""The question an automatic pipeline split answers: costs, limits, and the problem in arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import QuestionError
from meshwright.job.spec import Recompute
from meshwright.layout.stages import describe_kinds, recompute_code
from meshwright.layout.table import Floats, Ints
from meshwright.model.spec import Model

SECONDS, STATIC, ACTIVATION = 0, 1, 2
"""Rows of every cost array below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCosts:
    """Costs of one block of each kind, in the order of `stages.block_kinds`; all arrays are [kinds].

    seconds           forward and backward time of a micro-batch; any unit does
    static_bytes      weights, gradients, optimizer state [bytes]
    activation_bytes  what one micro-batch in flight keeps [bytes]
    mtp_apart_bytes   static bytes of the embedding copy that MTP modules need on a rank of their own;
                      None keeps them beside the loss
    """

    seconds: Floats
    static_bytes: Floats
    activation_bytes: Floats
    mtp_apart_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLimits:
    """What each pipeline rank can hold.

    memory     [pp]       bytes for static state and activations [bytes]
    in_flight  [pp, vpp]  micro-batches of each chunk that are held at the peak [-]
    """

    memory: Floats
    in_flight: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Decoder layers of each model chunk (chunk k on rank k % pp), and how good that is.

    slowest    load of the busiest rank, in the unit of `SplitCosts.seconds`
    bound      no split within the same rules can be faster than this
    mtp_apart  MTP modules are on the chunk before the last one, which holds only the loss
    """

    layers: tuple[int, ...]
    slowest: float
    bound: float
    mtp_apart: bool = False

    @property
    def gap(self) -> float:
        """Relative distance from the lower bound; 0 where the split is proven optimal."""
        return max(0.0, self.slowest / self.bound - 1.0) if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """n = pp * vpp chunks to fill with L decoder layers.

    plain, recomputed  [3, L + 1]  running sums of the layers' costs, and of their recomputed twins'
    head_start         of each chunk, how many layers count as recomputed (block recompute, else 0)
    fixed              [3, n]      costs of embedding, MTP and head, where they sit
    low, high          [n]         fewest and most decoder layers of a chunk
    memory             [pp]        bytes; infinite where there is no limit
    in_flight          [pp, vpp]
    """

    pp: int
    vpp: int
    plain: Floats
    recomputed: Floats
    head_start: int
    fixed: Floats
    low: Ints
    high: Ints
    memory: Floats
    in_flight: Floats

    @property
    def num_layers(self) -> int:
        return int(self.plain.shape[1]) - 1

    @property
    def uniform(self) -> bool:
        """All decoder layers cost the same wherever they are (bytes count only where they are limited)."""
        rows = slice(0, 1) if np.isinf(self.memory).all() else slice(0, 3)
        each = np.diff(self.plain[rows], axis=1)
        twins = np.diff(self.recomputed[rows], axis=1)
        if self.head_start == 0:
            return bool(np.allclose(each, each[:, :1], rtol=1e-12))
        return bool(np.allclose(each, each[:, :1], rtol=1e-12) and np.allclose(twins, each, rtol=1e-12))

    def segment(self, start: Ints, stop: Ints) -> Floats:
        """Costs of a chunk that holds decoder layers start to stop - 1; shape [3, *start.shape]."""
        middle = np.minimum(start + self.head_start, stop)
        middle = np.maximum(middle, start)
        return np.asarray(
            self.recomputed[:, middle]
            - self.recomputed[:, start]
            + self.plain[:, stop]
            - self.plain[:, middle]
        )

    def rank_costs(self, layers: Ints) -> Floats:
        """Seconds and bytes of each rank for layers [n]; shape [2, pp]."""
        stop = np.cumsum(layers)
        chunk = (self.segment(stop - layers, stop) + self.fixed).reshape(3, self.vpp, self.pp)
        held = chunk[STATIC] + self.in_flight.T * chunk[ACTIVATION]
        return np.stack([chunk[SECONDS].sum(axis=0), held.sum(axis=0)])


def prepare(
    model: Model,
    pp: int,
    vpp: int,
    costs: SplitCosts,
    limits: StageLimits | None,
    recompute: Recompute,
    mtp_apart: bool = False,
) -> Problem:
    """The problem in arrays; QuestionError where an array has the wrong shape or a value is not a cost.

    `mtp_apart` puts MTP modules on the chunk before the last, which then holds the loss alone.
    """
    kinds = describe_kinds(model)
    names = ("seconds", "static_bytes", "activation_bytes")
    table = np.stack([_checked(costs, name, len(kinds)) for name in names])
    pattern = np.asarray(model.pattern, dtype=np.int64)
    method, limit = recompute_code(recompute)
    twins = table[:, [index for index, kind in enumerate(kinds) if kind.recomputed]]
    head_start = 0 if method != "block" or limit is None or limit >= model.num_layers else limit
    kept = method == "none" or head_start > 0
    plain = _running_sum(table[:, pattern] if kept else twins[:, pattern])
    low = np.ones(pp * vpp, dtype=np.int64)
    low[[0, -1]] = 1 if pp * vpp == 1 else 0
    high = np.full_like(low, model.num_layers)
    apart_bytes = (costs.mtp_apart_bytes or 0.0) if mtp_apart else None
    if mtp_apart:
        low[-2], high[-1] = 0, 0
    memory = np.full(pp, np.inf) if limits is None else np.asarray(limits.memory, dtype=np.float64)
    in_flight = np.ones((pp, vpp)) if limits is None else np.asarray(limits.in_flight, dtype=np.float64)
    if memory.shape != (pp,) or in_flight.shape != (pp, vpp):
        raise QuestionError(
            f"limits have shapes {memory.shape} and {in_flight.shape}; pp {pp} x vpp {vpp} needs "
            f"({pp},) and ({pp}, {vpp})"
        )
    return Problem(
        pp=pp, vpp=vpp, plain=plain,
        recomputed=_running_sum(twins[:, pattern]), head_start=head_start,
        fixed=_fixed(model, table, pp * vpp, method == "uniform", apart_bytes),
        low=low, high=high, memory=memory, in_flight=in_flight,
    )  # fmt: skip


def _fixed(model: Model, table: Floats, chunks: int, recomputed: bool, apart_bytes: float | None) -> Floats:
    """Costs of embedding and vision on the first chunk, MTP and head at the end, [3, chunks].

    Away from the loss, MTP modules leave the time of their logits and loss to the last chunk.
    Source: megatron/core/models/gpt/gpt_model.py, _postprocess.
    """
    fixed = np.zeros((3, chunks))
    mtp = np.zeros(3)
    for index, kind in enumerate(describe_kinds(model)):
        if kind.role in ("embedding", "vision"):
            fixed[:, 0] += table[:, index]
        elif kind.role == "head":
            fixed[:, -1] += table[:, index]
        elif kind.role == "mtp" and kind.recomputed == recomputed:
            mtp += table[:, index] * model.mtp.count(kind.layer or 0)
    if apart_bytes is None:
        fixed[:, -1] += mtp
        return fixed
    of_heads = min(mtp[SECONDS], table[SECONDS, -1] * len(model.mtp))  # the head is the last kind
    fixed[SECONDS, -1] += of_heads
    fixed[:, -2] += mtp - np.array([of_heads, -apart_bytes, 0.0])
    return fixed


def _checked(costs: SplitCosts, name: str, kinds: int) -> NDArray[np.float64]:
    values = np.asarray(getattr(costs, name), dtype=np.float64)
    if values.shape != (kinds,) or not np.isfinite(values).all() or (values < 0).any():
        raise QuestionError(
            f"{name} of a split are {kinds} finite values of at least 0, one for each kind of block"
        )
    return values


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([np.zeros((3, 1)), np.cumsum(values, axis=1)], axis=1)
