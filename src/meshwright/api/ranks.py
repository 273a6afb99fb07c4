"""`ranks`: who sits where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.cluster.parse import gpu_count, parse_cluster
from meshwright.cluster.spec import Cluster
from meshwright.job.spec import positive
from meshwright.layout.layout import Layout
from meshwright.layout.ranks import DEFAULT_ORDER, TP_PP_DP_ORDER, RankGrid


def ranks(
    world: int | str | Cluster,
    degrees: Mapping[str, Any] | None = None,
    *,
    order: str | None = None,
    use_tp_pp_dp_mapping: bool = False,
    gpus_per_node: int | None = None,
    nvlink_domain: int | None = None,
    gpus_per_rack: int | None = None,
    hierarchical_cp: tuple[int, ...] = (),
    distributed_optimizer_instances: int = 1,
    gtp: int = 1,
    egtp: int = 1,
    hybrid_cp: bool = False,
) -> RankGrid:
    """Every rank and every group of a layout.

    world    a number of ranks, or a cluster ("64xGB200", whose nodes and NVLink domain are taken)
    degrees  {tp, pp, vpp, cp, ep, etp}; those left out are 1
    Raises LayoutError when the world cannot be divided that way.
    """
    for what, size in (("GPUs per node", gpus_per_node), ("NVLink domain", nvlink_domain)):
        if size is not None:
            positive(what, size)
    node, domain = gpus_per_node, nvlink_domain
    if isinstance(world, str) and not world.strip().lstrip("+-").isdigit():
        world = parse_cluster(world)
    if isinstance(world, Cluster):
        node = node or world.gpus_per_node
        domain = domain or world.nvlink_domain
        count = world.world
    else:
        count = gpu_count(world, "ranks")
    return RankGrid(
        layout=Layout(**(degrees or {})),
        world=count,
        order=order or (TP_PP_DP_ORDER if use_tp_pp_dp_mapping else DEFAULT_ORDER),
        gtp=gtp,
        egtp=egtp,
        gpus_per_node=node or 8,
        nvlink_domain=domain,
        gpus_per_rack=gpus_per_rack,
        hierarchical_cp=hierarchical_cp,
        distributed_optimizer_instances=distributed_optimizer_instances,
        hybrid_cp=hybrid_cp,
    )
