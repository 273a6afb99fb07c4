"""A cluster in words."""

from __future__ import annotations

from meshwright.cluster.catalog import GBIT, GIGA
from meshwright.cluster.spec import GIB, Cluster

_NOT_NVIDIA = ("CDNA2", "CDNA3", "CDNA4", "Da Vinci")


def describe(cluster: Cluster) -> str:
    """One line: GPUs, nodes, NVLink domains, network, memory.

    >>> from meshwright.cluster.parse import parse_cluster
    >>> describe(parse_cluster("64xGB200")).split(": ")[1].split("; ")[0]
    '16 nodes of 4, one NVLink domain of 72 (64 in use)'
    """
    gpu = cluster.gpu
    return (
        f"{_count(cluster.world, 'GPU')} {gpu.name}: {_nodes(cluster)}, {_domains(cluster)}; "
        f"network {cluster.network / GBIT:,.0f} Gbit/s a GPU, "
        f"scale-up {gpu.nvlink / GIGA:,.0f} GB/s a GPU each way, "
        f"{gpu.usable_memory / GIB:,.1f} GiB usable a GPU"
        + (" (preliminary figures)" if gpu.preliminary else "")
    )


def _nodes(cluster: Cluster) -> str:
    return f"{_count(cluster.nodes, 'node')} of {cluster.gpus_per_node}"


def _domains(cluster: Cluster) -> str:
    """How the scale-up network groups the GPUs; "64 in use" where a rack holds more than the job takes."""
    domain, world, gpu = cluster.nvlink_domain, cluster.world, cluster.gpu
    network = "NVLink" if gpu.architecture not in _NOT_NVIDIA else "scale-up"
    spans_nodes = gpu.nvlink_domain > gpu.gpus_per_node
    if domain == 1:
        return f"no {network} between GPUs"
    if domain == world and spans_nodes and gpu.nvlink_domain > world:
        return f"one {network} domain of {gpu.nvlink_domain} ({world} in use)"
    whole, rest = divmod(world, domain)
    text = f"{_count(whole, f'{network} domain') if whole > 1 else f'one {network} domain'} of {domain}"
    return text + (f" and {_count(rest, 'GPU')} of another" if rest else "")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
