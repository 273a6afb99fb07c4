"""The layouts nearest to one that cannot start, and the nearest GPU counts."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.layout import Layout
from meshwright.layout.rules.numbers import divisors
from meshwright.model.spec import Attention, Mla, Model

REACH_DOWN = 16
REACH_UP = 4
"""How far from the asked degree the search looks: a sixteenth of it to four times it."""

AXES = ("tp", "pp", "cp", "ep", "etp")


def nearest_layouts(
    asked: Layout,
    world: int,
    model: Model | None = None,
    seq_length: int | None = None,
    *,
    shipped: Collection[Layout] = (),
    most_tp: int | None = None,
    count: int = 5,
) -> tuple[Layout, ...]:
    """Layouts that can start on `world` GPUs, nearest to the asked one first.

    Distance is the number of doublings between the degrees, summed; among equals the one that spreads
    the change wins. Layouts that ship as recipes of the model (`shipped`) come before all others.
    most_tp bounds TP where it must stay inside an NVLink domain. Both grids divide the world:
    world % (pp*tp*cp) == 0 and world % (pp*ep*etp) == 0.
    """
    axes = [np.array(_choices(name, asked, world, model, seq_length, most_tp)) for name in AXES]
    tp, pp, cp, ep, etp = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    per_stage = world // pp  # pp divides the world by construction
    fits = (per_stage % (tp * cp) == 0) & (per_stage % (ep * etp) == 0)
    rows = np.stack([tp, pp, cp, ep, etp], axis=1)[fits]  # [N, 5]
    change = np.abs(np.log2(rows / np.array([getattr(asked, name) for name in AXES])))
    favoured = _is_shipped(rows, shipped)
    order = np.lexsort((rows[:, 0], (change**2).sum(axis=1).round(6), change.sum(axis=1).round(6), ~favoured))
    return tuple(_layout(rows[index], asked) for index in order[:count])


def heads_of(model: Model) -> tuple[tuple[int, int], ...]:
    """(query heads, key-value heads) of every attention kind in the model."""
    mixers = [kind.mixer for kind in model.kinds]
    softmax = [(mixer.heads, mixer.kv_heads) for mixer in mixers if isinstance(mixer, Attention)]
    latent = [(mixer.heads, mixer.heads) for mixer in mixers if isinstance(mixer, Mla)]
    return (*softmax, *latent)


def heads_allow(model: Model, tp: int) -> bool:
    """Query heads divide over TP, and KV heads divide or are replicated evenly.

    Source: megatron/core/transformer/transformer_config.py, __post_init__.
    """
    return all(heads % tp == 0 and (kv % tp == 0 or tp % kv == 0) for heads, kv in heads_of(model))


def _choices(
    name: str, asked: Layout, world: int, model: Model | None, seq_length: int | None, most_tp: int | None
) -> list[int]:
    """Legal values of one degree that are not too far from the asked one; 1 is always there."""
    wanted = getattr(asked, name)
    near = [d for d in divisors(world) if wanted / REACH_DOWN <= d <= wanted * REACH_UP]
    if name == "etp":
        near = [d for d in near if d in (1, wanted)]
    if name == "tp":
        near = [d for d in near if d <= (most_tp or d) and (model is None or heads_allow(model, d))]
    if name == "pp" and model is not None:
        near = [d for d in near if d <= model.num_layers]
    if name == "cp" and seq_length is not None:
        near = [d for d in near if d == 1 or seq_length % (2 * d) == 0]
    if name == "ep" and model is not None:
        near = [d for d in near if d == 1 or (model.num_experts and model.num_experts % d == 0)]
    return sorted({1, *near})


def _is_shipped(rows: NDArray[np.int64], shipped: Collection[Layout]) -> NDArray[np.bool_]:
    known = {tuple(getattr(layout, name) for name in AXES) for layout in shipped}
    return np.array([tuple(row.tolist()) in known for row in rows], dtype=bool)


def _layout(row: NDArray[np.int64], asked: Layout) -> Layout:
    degrees = {name: int(value) for name, value in zip(AXES, row, strict=True)}
    same_pipeline = degrees["pp"] == asked.pp
    return Layout(**degrees, vpp=asked.vpp if same_pipeline else 1, sp=degrees["tp"] > 1)
