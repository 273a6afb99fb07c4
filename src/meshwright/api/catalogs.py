"""`models` and `gpus`: what is known by name."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.cluster.catalog import all_gpus
from meshwright.model.catalog import entries


def models(pattern: str = "") -> tuple[Mapping[str, object], ...]:
    """The catalog of models: name, Hugging Face id, parameters, active parameters, source."""
    return tuple(
        {
            "name": entry.name,
            "hugging_face_id": entry.hugging_face_id,
            "parameters": entry.parameters,
            "active_parameters": entry.active,
            "source": entry.source,
        }
        for entry in entries()
        if pattern.lower() in entry.name.lower()
    )


def gpus(pattern: str = "") -> tuple[Mapping[str, object], ...]:
    """The catalog of GPUs: name, memory [bytes], bandwidths [bytes/s], peaks [FLOP/s], sources."""
    return tuple(
        {
            "name": gpu.name,
            "architecture": gpu.architecture,
            "usable_memory_bytes": gpu.usable_memory,
            "hbm_bytes_per_second": gpu.hbm,
            "nvlink_bytes_per_second": gpu.nvlink,
            "nvlink_domain": gpu.nvlink_domain,
            "gpus_per_node": gpu.gpus_per_node,
            "nic_bytes_per_second": gpu.nic,
            "peak_flops": dict(gpu.peak),
            "sources": list(gpu.sources),
        }
        for gpu in all_gpus()
        if pattern.lower() in gpu.name.lower()
    )
