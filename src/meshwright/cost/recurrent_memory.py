"""Activations of recurrent mixers, from the table of tensors that their kernels save.

The table, `data/recurrent.json`, names the source file and version behind every tensor. A token's width is
a sum of products of the mixer's own fields; all of it is split over TP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from meshwright.cost.sizes import Sizes
from meshwright.facts import load_json
from meshwright.layout.table import Floats
from meshwright.model.spec import LinearAttention, Mamba2

Row = Mapping[str, Any]


def saved_rows(kind: str) -> list[Row]:
    """Rows of the tensors that a mixer of this kind ("mamba2", "gdn") keeps for the backward pass."""
    return list(load_json("meshwright.cost", "recurrent.json")[kind]["saved"])


def saved_by(operation: str) -> list[str]:
    """Names of the tensors that one kernel saves, in the table's order.

    >>> saved_by("rms_norm_gated")
    ['x', 'rstd']
    """
    rows = [row for kind in ("mamba2", "gdn") for row in saved_rows(kind)]
    return [row["tensor"] for row in rows if row["operation"] == operation]


def recurrent_bytes(x: Sizes, mixer: LinearAttention | Mamba2) -> tuple[Floats, Floats]:
    """What a mixer keeps of one micro-batch, and the most alive beyond it in its backward pass. [bytes]

    The fullest moment is inside the scan's own backward kernels: what the norm, the gate and the output
    projection kept has been given back, the gradients and what the kernels compute again are there.
    """
    table = load_json("meshwright.cost", "recurrent.json")["mamba2" if isinstance(mixer, Mamba2) else "gdn"]
    sizes = _symbols(x, mixer) | {"chunk": table["chunk"]["tokens"]}
    measure: Callable[[Row], Floats] = lambda row: _bytes(x, row, sizes)  # noqa: E731
    saved = [row for row in table["saved"] if _there(row, mixer)]
    kept = sum(map(measure, saved), start=x.zeros)
    back = sum((measure(row) for row in saved if row.get("late")), start=x.zeros)
    return kept, sum(map(measure, table["backward"]), start=x.zeros) - back


def _there(row: Row, mixer: LinearAttention | Mamba2) -> bool:
    if row.get("when") != "grouped":
        return True
    return isinstance(mixer, LinearAttention) and mixer.v_heads > mixer.k_heads


def _symbols(x: Sizes, mixer: LinearAttention | Mamba2) -> dict[str, float | Floats]:
    if isinstance(mixer, LinearAttention):
        names = ("k_heads", "k_dim", "v_heads", "v_dim")
        return {name: getattr(mixer, name) for name in names}
    copies = np.maximum(mixer.groups, np.asarray(x.keys.tp * x.keys.cp, dtype=float))
    sizes: dict[str, float | Floats] = {
        name: getattr(mixer, name) for name in ("heads", "head_dim", "state", "groups", "conv")
    }
    return sizes | {"group_copies": np.where(x.keys.cp > 1, copies, mixer.groups)}


def _bytes(x: Sizes, row: Row, sizes: Mapping[str, float | Floats]) -> Floats:
    """Bytes of one tensor on a rank. [Q]"""
    width = sum(prod(sizes[f] if isinstance(f, str) else f for f in column) for column in row["columns"])
    tokens = 1.0 / x.keys.cp if row.get("once") else x.full / sizes.get(row.get("every", ""), 1.0)
    present = x.keys.cp > 1 if row.get("when") == "cp" else True
    element = x.saved if row["bytes"] == "linear" else row["bytes"]
    return np.asarray(element * width * tokens / x.keys.tp * present)
