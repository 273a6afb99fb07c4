"""Looking up the guide's tables: which rows speak about a size, a model, a sequence length, a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from meshwright.job.precedents import model_key
from meshwright.planner.guide.spec import GuideQuestion, Network, guide

Row = Mapping[str, Any]


def dense_rows(parameters: float) -> tuple[Row, ...]:
    """The rows of the dense table for that many parameters: two on a boundary, none above 500 B.

    On a boundary is within 2 %, because models are called by a rounded size.
    """
    table = guide()["dense_table"]
    slack = table["boundary_tolerance"]["value"]
    size = parameters / 1e9
    return tuple(
        row
        for row in table["rows"]
        if row["billions"][0] * (1 - slack) <= size <= row["billions"][1] * (1 + slack)
    )


def moe_row(names: Iterable[str]) -> Row | None:
    """The row of the MoE table for a model of one of these names."""
    wanted = {model_key(name) for name in names}
    return next((row for row in moe_rows() if wanted & {model_key(name) for name in row["names"]}), None)


def moe_rows() -> tuple[Row, ...]:
    """The MoE table."""
    return tuple(guide()["moe_table"]["rows"])


def nearest_moe_row(total: float | None, active: float | None) -> Row:
    """The row whose total and active parameters are nearest, in orders of magnitude."""

    def distance(row: Row) -> float:
        sizes = ((total, row["total_b"]), (active, row["active_b"]))
        return math.hypot(*(math.log(asked / 1e9 / row_b) for asked, row_b in sizes if asked))

    return min(moe_rows(), key=distance)


def sequence_rows(seq_length: int) -> tuple[Row, ...]:
    """The rows of the sequence table: two on a boundary (2048, 8192, 32768)."""
    return tuple(
        row
        for row in guide()["sequence_table"]["rows"]
        if row["tokens"][0] <= seq_length and (row["tokens"][1] is None or seq_length <= row["tokens"][1])
    )


def topology_row(network: Network) -> Row:
    """The row of the topology table."""
    return next(row for row in guide()["topology"]["rows"] if row["network"] == network)


def network_of(question: GuideQuestion) -> Network | None:
    """The network that was named, or that the GPUs imply: one NVLink domain, or several joined."""
    if question.network is not None or question.world is None:
        return question.network
    return "nvlink" if question.world <= question.nvlink_domain else "infiniband"


def span(values: Iterable[int]) -> str:
    """A range of degrees or GPUs.

    >>> span((4, 8)), span((8, 8)), span((256, 1024))
    ('4-8', '8', '256-1,024')
    """
    low, high = values
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
