"""The rank grid: GPUs in their nodes and NVLink domains, coloured by one kind of group.

Small clusters are drawn whole. In large ones what repeats is folded: of the nodes of a stage the first
ones and the last, of the stages likewise, with what was left out written in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.layout.groups import ABSENT, kind_of
from meshwright.layout.ranks import COORDINATES, RankGrid
from meshwright.layout.table import Ints
from meshwright.report.svg.draw import WIDTH, Picture, element, fit_width, legend, picture, rect, text

COLOURS = 8
WHOLE = 128
"""Ranks up to which every one is drawn."""
MOST_STAGES = 5


@dataclass(frozen=True, slots=True)
class Row:
    """A line of nodes; None in `nodes` stands for those left out, None for a row of rows left out."""

    label: str
    nodes: tuple[int | None, ...]
    left_out: str = ""


def grid_picture(grid: RankGrid, group: str = "tp", width: float = WIDTH) -> Picture:
    """Nodes as boxes, ranks as cells; cells of one colour inside a node share a group."""
    width = fit_width(width)
    of_rank = group_of_rank(grid, group)
    per_node = grid.gpus_per_node
    cell = 26.0 if grid.world <= WHOLE and width > 500 else 16.0
    columns = min(per_node, 4 if per_node <= 8 else 6)
    lines = -(-per_node // columns)
    box_wide, box_tall = columns * cell + 8, lines * cell + 20
    left = 64.0 if _staged(grid) else 4.0
    fits = max(int((width - left - 8) // (box_wide + 6)), 1)
    rows = list(_rows(grid, fits))
    parts: list[str] = []
    y = 6.0
    for row in rows:
        if not row.nodes:
            parts.append(text(left, y + 14, row.left_out, class_="soft small"))
            y += 24
            continue
        parts.append(text(4, y + box_tall / 2 + 4, row.label, class_="ink small"))
        for place, node in enumerate(row.nodes):
            x = left + place * (box_wide + 6)
            if node is None:
                parts.append(text(x + box_wide / 2, y + box_tall / 2 + 2, "…", anchor="middle"))
                parts.append(
                    text(
                        x + box_wide / 2,
                        y + box_tall / 2 + 16,
                        row.left_out,
                        anchor="middle",
                        class_="soft tiny",
                    )
                )
            else:
                parts.append(_node(grid, node, of_rank, x, y, cell, columns, box_wide, box_tall))
        y += box_tall + 8
    used = min(int(of_rank.max()) + 1, COLOURS)
    again = int(of_rank.max()) + 1 > COLOURS
    items = [
        (f"c{number}", f"{group} group {number}" + (f", {number + COLOURS}, …" if again else ""))
        for number in range(used)
    ]
    items.append(("box", f"node of {per_node}"))
    keys, tall = legend(items, 4, y + 4, width - 8)
    parts.append(keys)
    return picture("ranks", "Rank grid", _words(grid, group), width, y + 8 + tall, parts)


def group_of_rank(grid: RankGrid, group: str) -> Ints:
    """Number of the group of that kind that each rank is in, [world]."""
    members = grid.groups[group]
    found = np.zeros(grid.world, dtype=np.int64)
    index = np.broadcast_to(np.arange(len(members))[:, None], members.shape)
    present = members != ABSENT
    found[members[present]] = index[present]
    return found


def _words(grid: RankGrid, group: str) -> str:
    one, reach = grid.layout, grid.reach(group)
    nodes = -(-grid.world // grid.gpus_per_node)
    words = (
        f"{grid.world:,} ranks in {nodes:,} {'node' if nodes == 1 else 'nodes'}: TP {one.tp}, CP {one.cp}, "
        f"DP {grid.dp}, PP {one.pp}, EP {one.ep}, ETP {one.etp}, order {grid.order}. Coloured by {group}: "
        f"{reach.groups:,} groups of {reach.size:,} ({kind_of(group).carries}); "
    )
    domain = grid.nvlink_domain or grid.gpus_per_node
    if reach.crossing_domains:
        return words + f"{reach.crossing_domains:.0%} of them leave their NVLink domain of {domain}."
    if domain >= grid.world:
        return words + "all ranks are in one NVLink domain."
    return words + f"none leaves its NVLink domain of {domain}."


def _staged(grid: RankGrid) -> bool:
    """Stages are whole runs of nodes, so that each can have a row of its own."""
    per_stage = grid.world // grid.layout.pp
    return (
        grid.layout.pp > 1
        and grid.order.endswith("pp")
        and per_stage % grid.gpus_per_node == 0
        and grid.world > grid.gpus_per_node
    )


def _rows(grid: RankGrid, fits: int) -> Iterator[Row]:
    nodes = -(-grid.world // grid.gpus_per_node)
    if not _staged(grid):
        yield from _flow(grid, nodes, fits)
        return
    per_stage, pp = nodes // grid.layout.pp, grid.layout.pp
    shown = list(range(pp)) if pp <= MOST_STAGES else [*range(MOST_STAGES - 1), pp - 1]
    for stage in shown:
        if stage == pp - 1 and len(shown) < pp:
            yield Row("", (), f"… {pp - len(shown)} more stages of the same pattern …")
        first = stage * per_stage
        picked, left_out = _folded(first, per_stage, fits)
        yield Row(f"stage {stage}", picked, left_out)


def _flow(grid: RankGrid, nodes: int, fits: int) -> Iterator[Row]:
    """Nodes in lines, as text runs."""
    most = fits * (-(-WHOLE // (grid.gpus_per_node * fits)) if nodes * grid.gpus_per_node <= WHOLE else 5)
    for start in range(0, min(nodes, most), fits):
        last_line = start + fits >= most
        if last_line and nodes > most:
            picked, left_out = _folded(start, nodes - start, fits)
            yield Row("", picked, left_out)
        else:
            yield Row("", tuple(range(start, min(start + fits, nodes))))


def _folded(first: int, count: int, fits: int) -> tuple[tuple[int | None, ...], str]:
    """Nodes to draw of a run, and the words for those that are not."""
    if count <= fits:
        return tuple(range(first, first + count)), ""
    if fits < 3:
        return (first, None)[:fits], f"{count - 1:,} more"
    head = fits - 2
    return (*range(first, first + head), None, first + count - 1), f"{count - head - 1:,} more"


def _node(
    grid: RankGrid,
    node: int,
    of_rank: Ints,
    x: float,
    y: float,
    cell: float,
    columns: int,
    wide: float,
    tall: float,
) -> str:
    per_node = grid.gpus_per_node
    first = node * per_node
    domain = int(grid.domain[first])
    wider = (grid.nvlink_domain or per_node) > per_node
    head = f"node {node}" + (f" · {domain}" if wider else "")
    parts = [
        rect(x, y, wide, tall, "box", "", 3),
        text(x + 4, y + 11, head, class_="soft tiny"),
    ]
    for place, rank in enumerate(range(first, min(first + per_node, grid.world))):
        at_x, at_y = x + 4 + place % columns * cell, y + 15 + place // columns * cell
        where = "  ".join(f"{axis} {int(grid.coordinates[axis][rank])}" for axis in COORDINATES)
        hint = f"rank {rank}, node {node}, NVLink domain {domain}: {where}"
        parts.append(rect(at_x, at_y, cell - 1.5, cell - 1.5, f"c{int(of_rank[rank]) % COLOURS}", hint, 2))
        if cell > 20:
            parts.append(
                text(at_x + cell / 2 - 1, at_y + cell / 2 + 3, rank, anchor="middle", class_="on-tiny")
            )
    return element("g", *parts)
