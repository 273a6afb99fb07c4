"""Seconds of collectives: latency plus bytes over a bandwidth that ramps with the message size.

A group is described by its size and its stride (ranks between neighbours): with the order
tp-cp-ep-dp-pp, tp has stride 1, cp stride tp, ep stride etp, dp stride tp*cp. That and the NVLink
domain say how many members sit inside one domain and how many domains the group spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cluster.spec import Cluster
from meshwright.facts import load_json
from meshwright.layout.table import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Where the members of a group sit. Arrays broadcast.

    size    members
    inside  members inside one NVLink domain
    """

    size: Floats
    inside: Floats

    @property
    def domains(self) -> Floats:
        return np.asarray(np.maximum(self.size / self.inside, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Bandwidths and latencies of one cluster."""

    cluster: Cluster
    table: dict[str, Any]

    def group(self, size: Ints | Floats, stride: Ints | Floats) -> Group:
        """The group of `size` members, `stride` ranks apart."""
        inside = np.clip(self.cluster.nvlink_domain // np.maximum(stride, 1), 1, size)
        return Group(size=np.asarray(size, dtype=float), inside=np.asarray(inside, dtype=float))

    def _ramp(self, message: Floats) -> Floats:
        ramp = self.table["ramp"]
        return 1.0 / (1.0 + (ramp["x0"] / np.maximum(message, 1.0)) ** ramp["power"])

    def latency(self, group: Group) -> Floats:
        """Seconds before the first byte counts."""
        row = self.table["latency"]
        base = np.where(group.domains > 1, row["network"], row["nvlink"])
        return np.where(group.size > 1, base + row["per_hop"] * np.log2(np.maximum(group.size, 2)), 0.0)

    def gather(self, group: Group, message: Floats) -> Floats:
        """All-gather or reduce-scatter of a whole buffer of `message` bytes (an all-reduce is two).

        Ring across nodes: every domain sends through as many NICs as it has members.
        """
        link = self.cluster.gpu.nvlink * self.table["nvlink_efficiency"]["collective"]
        wire = self.cluster.network * self.table["network_efficiency"]["collective"] * group.inside
        bandwidth = np.where(group.domains > 1, np.minimum(link, wire), link) * self._ramp(message)
        return np.asarray(message * (group.size - 1) / group.size / bandwidth + self.latency(group))

    def alltoall(self, group: Group, sent: Floats, *, crossing: Floats | None = None) -> Floats:
        """All-to-all in which each rank holds `sent` bytes; of which `crossing` leave the domain."""
        away = (group.size - group.inside) / group.size
        cross = sent * away if crossing is None else crossing
        near = sent * (group.inside - 1) / group.size
        ramp = self._ramp(sent)
        link = self.cluster.gpu.nvlink * self.table["nvlink_efficiency"]["alltoall"] * ramp
        wire = self.cluster.network * self.table["network_efficiency"]["alltoall"] * ramp
        return np.asarray(np.maximum(near / link, cross / wire) + self.latency(group))

    def p2p(self, message: Floats, crosses: Floats) -> Floats:
        """One message to a neighbour, over NVLink or (where `crosses`) the network."""
        link = self.cluster.gpu.nvlink * self.table["nvlink_efficiency"]["p2p"]
        wire = self.cluster.network * self.table["network_efficiency"]["p2p"]
        row = self.table["latency"]
        latency = np.where(crosses, row["network"], row["nvlink"])
        return np.asarray(message / np.where(crosses, wire, link) + latency)


def network_of(cluster: Cluster) -> Network:
    return Network(cluster=cluster, table=load_json("meshwright.cost", "network.json"))
