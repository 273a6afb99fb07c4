"""Cost of one block of each kind for each layer key, by term: the table that stage times are summed from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.cost.launch import launch_seconds, waiting
from meshwright.cost.machine import Machine, Operation
from meshwright.cost.offload import exposed_seconds, host_bandwidth, hosted_bytes
from meshwright.cost.operations import operations
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Bools, Floats

BLOCK_TERMS = ("gemm", "attention", "memory_bound", "recompute", "tp", "cp", "ep", "host", "offload")
COMPUTE = tuple(BLOCK_TERMS.index(term) for term in ("gemm", "attention", "memory_bound", "recompute"))
_RECOMPUTE, _EP, _HOST, _OFFLOAD = (
    BLOCK_TERMS.index(term) for term in ("recompute", "ep", "host", "offload")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """Seconds of one block for one micro-batch. Arrays are [Q, K, T] with T in the order of BLOCK_TERMS.

    hidden  [Q, K] seconds that running beside another micro-batch saves: they are not in the others
    """

    forward: Floats
    backward: Floats
    hidden: Floats

    @property
    def both(self) -> Floats:
        return self.forward + self.backward


def block_costs(x: Machine, held: Bools | None = None) -> BlockCosts:
    """Costs of every block kind of the model, for every key.

    held  [K] False for kinds that no stage holds: they are left at 0
    """
    kinds = describe_kinds(x.model)
    size = (len(x.keys), len(kinds), len(BLOCK_TERMS))
    forward, backward, hidden = np.zeros(size), np.zeros(size), np.zeros(size[:2])
    known: Known = {}
    for column, kind in enumerate(kinds):
        if held is not None and not held[column]:
            continue
        parts = _parts(x, kind, known)
        forward[:, column], backward[:, column], hidden[:, column] = _block(x, kind, parts)
    hosted = hosted_bytes(x)
    if hosted is not None:
        bandwidth = host_bandwidth(x.question.cluster.gpu)
        for side in (forward, backward):
            compute = side[:, :, COMPUTE].sum(axis=2)
            side[:, :, _OFFLOAD] = exposed_seconds(hosted, compute, bandwidth) * (compute > 0)
    return BlockCosts(forward=forward, backward=backward, hidden=hidden)


Known = dict[tuple[str, int | None], tuple[Operation, ...]]
"""Operations by the role and layer of a block."""


def _parts(x: Machine, kind: BlockKind, known: Known) -> tuple[Operation, ...]:
    """The operations of a block, each worked out once: an MTP module holds a layer and a head."""
    key = kind.role, kind.layer
    if key not in known:
        own = tuple(operations(x, kind))
        if kind.role == "mtp":
            layer = _parts(x, replace(kind, role="layer"), known)
            head = _parts(x, replace(kind, role="head", layer=None), known)
            own = (*layer, *own, *head)
        known[key] = own
    return known[key]


def _block(x: Machine, kind: BlockKind, parts: tuple[Operation, ...]) -> tuple[Floats, Floats, Floats]:
    """Forward and backward of one kind, and what overlap hides. [Q, T], [Q, T], [Q]"""
    size = (len(x.keys), len(BLOCK_TERMS))
    forward, backward = np.zeros(size), np.zeros(size)
    for op in parts:
        column = BLOCK_TERMS.index(op.term)
        forward[:, column] += op.forward
        backward[:, column] += op.backward
        if kind.recomputed or op.modules:
            again = np.where(_runs_again(x.keys, kind, op), op.forward, 0.0)
            backward[:, _RECOMPUTE if column in COMPUTE else column] += again
    launch = launch_seconds(x, kind)
    alone = forward.sum(axis=1) + backward.sum(axis=1)
    alone = alone + waiting(alone, launch)
    _hide_expert_exchange(x, forward, backward)
    busy = forward.sum(axis=1) + backward.sum(axis=1)
    idle = waiting(busy, launch)
    forward[:, _HOST] = idle / 3
    backward[:, _HOST] = idle * 2 / 3
    return forward, backward, alone - busy - idle


def _hide_expert_exchange(x: Machine, forward: Floats, backward: Floats) -> None:
    """With EP overlap the exchange of one micro-batch runs beside the compute of another.

    What the compute is too short to hide stays whole; what it hides slows it, since both share the
    processors and the memory: `contention` of the hidden seconds stays.
    """
    overlapped = x.keys.flag(lambda e: "ep" in e.overlaps)
    form = x.network.table["overlap"]["ep"]
    exchange = forward[:, _EP] + backward[:, _EP]
    compute = forward[:, COMPUTE].sum(axis=1) + backward[:, COMPUTE].sum(axis=1)
    hidden = np.minimum(exchange, form["hidden"] * compute)
    exposed = exchange - hidden + form["contention"] * x.factor("ep", "contention") * hidden
    share = np.where(overlapped & (exchange > 0), exposed / np.maximum(exchange, 1e-12), 1.0)
    forward[:, _EP] *= share
    backward[:, _EP] *= share


def _runs_again(keys: Keys, kind: BlockKind, op: Operation) -> Bools:
    if kind.recomputed:
        return np.ones(len(keys), dtype=bool)
    again = np.zeros(len(keys), dtype=bool)
    for module in op.modules:
        again |= keys.recomputes(module)
    return again
