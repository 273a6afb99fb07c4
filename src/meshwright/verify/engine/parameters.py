"""Exact parameters of chosen ranks: their model chunks, built on the meta device."""

from __future__ import annotations

import collections
from typing import Any

from meshwright.verify.engine import build, patches, world


def part_of(name: str) -> str:
    """Where a parameter belongs: "decoder.layers.3.self_attention", "embedding", "mtp.layers.0.mlp", ..."""
    words = name.split(".")
    if "layers" in words:
        end = words.index("layers") + 3
        return ".".join(words[:end])
    return ".".join(words[:2])


def count_chunk(chunk: Any) -> dict[str, Any]:
    """Parameters of one chunk: dense and expert totals, and by part [dense, expert]."""
    parts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    seen: set[int] = set()
    for name, parameter in chunk.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        expert = is_expert(name, parameter)
        parts[part_of(name)][expert] += parameter.numel()
    layers = getattr(chunk.decoder, "layers", [])
    return {
        "dense": sum(part[0] for part in parts.values()),
        "expert": sum(part[1] for part in parts.values()),
        "layers": [layer.layer_number for layer in layers],
        "parts": dict(parts),
        "buffers": sum(buffer.numel() for name, buffer in chunk.named_buffers() if "expert_bias" in name),
    }


def is_expert(name: str, parameter: Any) -> bool:
    """Of the expert grid: a routed expert's weight (its `allreduce` is off only when ep > 1)."""
    return ".experts." in name or not getattr(parameter, "allreduce", True)


def count(request: dict[str, Any]) -> list[dict[str, Any]]:
    """For each rank of `request["ranks"]`: its coordinates and the counts of its chunks."""
    import torch

    patches.Device.current = torch.device("meta")
    answers = []
    for rank in request["ranks"]:
        world.enter(request["world"], rank, request["mesh"])
        with torch.device("meta"):
            _, chunks = build.build_rank(request)
        answers.append({"rank": rank, **coordinates(), "chunks": [count_chunk(chunk) for chunk in chunks]})
    return answers


def coordinates() -> dict[str, int]:
    """This rank's place in both grids."""
    from megatron.core import parallel_state as state

    return {
        "tp": state.get_tensor_model_parallel_rank(),
        "pp": state.get_pipeline_model_parallel_rank(),
        "cp": state.get_context_parallel_rank(),
        "dp": state.get_data_parallel_rank(),
        "ep": state.get_expert_model_parallel_rank(),
        "etp": state.get_expert_tensor_parallel_rank(),
        "edp": state.get_expert_data_parallel_rank(),
    }
