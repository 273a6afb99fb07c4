"""The rank grid on a terminal: nodes as rows, ranks coloured by group, and how far each group reaches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.layout.groups import kind_of
from meshwright.layout.ranks import COORDINATES, RankGrid
from meshwright.report.fitted import Foldable

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
MOST_NODES = 16
"""Nodes drawn before the rest is folded."""


def ranks_screen(grid: RankGrid, group: str = "tp", rank: int | None = None) -> RenderableType:
    """The grid coloured by one kind of group, the kinds of groups, and one rank's own groups if asked."""
    parts: list[RenderableType] = [_heading(grid, group), _nodes(grid, group), Text("")]
    parts.append(_reach(grid))
    if rank is not None:
        parts += [Text(""), _own_groups(grid, rank)]
    return Group(*parts)


def _heading(grid: RankGrid, group: str) -> Text:
    one = grid.layout
    return Text.assemble(
        (f"{grid.world:,} ranks", "bold"),
        f": TP {one.tp} CP {one.cp} DP {grid.dp} PP {one.pp}, "
        f"experts ETP {one.etp} EP {one.ep} EDP {grid.edp}, order {grid.order}\n"
        f"each cell is rank:{group}-group; nodes of {grid.gpus_per_node}, {_domains(grid)}\n",
    )


def _domains(grid: RankGrid) -> str:
    """How NVLink joins the ranks; a rack may join more GPUs than there are ranks."""
    size = grid.nvlink_domain or grid.gpus_per_node
    return "all in one NVLink domain" if size >= grid.world else f"NVLink domains of {size}"


def _nodes(grid: RankGrid, group: str) -> RenderableType:
    """One row a node; runs beyond the first nodes are folded into one line."""
    of_rank = _group_of_rank(grid, group)
    nodes = -(-grid.world // grid.gpus_per_node)
    shown = nodes if nodes <= MOST_NODES else MOST_NODES - 1
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", style="dim")
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    last_domain = -1
    for node in [*range(shown), *([nodes - 1] if shown < nodes else [])]:
        ranks = np.flatnonzero(grid.node == node)
        domain = int(grid.domain[ranks[0]])
        if node == nodes - 1 and shown < nodes:
            table.add_row("", f"... {_nodes_more(nodes - shown - 1)} of the same pattern ...", "")
        mark = f"node {node}" if domain == last_domain else f"domain {domain}  node {node}"
        last_domain = domain
        table.add_row(mark, _cells(ranks, of_rank), _spans(grid, ranks))
    return table


def _nodes_more(number: int) -> str:
    return "1 more node" if number == 1 else f"{number:,} more nodes"


def _cells(ranks: np.ndarray[tuple[int, ...], np.dtype[np.int64]], of_rank: list[int]) -> Text:
    text = Text()
    for rank in ranks.tolist()[:72]:
        found = of_rank[rank]
        text.append(f"{rank}:{found} ", style=COLOURS[found % len(COLOURS)])
    return text


def _spans(grid: RankGrid, ranks: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    """The coordinates that a node covers: pp 0  dp 0-1."""
    words = []
    for axis in COORDINATES:
        column = grid.coordinates[axis]
        if column.max() > 0 and axis in ("pp", "dp", "edp"):
            low, high = int(column[ranks].min()), int(column[ranks].max())
            words.append(f"{axis} {low}" if low == high else f"{axis} {low}-{high}")
    return "  ".join(words)


def _group_of_rank(grid: RankGrid, group: str) -> list[int]:
    members = grid.groups[group]
    found = np.zeros(grid.world, dtype=np.int64)
    for number, row in enumerate(members.T):
        present = row >= 0
        found[row[present]] = np.arange(len(members))[present]
        del number
    return [int(value) for value in found]


def _reach(grid: RankGrid) -> RenderableType:
    """Every kind of group: how many, how large, and whether its traffic leaves a node or a domain."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("group", "left"),
        ("number", "right"),
        ("size", "right"),
        ("leaves", "left"),
        ("carries", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=name in ("number", "size"))  # type: ignore[arg-type]
    for name in grid.groups:
        reach = grid.reach(name)
        if reach.size == 1:
            continue
        table.add_row(
            name,
            f"{reach.groups:,}",
            f"{reach.size:,}",
            Text(" ".join(_leaves(grid, name)) or "-"),
            kind_of(name).carries,
        )
    return Foldable(table)


def _leaves(grid: RankGrid, name: str) -> Iterator[str]:
    reach = grid.reach(name)
    if reach.crossing_nodes:
        yield f"{reach.crossing_nodes:.0%} of nodes" if reach.crossing_nodes < 1 else "node"
    if reach.crossing_domains:
        yield f"{reach.crossing_domains:.0%} of domains" if reach.crossing_domains < 1 else "NVLink"
    if reach.crossing_racks:
        yield f"{reach.crossing_racks:.0%} of racks" if reach.crossing_racks < 1 else "rack"


def _own_groups(grid: RankGrid, rank: int) -> RenderableType:
    """The groups of one rank."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=f"rank {rank}", title_justify="left")
    table.add_column("group")
    table.add_column("members", overflow="fold")
    for name in grid.groups:
        members = grid.group_of(name, rank)
        if members is not None and len(members) > 1:
            shown = ", ".join(str(member) for member in members[:16].tolist())
            table.add_row(name, shown + (f", ... ({len(members):,})" if len(members) > 16 else ""))
    return table
