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
    """

    seconds: Floats
    static_bytes: Floats
    activation_bytes: Floats


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

    slowest  load of the busiest rank, in the unit of `SplitCosts.seconds`
    bound    no split within the same rules can be faster than this
    """

    layers: tuple[int, ...]
    slowest: float
    bound: float

    @property
    def gap(self) -> float:
        """Relative distance from the lower bound; 0 where the split is proven optimal."""
        return max(0.0, self.slowest / self.bound - 1.0) if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """n = pp * vpp chunks to fill with L decoder layers.

    plain, recomputed  [3, L + 1]  running sums of the layers' costs, kept and fully recomputed
    head_start         of each chunk, how many layers count as recomputed (block recompute)
    fixed              [3, n]      costs of embedding, MTP and head, where they sit
    low                [n]         fewest decoder layers of a chunk
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
    memory: Floats
    in_flight: Floats

    @property
    def num_layers(self) -> int:
        return int(self.plain.shape[1]) - 1

    @property
    def uniform(self) -> bool:
        """All decoder layers cost the same wherever they are."""
        each = np.diff(self.plain, axis=1)
        twins = np.diff(self.recomputed, axis=1)
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
    model: Model, pp: int, vpp: int, costs: SplitCosts, limits: StageLimits | None, recompute: Recompute
) -> Problem:
    """The problem in arrays; QuestionError where an array has the wrong shape or a value is not a cost."""
    kinds = describe_kinds(model)
    table = np.stack(
        [_checked(costs, name, len(kinds)) for name in ("seconds", "static_bytes", "activation_bytes")]
    )
    find = {kind.name: index for index, kind in enumerate(kinds)}
    pattern = np.asarray(model.pattern, dtype=np.int64)
    twin = len({kind.layer for kind in kinds if kind.role == "mtp"}) + len(model.kinds)
    method, limit = recompute_code(recompute)
    head_start = {"none": 0, "uniform": model.num_layers}.get(
        method, model.num_layers if limit is None else limit
    )

    fixed = np.zeros((3, pp * vpp))
    fixed[:, 0] += table[:, find["embedding"]]
    if model.vision is not None:
        fixed[:, 0] += table[:, find["vision"]]
    fixed[:, -1] += table[:, find["head"]]
    of_layer = {kind.layer: i for i, kind in enumerate(kinds) if kind.role == "mtp" and not kind.recomputed}
    for layer in model.mtp:
        fixed[:, -1] += table[:, of_layer[layer] + (twin if method == "uniform" else 0)]

    low = np.ones(pp * vpp, dtype=np.int64)
    low[[0, -1]] = 0
    if pp * vpp == 1:
        low[0] = 1
    memory = np.full(pp, np.inf) if limits is None else np.asarray(limits.memory, dtype=np.float64)
    in_flight = np.ones((pp, vpp)) if limits is None else np.asarray(limits.in_flight, dtype=np.float64)
    if memory.shape != (pp,) or in_flight.shape != (pp, vpp):
        raise QuestionError(
            f"limits have shapes {memory.shape} and {in_flight.shape}; pp {pp} x vpp {vpp} needs "
            f"({pp},) and ({pp}, {vpp})"
        )
    return Problem(
        pp=pp, vpp=vpp,
        plain=_running_sum(table[:, pattern]), recomputed=_running_sum(table[:, twin + pattern]),
        head_start=head_start, fixed=fixed, low=low, memory=memory, in_flight=in_flight,
    )  # fmt: skip


def _checked(costs: SplitCosts, name: str, kinds: int) -> NDArray[np.float64]:
    values = np.asarray(getattr(costs, name), dtype=np.float64)
    if values.shape != (kinds,) or not np.isfinite(values).all() or (values < 0).any():
        raise QuestionError(
            f"{name} of a split are {kinds} finite values of at least 0, one for each kind of block"
        )
    return values


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([np.zeros((3, 1)), np.cumsum(values, axis=1)], axis=1)
