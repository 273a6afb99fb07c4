"""Clusters as people write them: "256xH100", "32x8xH100", "64xGB200", or a YAML file of one's own."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

from meshwright.cluster.catalog import GBIT, LONGEST_NAME, find_gpu
from meshwright.cluster.gpu_file import is_gpu_file, load_gpu
from meshwright.cluster.spec import GIB, Cluster, Gpu
from meshwright.errors import QuestionError

MOST_GPUS = 10_000_000
"""More GPUs than anyone has in one place: larger numbers are taken for a slip of the pen."""
LONGEST_PATH = 4096
MOST_MEMORY_GIB = 10_000
MOST_GBPS = 1_000_000

_EXAMPLES = "write 256xH100 (GPUs x kind) or 32x8xH100 (nodes x GPUs a node x kind)"
_SHAPE = re.compile(
    r"(?:(?P<nodes>[\d,_]+)\s*[x*×]\s*)?(?P<gpus>[\d,_]+)\s*[x*×\s]\s*(?P<kind>[A-Za-z./~].*)"
)
_NUMBER = re.compile(r"[+-]?[\d,_]+")


def parse_cluster(
    text: str | int,
    *,
    gpus_per_node: int | None = None,
    nvlink_domain: int | None = None,
    network_gbps: float | None = None,
    gpu_memory_gb: float | None = None,
) -> Cluster:
    """The cluster that `text` names, with the overrides applied.

    text           "256xH100", "32x8xH100", "8x./my-gpu.json" (a measured GPU), or the path of a YAML file
    gpus_per_node  GPUs a node; default: that of the GPU's usual system
    nvlink_domain  GPUs that the scale-up network joins; may span nodes
    network_gbps   network bandwidth of a GPU, one direction [Gbit/s]
    gpu_memory_gb  memory of a GPU that torch reports [GiB: vendors' "80 GB" is close to 79 GiB]

    Fewer GPUs than a node holds make one smaller node. QuestionError for anything that is not a cluster.
    """
    words = str(text).strip()
    if words.lower().endswith((".yaml", ".yml")):
        from meshwright.cluster.file import load_cluster  # reads YAML; most questions need none

        described = load_cluster(Path(words))
        gpu, nodes, per_node = described.gpu, described.nodes, described.gpus_per_node
        if gpus_per_node is None and nvlink_domain is None:
            nvlink_domain = described.nvlink_domain
        if network_gbps is None:
            network_gbps = described.network / GBIT
        return _override(
            build_cluster(
                gpu, nodes * per_node, gpus_per_node or per_node, nvlink_domain, network_gbps, described.name
            ),
            gpu_memory_gb,
        )
    return _override(_from_words(words, gpus_per_node, nvlink_domain, network_gbps), gpu_memory_gb)


def parse_gpu_count(text: str | int) -> int:
    """Number of GPUs where their kind does not matter: "256" as well as "256xH100"."""
    words = str(text).strip()
    if _NUMBER.fullmatch(words):
        return gpu_count(words)
    return parse_cluster(words).world


def gpu_count(text: str | int, what: str = "GPUs") -> int:
    """A whole number of things above 0 and below `MOST_GPUS`, or a QuestionError."""
    digits = str(text).strip().replace(",", "").replace("_", "")
    if len(digits) > LONGEST_NAME or not re.fullmatch(r"[+-]?\d+", digits, flags=re.ASCII):
        raise QuestionError(f"{_shown(text)!r} is not a number of {what}; {_EXAMPLES}")
    count = int(digits)
    if count < 1:
        raise QuestionError(f"{count} {what}: there must be at least 1")
    if count > MOST_GPUS:
        raise QuestionError(f"{count} {what} is more than Meshwright believes; at most {MOST_GPUS:,}")
    return count


def build_cluster(
    gpu: Gpu,
    world: int,
    gpus_per_node: int | None = None,
    nvlink_domain: int | None = None,
    network_gbps: float | None = None,
    name: str = "",
) -> Cluster:
    """A cluster of `world` GPUs; what is not given comes from the GPU's usual system."""
    per_node = gpu.gpus_per_node if gpus_per_node is None else gpu_count(gpus_per_node, "GPUs a node")
    per_node = min(per_node, world)
    if world % per_node:
        below = world // per_node * per_node
        raise QuestionError(
            f"{world} GPUs do not fill nodes of {per_node}; nearest that do: {below} or {below + per_node} "
            "(or give --gpus-per-node)"
        )
    domain = _usual_domain(gpu, per_node, world) if nvlink_domain is None else nvlink_domain
    domain = min(gpu_count(domain, "GPUs in an NVLink domain"), world)
    if domain % per_node and per_node % domain and domain != world:
        raise QuestionError(
            f"an NVLink domain of {domain} GPUs neither divides nodes of {per_node} nor holds whole ones; "
            f"nearest: {max(1, domain // per_node) * per_node} or {-(-domain // per_node) * per_node}"
        )
    network = (
        gpu.nic
        if network_gbps is None
        else _measure("network bandwidth", network_gbps, "Gbit/s", MOST_GBPS) * GBIT
    )
    return Cluster(
        gpu=gpu,
        nodes=world // per_node,
        gpus_per_node=per_node,
        nvlink_domain=domain,
        network=network,
        name=name or f"{world}x{gpu.name}",
    )


def _from_words(
    words: str, gpus_per_node: int | None, nvlink_domain: int | None, network_gbps: float | None
) -> Cluster:
    if _NUMBER.fullmatch(words):
        count = gpu_count(words)
        raise QuestionError(
            f"{count} GPUs of which kind? For example {count}xH100; `meshwright gpus` lists all"
        )
    longest = LONGEST_PATH if is_gpu_file(words) else 3 * LONGEST_NAME
    match = _SHAPE.fullmatch(words) if len(words) <= longest else None
    if match is None:
        raise _unreadable(words)
    gpus = gpu_count(match["gpus"])
    if match["nodes"] is not None:
        if gpus_per_node is not None and gpus_per_node != gpus:
            raise QuestionError(f"{words} says {gpus} GPUs a node and --gpus-per-node says {gpus_per_node}")
        gpus_per_node = gpus
        gpus = gpu_count(gpu_count(match["nodes"], "nodes") * gpus)
    return build_cluster(
        _kind(match["kind"].strip()), gpus, gpus_per_node, nvlink_domain, network_gbps, words
    )


def _kind(words: str) -> Gpu:
    """A GPU by name, or from a file that somebody measured."""
    return load_gpu(Path(words).expanduser()) if is_gpu_file(words) else find_gpu(words)


def _unreadable(words: str) -> QuestionError:
    """The error for text that has no cluster in it, as close to the slip as possible."""
    first = re.split(r"[x*×\s]", words, maxsplit=1)[0]
    if re.fullmatch(r"-\d+", first):
        return QuestionError(f"{first} GPUs: there must be at least 1")
    if words and len(words) <= LONGEST_NAME and words[0].isalpha():
        return QuestionError(f"how many {find_gpu(words).name}? For example 8x{words}")
    return QuestionError(f"{_shown(words)!r} is not a cluster; {_EXAMPLES}, or give a YAML file")


def _usual_domain(gpu: Gpu, per_node: int, world: int) -> int:
    """NVLink that ends at the node cannot be wider than a node; NVL72 is only bounded by the cluster."""
    inside_node = gpu.nvlink_domain <= gpu.gpus_per_node
    return min(gpu.nvlink_domain, per_node if inside_node else world)


def _override(cluster: Cluster, gpu_memory_gb: float | None) -> Cluster:
    if gpu_memory_gb is None:
        return cluster
    usable = _measure("GPU memory", gpu_memory_gb, "GiB", MOST_MEMORY_GIB) * GIB
    return replace(cluster, gpu=replace(cluster.gpu, usable_memory=usable))


def _measure(what: str, value: float, unit: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise QuestionError(f"{what} is {_shown(value)!r}, not a number [{unit}]")
    if not 0 < value <= most:
        raise QuestionError(f"{what} is {value:g} {unit}; it must be above 0 and at most {most:,g}")
    return float(value)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_NAME else text[:20] + "..."
