"""A step time that no combination of flags undercuts: blocks at their cheapest, compute and pipeline only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshwright.cost.blocks import block_costs
from meshwright.cost.keys import distinct_keys, distinct_rows
from meshwright.cost.machine import machine_for
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.table import Floats, Ints
from meshwright.planner.pricing import Pricer

LAYER = ("tp", "cp", "ep", "etp", "mbs", "sp")


def least_seconds(pricer: Pricer, executions: Sequence[Execution]) -> Floats:
    """Seconds below which no geometry's step takes under any of some flags, whatever is recomputed. [G]

    M*t_max + (sum of stages - t_max)/vpp with each kind of block as cheap as under the best flags for it;
    messages, gradients and the optimizer only add to that, and so does recompute.
    """
    table = pricer.space.table
    if not len(table) or not executions:
        return np.zeros(len(table))
    plain = tuple(
        dict.fromkeys(replace(one, recompute=Recompute(), optimizer_offload=0.0) for one in executions)
    )
    first, key = distinct_rows([getattr(table, name) for name in LAYER])
    cheapest = _cheapest(pricer, first, plain)
    if cheapest is None:
        return np.zeros(len(table))
    found = np.zeros(len(table))
    for piece in pricer.pieces(np.arange(len(table)), plain[:1]):
        held = piece.view.counts[piece.table.split].sum(axis=2, dtype=np.float64)  # [n, D, K]
        many = piece.view.multiplicity[piece.table.split]  # [n, D]
        stage = np.einsum("ndk,nk->nd", held, cheapest[key[piece.rows]])
        slowest = np.where(many > 0, stage, 0.0).max(axis=1)
        total = (stage * many).sum(axis=1)
        found[piece.rows] = piece.table.num_microbatches * slowest + (total - slowest) / piece.table.vpp
    return found * pricer.question.calibration.factor("all")


def _cheapest(pricer: Pricer, first: Ints, executions: tuple[Execution, ...]) -> Floats | None:
    """Least seconds of a block, forward and backward, of each layer key. [Q, K]

    None where running beside another micro-batch may cost time, which the bound has no place for.
    """
    many = len(executions)
    some = pricer.space.table.rows(np.tile(first, many))
    code = np.repeat(np.arange(many), len(first))
    keys = distinct_keys(replace(some, executions=executions, execution=code))
    costs = block_costs(machine_for(pricer.question, keys))
    if costs.hidden.min(initial=0.0) < -1e-12:
        return None
    both = costs.both.sum(axis=2)[keys.of_row]
    return np.asarray(both.reshape(many, len(first), -1).min(axis=0))
