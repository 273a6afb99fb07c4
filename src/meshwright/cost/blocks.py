"""Cost of one block of each kind for each layer key, by term: the table that stage times are summed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.cost.operations import Machine, Operation, operations
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Floats
from meshwright.model.spec import Moe

BLOCK_TERMS = ("gemm", "attention", "memory_bound", "recompute", "tp", "cp", "ep", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """Seconds of one block for one micro-batch. Arrays are [Q, K, T] with T in the order of BLOCK_TERMS."""

    forward: Floats
    backward: Floats

    @property
    def both(self) -> Floats:
        return self.forward + self.backward


def block_costs(x: Machine) -> BlockCosts:
    """Costs of every block kind of the model, for every key."""
    columns = [_block(x, kind) for kind in describe_kinds(x.model)]
    return BlockCosts(
        forward=np.stack([forward for forward, _ in columns], axis=1),
        backward=np.stack([backward for _, backward in columns], axis=1),
    )


def _block(x: Machine, kind: BlockKind) -> tuple[Floats, Floats]:
    """Forward and backward of one kind. Each [Q, T]"""
    size = (len(x.keys), len(BLOCK_TERMS))
    forward, backward = np.zeros(size), np.zeros(size)
    again = np.zeros(len(x.keys))
    for op in operations(x, kind):
        column = BLOCK_TERMS.index(op.term)
        forward[:, column] += op.forward
        backward[:, column] += op.backward
        again += np.where(_runs_again(x.keys, kind, op), op.forward, 0.0)
    backward[:, BLOCK_TERMS.index("recompute")] = again
    host = BLOCK_TERMS.index("host")
    launch = _host_seconds(x, kind)
    forward[:, host] = np.maximum(launch / 3 - forward.sum(axis=1), 0.0)
    backward[:, host] = np.maximum(launch * 2 / 3 - backward.sum(axis=1), 0.0)
    return forward, backward


def _runs_again(keys: Keys, kind: BlockKind, op: Operation) -> Floats:
    if kind.recomputed:
        return np.ones(len(keys), dtype=bool)
    again = np.zeros(len(keys), dtype=bool)
    for module in op.modules:
        again |= keys.recomputes(module)
    return again


def _host_seconds(x: Machine, kind: BlockKind) -> Floats:
    """Time the CPU needs to launch one block, forward and backward together. [Q]"""
    if kind.layer is None:
        return np.zeros(len(x.keys))
    form = x.kernels.table["host"]
    moe = isinstance(x.model.kinds[kind.layer].ffn, Moe)
    eager = form["moe_layer"] if moe else form["dense_layer"]
    graphs = [e.cuda_graphs for e in x.keys.executions]
    partly = form["graphed"] if not moe else eager * 0.5
    by_scope = {"none": eager, "router": eager * 0.7, "attn": eager * 0.7 if moe else form["graphed"], "moe": partly, "full": form["graphed"]}
    return np.asarray(np.array([by_scope[scope] for scope in graphs])[x.keys.execution])
