"""Seconds of collectives: latency plus bytes over a bandwidth that ramps with the message size.

A group is described by its size and its stride (ranks between neighbours): with the order
tp-cp-ep-dp-pp, tp has stride 1, cp stride tp, ep stride etp, dp stride tp*cp. That and the NVLink
domain say how many members sit inside one domain and how many domains the group spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cluster.spec import Cluster
from meshwright.cost.kernels import measured_relative
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
    """Bandwidths and latencies of one cluster.

    curves     measured NCCL curves of the GPU (or of a relative) inside one domain, by collective
    link       ratio of the GPU's NVLink to that of the measured GPU
    net_scale  calibration of the network's efficiency
    """

    cluster: Cluster
    table: Any
    curves: Any
    link: float
    net_scale: float = 1.0

    def group(self, size: Ints | Floats, stride: Ints | Floats) -> Group:
        """The group of `size` members, `stride` ranks apart."""
        inside = np.clip(self.cluster.nvlink_domain // np.maximum(stride, 1), 1, np.maximum(size, 1))
        return Group(size=np.asarray(size, dtype=float), inside=np.asarray(inside, dtype=float))

    def latency(self, group: Group, kind: str = "all_gather") -> Floats:
        """Seconds before the first byte counts."""
        near = self._curve(kind, group.inside)[1]
        far = self.table["network"]
        return np.where(
            group.domains > 1,
            near + far["latency"] + far["per_hop"] * group.domains,
            np.where(group.size > 1, near, 0.0),
        )

    def _curve(self, kind: str, members: Floats) -> tuple[Floats, Floats]:
        """Bandwidth [bytes/s] and latency [s] of a collective on `members` GPUs of one domain."""
        form = self.curves[kind]
        sizes = np.array(sorted(int(size) for size in form["peak"]))
        at = np.log2(np.maximum(members, 2))
        peak = np.interp(at, np.log2(sizes), [form["peak"][str(s)] for s in sizes])
        latency = np.interp(at, np.log2(sizes), [form["latency"][str(s)] for s in sizes])
        beyond = np.maximum(at - np.log2(sizes[-1]), 0.0)
        wide = self.table["wide_domain"]["latency_per_doubling"]
        return np.asarray(peak * self.link), np.asarray(latency + wide * beyond)

    def _ramp(self, kind: str, message: Floats) -> Floats:
        form = self.curves[kind]
        return np.asarray(1.0 + (form["x0"] / np.maximum(message, 1.0)) ** form["power"])

    def _wire(self, kind: str, message: Floats) -> Floats:
        """Bandwidth of one NIC for a message. [bytes/s]"""
        far = self.table["network"]
        ramp = 1.0 + (far["x0"] / np.maximum(message, 1.0)) ** far["power"]
        return np.asarray(self.cluster.network * far["efficiency"][kind] * self.net_scale / ramp)

    def gather(self, group: Group, message: Floats, kind: str = "all_gather") -> Floats:
        """All-gather or reduce-scatter of a whole buffer of `message` bytes.

        Inside a domain: the measured curve. Across domains a ring passes every byte through the NICs,
        and every domain sends through as many of them as it has members.
        """
        peak, near = self._curve(kind, group.inside)
        sent = message * (group.size - 1) / np.maximum(group.size, 1)
        inside = sent / peak * self._ramp(kind, message)
        far = self.table["network"]
        wire = self._wire("collective", message / np.maximum(group.size, 1)) * group.inside
        across = sent / wire + far["latency"] + far["per_hop"] * group.domains
        return np.asarray(
            np.where(
                group.size > 1, np.where(group.domains > 1, np.maximum(inside, across), inside) + near, 0.0
            )
        )

    def all_reduce(self, group: Group, message: Floats) -> Floats:
        """All-reduce of `message` bytes: the measured curve inside a domain, two ring passes across."""
        peak, near = self._curve("all_reduce", group.inside)
        sent = 2.0 * message * (group.size - 1) / np.maximum(group.size, 1)
        inside = sent / peak * self._ramp("all_reduce", message) + near
        return np.asarray(
            np.where(
                group.size > 1, np.where(group.domains > 1, 2.0 * self.gather(group, message), inside), 0.0
            )
        )

    def alltoall(self, group: Group, near: Floats, crossing: Floats) -> Floats:
        """NCCL all-to-all in which each rank sends `near` bytes inside its domain and `crossing` beyond."""
        peak, latency = self._curve("alltoall", group.inside)
        inside = near / peak * self._ramp("alltoall", near * group.inside / np.maximum(group.inside - 1, 1))
        across = crossing / self._wire("alltoall", crossing / np.maximum(group.domains - 1, 1))
        far = self.table["network"]
        more = np.where(group.domains > 1, far["latency"] + far["per_hop"] * group.domains, 0.0)
        return np.asarray(np.where(group.size > 1, np.maximum(inside, across) + latency + more, 0.0))

    def p2p(self, message: Floats, crosses: Floats) -> Floats:
        """One message to a neighbour, over NVLink or (where `crosses`) the network."""
        near = self.cluster.gpu.nvlink * self.table["p2p"]["nvlink_share"]
        far = self._wire("p2p", message)
        latency = np.where(crosses > 0, self.table["network"]["latency"], self.table["p2p"]["latency"])
        return np.asarray(message / np.where(crosses > 0, far, near) + latency)


def network_of(
    cluster: Cluster, net_scale: float = 1.0, measured: Mapping[str, Any] | None = None
) -> Network:
    """The network of a cluster; curves come from its own measurement, or the measured GPU nearest to it."""
    rows = load_json("meshwright.cost", "measured.json")["gpus"]
    relative, own = measured_relative(cluster.gpu)
    row = rows[relative]
    if measured and measured.get(cluster.gpu.name, {}).get("collectives"):
        row, own = measured[cluster.gpu.name], True
    link = cluster.gpu.nvlink / row["nvlink"]
    return Network(
        cluster=cluster,
        table=load_json("meshwright.cost", "network.json"),
        curves=row["collectives"],
        link=1.0 if own and abs(link - 1) < 0.02 else link,
        net_scale=net_scale,
    )
