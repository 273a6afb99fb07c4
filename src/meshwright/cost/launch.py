"""The CPU's side of a layer: how long it takes to launch what the GPU then runs.

An eager layer is launched kernel by kernel; where that takes longer than the kernels run, the GPU
waits. CUDA graphs replay the parts they cover. Sums are by the parts of a layer; the fit decides their
common scale (factors "host", "host:moe").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.cost.machine import Machine
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.stages import BlockKind
from meshwright.layout.table import Floats
from meshwright.model.spec import Attention, Layer, Mla, Mlp, Moe


def launch_seconds(x: Machine, kind: BlockKind) -> Floats:
    """Seconds the CPU needs for one block, forward and backward together. [Q]"""
    if kind.layer is None:
        return np.zeros(len(x.keys))
    form = load_json("meshwright.cost", "launch.json")
    layer = x.model.kinds[kind.layer]
    local = layer.ffn.experts / x.keys.ep if isinstance(layer.ffn, Moe) else np.zeros(len(x.keys))
    seconds = np.zeros(len(x.keys))
    for number, execution in enumerate(x.keys.executions):
        own = np.flatnonzero(x.keys.execution == number)
        if len(own):
            seconds[own] = _eager(form, layer, execution, local[own])
    regions = (layer.mixer is not None) + isinstance(layer.ffn, Mlp)
    eager = ~x.keys.flag(lambda e: e.cuda_graphs == "full")
    seconds += np.where((x.keys.tp > 1) & eager, regions * form["parts"]["tensor_parallel"], 0.0)
    speed = form["cpu"].get(x.kernels.relative, form["cpu"]["default"])
    if x.recipe.quantised:
        speed = speed * form["quantised"]["factor"]
    kinds = ("moe",) if layer.is_moe else ("dense",)
    return np.asarray(seconds * speed * x.factor("host", *kinds))


def _eager(form: Any, layer: Layer, execution: Execution, local: Floats) -> Floats:
    """Seconds of one layer on the reference CPU under one set of flags. [keys with these flags]"""
    parts = {
        name: np.full(len(local), cost) for name, cost in _parts(form["parts"], layer, execution).items()
    }
    if "experts" in parts:
        parts["experts"] = parts["experts"] + form["parts"]["per_local_expert"] * local
    replayed = set(form["graphs"][execution.cuda_graphs])
    if "experts" in parts and execution.capacity_factor is not None and execution.cuda_graphs == "full":
        replayed |= set(parts)  # padded experts have static shapes
    total = np.zeros(len(local))
    for name, cost in parts.items():
        total += cost * (form["replayed"] if name in replayed else 1.0)
    if "ep" in execution.overlaps and "experts" in parts:
        total *= form["ep_overlap"]["factor"]
    return total


def _parts(form: Any, layer: Layer, execution: Execution) -> dict[str, float]:
    """The parts of a layer that are launched one by one."""
    found: dict[str, float] = {}
    if isinstance(layer.mixer, Attention | Mla):
        found["attention"] = form["attention"]
    elif layer.mixer is not None:
        found["other_mixer"] = form["other_mixer"]
    if isinstance(layer.ffn, Mlp):
        found["mlp"] = form["mlp"]
    elif isinstance(layer.ffn, Moe):
        found |= {
            "router": form["router"], "dispatch": form["dispatch"][execution.dispatcher],
            "experts": form["experts"],
        }  # fmt: skip
        if layer.ffn.shared_ffn or layer.ffn.parallel_ffn:
            found["shared_experts"] = form["shared_experts"]
    return found


def waiting(busy: Floats, launch: Floats) -> Floats:
    """Seconds the GPU waits for the CPU: (busy^p + launch^p)^(1/p) - busy, a soft maximum. [...]

    p is 6: a layer whose launches take as long as its kernels waits an eighth of the time, since
    neither is even within the layer.
    """
    power = load_json("meshwright.cost", "launch.json")["power"]
    top = np.maximum(np.maximum(busy, launch), 1e-12)
    soft = top * ((busy / top) ** power + (launch / top) ** power) ** (1 / power)
    return np.asarray(np.where(launch > 0, soft - busy, 0.0))
