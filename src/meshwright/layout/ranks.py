"""Who sits where: coordinates, nodes and process groups of every rank, as array arithmetic.

Megatron Core lays two grids over the same ranks: the decoder grid (tp, cp, dp, pp) and the expert
grid (etp, ep, edp, pp). Ranks are placed on nodes in their numerical order.

Source: megatron/core/parallel_state.py, RankGenerator and initialize_model_parallel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meshwright.errors import LayoutError, QuestionError, did_you_mean
from meshwright.job.spec import positive
from meshwright.layout import groups
from meshwright.layout.groups import ABSENT, GTP, ORTHOGONAL, GridName
from meshwright.layout.layout import Layout
from meshwright.layout.table import Ints

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
TP_PP_DP_ORDER = "tp-cp-ep-pp-dp"
"""What `--use-tp-pp-dp-mapping` passes: data parallelism outside of the pipeline."""

AXES = ("tp", "pp", "dp", "ep", "cp")
"""Axes an order may name; those it leaves out are appended in this order where their size is 1."""

MOST_RANKS = 2_000_000
"""Far above any cluster; keeps hostile input from filling the memory."""

COORDINATES = ("tp", "cp", "dp", "pp", "ep", "etp", "edp")


@dataclass(frozen=True, kw_only=True)
class RankGrid:
    """All ranks of one layout.

    order                 the axes, fastest first (`TP_PP_DP_ORDER` for --use-tp-pp-dp-mapping)
    gtp, egtp             weight-sharding degree beyond tp, of the dense part and of the experts
    gpus_per_node         ranks of one node
    nvlink_domain         ranks that the scale-up network joins; None: one node
    gpus_per_rack         ranks of one rack; None: unknown
    hierarchical_cp       sizes of the levels of context parallelism, their product is cp
    distributed_optimizer_instances   replicas of the sharded optimizer state
    hybrid_cp             hybrid context parallelism builds groups of every power of two
    """

    layout: Layout
    world: int
    order: str = DEFAULT_ORDER
    gtp: int = 1
    egtp: int = 1
    gpus_per_node: int = 8
    nvlink_domain: int | None = None
    gpus_per_rack: int | None = None
    hierarchical_cp: tuple[int, ...] = ()
    distributed_optimizer_instances: int = 1
    hybrid_cp: bool = False

    def __post_init__(self) -> None:
        for name in ("world", "gtp", "egtp", "gpus_per_node", "distributed_optimizer_instances"):
            positive(name.replace("_", " "), getattr(self, name))
        for name in ("nvlink_domain", "gpus_per_rack"):
            if getattr(self, name) is not None:
                positive(name.replace("_", " "), getattr(self, name))
        if self.world > MOST_RANKS:
            raise QuestionError(f"{self.world} ranks are more than the {MOST_RANKS} that can be drawn")
        _check_degrees(self)
        _check_order(self)
        _check_instances(self)
        _check_context(self)

    @property
    def dp(self) -> int:
        """Data parallel size of the decoder grid."""
        return self.world // (self.layout.tp * self.layout.pp * self.layout.cp * self.gtp)

    @property
    def edp(self) -> int:
        """Data parallel size of the expert grid."""
        return self.world // (self.layout.etp * self.layout.ep * self.layout.pp * self.egtp)

    def sizes(self, grid: GridName) -> Mapping[str, int]:
        """Length of each axis of a grid; in the expert grid "tp" is ETP and "dp" is EDP."""
        one = self.layout
        if grid == "decoder":
            return {"tp": one.tp, "gtp": self.gtp, "cp": one.cp, "ep": 1, "dp": self.dp, "pp": one.pp}
        return {"tp": one.etp, "gtp": self.egtp, "cp": 1, "ep": one.ep, "dp": self.edp, "pp": one.pp}

    def axes(self, grid: GridName) -> tuple[str, ...]:
        """The axes of a grid, fastest first.

        The weight-sharding axis goes right after tp in the decoder grid, right before dp in the other.
        """
        named = self.order.lower().split("-")
        named += [axis for axis in AXES if axis not in named]
        at = named.index("tp") + 1 if grid == "decoder" else named.index("dp")
        return (*named[:at], "gtp", *named[at:])

    @cached_property
    def coordinates(self) -> Mapping[str, Ints]:
        """Where every rank sits on each axis; arrays [world] by name (see `COORDINATES`)."""
        decoder = groups.coordinates(self.sizes("decoder"), self.axes("decoder"))
        expert = groups.coordinates(self.sizes("expert"), self.axes("expert"))
        found = {axis: decoder[axis] for axis in ("tp", "cp", "dp", "pp")}
        found |= {"ep": expert["ep"], "etp": expert["tp"], "edp": expert["dp"]}
        if self.gtp * self.egtp > 1:
            found |= {"gtp": decoder["gtp"], "egtp": expert["gtp"]}
        return found

    @cached_property
    def node(self) -> Ints:
        """Node of every rank, [world]."""
        return np.arange(self.world) // self.gpus_per_node

    @cached_property
    def domain(self) -> Ints:
        """NVLink domain of every rank, [world]."""
        return np.arange(self.world) // (self.nvlink_domain or self.gpus_per_node)

    @cached_property
    def groups(self) -> Mapping[str, Ints]:
        """Every group that Megatron Core builds, by short name; arrays [groups, members] of ranks.

        Besides the kinds of `groups.ORTHOGONAL`: embd and pos-embd; hcp-0, hcp-1, ... (levels of
        hierarchical context parallelism); intra-dp-cp, intra-edp, inter-edp and dist-opt (instances of
        the distributed optimizer); hybrid-2, hybrid-4, ...; gtp and egtp.
        """
        kinds = ORTHOGONAL + (GTP if self.gtp * self.egtp > 1 else ())
        found = {kind.name: self._orthogonal(kind.grid, kind.axes) for kind in kinds}
        pp, instances = found["pp"], self.distributed_optimizer_instances
        found["embd"] = pp[:, [0, -1]] if self.layout.pp > 1 else pp
        found["pos-embd"] = pp[:, :1]
        for level, members in enumerate(groups.hierarchical_groups(found["cp"], self.hierarchical_cp)):
            found[f"hcp-{level}"] = members
        found["intra-dp-cp"] = groups.sliced_groups(found["dp-cp"], instances)
        if instances > 1:
            levels = (self.edp // instances, instances)
            found["intra-edp"], found["inter-edp"] = groups.hierarchical_groups(found["edp"], levels)
        else:
            found["intra-edp"] = found["edp"]
        sharded = self.gtp * self.egtp > 1
        together = len(found["tp-ep-pp"]) if sharded else self.edp // instances
        found["dist-opt"] = groups.joined_groups(found["tp-ep-pp"], together)
        if self.hybrid_cp:
            found |= {f"hybrid-{size}": each for size, each in groups.hybrid_groups(found["dp-cp"]).items()}
        return found

    def _orthogonal(self, grid: GridName, axes: tuple[str, ...]) -> Ints:
        return groups.orthogonal_groups(self.sizes(grid), self.axes(grid), axes)

    def group_of(self, name: str, rank: int) -> Ints | None:
        """Members of the group of that kind which holds `rank`; None where the rank is in none."""
        if name not in self.groups:
            raise QuestionError(f"unknown group {name!r}{did_you_mean(name, self.groups)}")
        if not 0 <= rank < self.world:
            raise QuestionError(f"rank {rank} is not among the {self.world} ranks 0 to {self.world - 1}")
        members = self.groups[name]
        rows = np.flatnonzero((members == rank).any(axis=1))
        if not len(rows):
            return None
        row: Ints = members[rows[0]]
        present: Ints = row[row != ABSENT]
        return present

    def reach(self, name: str) -> Reach:
        """How far the groups of one kind spread over nodes, NVLink domains and racks."""
        members = self.groups[name]
        spans = {
            "node": _Span.of(members, self.gpus_per_node),
            "domain": _Span.of(members, self.nvlink_domain or self.gpus_per_node),
        }
        rack = None if self.gpus_per_rack is None else _Span.of(members, self.gpus_per_rack)
        return Reach(
            name=name, groups=len(members), size=members.shape[1],
            nodes=spans["node"].most_places, crossing_nodes=spans["node"].crossing,
            together_in_node=spans["node"].fewest_together,
            domains=spans["domain"].most_places, crossing_domains=spans["domain"].crossing,
            together_in_domain=spans["domain"].fewest_together,
            racks=None if rack is None else rack.most_places,
            crossing_racks=None if rack is None else rack.crossing,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """The grid as plain values: the form of `meshwright ranks --json`."""
        columns = {
            "rank": np.arange(self.world),
            "node": self.node,
            "domain": self.domain,
            **self.coordinates,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return {
            "world_size": self.world,
            "order": self.order,
            "gpus_per_node": self.gpus_per_node,
            "nvlink_domain": self.nvlink_domain or self.gpus_per_node,
            "groups": {name: _without_gaps(members) for name, members in self.groups.items()},
            "reach": [self.reach(name).as_json() for name in self.groups],
            "ranks": [dict(zip(columns, row, strict=True)) for row in rows],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far the groups of one kind spread.

    nodes, domains, racks                 places that the widest group touches
    crossing_nodes, ..                    fraction of groups that touch more than one [0..1]
    together_in_node, together_in_domain  members that sit in one place, in the most scattered group
    """

    name: str
    groups: int
    size: int
    nodes: int
    crossing_nodes: float
    together_in_node: int
    domains: int
    crossing_domains: float
    together_in_domain: int
    racks: int | None = None
    crossing_racks: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Span:
    most_places: int
    crossing: float
    fewest_together: int

    @classmethod
    def of(cls, members: Ints, size: int) -> _Span:
        """Spread of groups [groups, members] over places of `size` consecutive ranks."""
        filled = np.where(members == ABSENT, members[:, :1], members)
        place = np.sort(filled // size, axis=1)
        index = np.arange(place.shape[1])
        begins = np.concatenate([np.ones((len(place), 1), dtype=bool), np.diff(place, axis=1) != 0], axis=1)
        run = index - np.maximum.accumulate(np.where(begins, index, 0), axis=1) + 1
        places = begins.sum(axis=1)
        return cls(int(places.max()), float((places > 1).mean()), int(run.max(axis=1).min()))


def _without_gaps(members: Ints) -> list[list[int]]:
    if (members != ABSENT).all():
        rows: list[list[int]] = members.tolist()
        return rows
    return [row[row != ABSENT].tolist() for row in members]


def _check_degrees(grid: RankGrid) -> None:
    if grid.gtp == grid.egtp == 1:
        grid.layout.check_world(grid.world)
        return
    one = grid.layout
    step = one.pp * math.lcm(one.tp * one.cp * grid.gtp, one.ep * one.etp * grid.egtp)
    if grid.world % step:
        below = grid.world // step * step
        raise LayoutError(
            f"{grid.world} GPUs are not a multiple of {step} = pp {one.pp} x lcm(tp {one.tp} x cp {one.cp} x "
            f"gtp {grid.gtp}, ep {one.ep} x etp {one.etp} x egtp {grid.egtp}); nearest that work: "
            + (f"{below} or {below + step}" if below else f"{step}")
        )


def _check_order(grid: RankGrid) -> None:
    named = grid.order.lower().split("-")
    for axis in named:
        if axis not in AXES:
            raise QuestionError(
                f"{axis!r} in the order {grid.order!r} is no axis; known are {', '.join(AXES)}"
            )
        if named.count(axis) > 1:
            raise QuestionError(f"the order {grid.order!r} names {axis} twice")
    for which in ("decoder", "expert"):
        sizes = grid.sizes("decoder" if which == "decoder" else "expert")
        for axis in AXES:
            if axis not in named and sizes[axis] > 1:
                raise LayoutError(
                    f"the order {grid.order!r} leaves out {axis}, whose size is {sizes[axis]} in the {which} "
                    f"grid; write {grid.order}-{axis} or use {axis} 1"
                )
    if grid.layout.pp == 1:
        return
    if not grid.order.endswith("pp") and grid.dp != grid.edp:
        raise LayoutError(
            f"the order {grid.order!r} does not end with pp, which needs dp {grid.dp} and edp {grid.edp} "
            f"to be equal; use {DEFAULT_ORDER}, or ep x etp = {grid.layout.tp * grid.layout.cp} (tp x cp)"
        )
    decoder, expert = grid._orthogonal("decoder", ("pp",)), grid._orthogonal("expert", ("pp",))
    if not np.array_equal(decoder, expert):
        raise LayoutError(
            f"in the order {grid.order!r} the pipeline groups of the decoder and the expert grid differ "
            f"({decoder[0].tolist()[:4]} and {expert[0].tolist()[:4]}); use {DEFAULT_ORDER}"
        )


def _check_instances(grid: RankGrid) -> None:
    count = grid.distributed_optimizer_instances
    for what, size in (("dp x cp", grid.dp * grid.layout.cp), ("edp", grid.edp)):
        if size % count:
            shared = math.gcd(grid.dp * grid.layout.cp, grid.edp)
            legal = [n for n in range(1, min(shared, 4096) + 1) if shared % n == 0]
            raise LayoutError(
                f"{count} distributed optimizer instances do not divide {what} = {size}; "
                f"these work: {', '.join(map(str, legal))}"
            )


def _check_context(grid: RankGrid) -> None:
    cp = grid.layout.cp
    for size in grid.hierarchical_cp:
        positive("a level of hierarchical context parallelism", size)
    if grid.hierarchical_cp and math.prod(grid.hierarchical_cp) != cp:
        said = " x ".join(map(str, grid.hierarchical_cp))
        raise LayoutError(
            f"hierarchical context parallel sizes {said} = {math.prod(grid.hierarchical_cp)}; their product "
            f"must be cp = {cp}"
        )
    if grid.hybrid_cp and grid.dp * cp % 2:
        raise LayoutError(
            f"hybrid context parallelism needs an even dp x cp, and it is {grid.dp} x {cp} = {grid.dp * cp}"
        )
