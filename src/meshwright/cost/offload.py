"""Activations that go to host memory and back: seconds of it that the compute beside it does not hide."""

from __future__ import annotations

import numpy as np

from meshwright.cluster.spec import Gpu
from meshwright.cost.activations import block_memory
from meshwright.cost.machine import Machine
from meshwright.cost.sizes import sizes_of
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.table import Floats


def host_bandwidth(gpu: Gpu) -> float:
    """Bytes/s between a GPU and its host's memory, one direction, as copies reach it."""
    links = load_json("meshwright.cost", "host.json")["links"]
    name = next((kind for kind in links if gpu.name.startswith(kind)), None) or gpu.architecture
    link = links.get(name, links["other"])
    return float(link["bytes_per_second"])


def hosted_bytes(x: Machine) -> Floats | None:
    """Bytes that a micro-batch of a block of each kind keeps in host memory. [Q, K]; None: nothing does."""
    if not any(_offloads(x.keys.executions[code]) for code in np.unique(x.keys.execution).tolist()):
        return None
    question = x.question
    sizes = sizes_of(question.model, question.job, x.recipe, x.keys, question.cluster.gpu)
    return block_memory(sizes).hosted


def _offloads(execution: Execution) -> bool:
    return bool(execution.offload_modules) or execution.cpu_offload_layers > 0


def exposed_seconds(hosted: Floats, compute: Floats, bandwidth: float) -> Floats:
    """What a transfer takes longer than the block's compute in the same direction; the rest is hidden. [Q]

    >>> exposed_seconds(np.array([2e9, 5e8]), np.array([0.02, 0.02]), 50e9).tolist()
    [0.02, 0.0]
    """
    return np.maximum(hosted / bandwidth - compute, 0.0)
