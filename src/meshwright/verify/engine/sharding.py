"""Cutting one process's weights into those of a rank, independently of how Megatron Core initialises them."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state as state
from torch import Tensor


def global_name(name: str, chunk: Any, config: Any, tied: bool) -> str:
    """The name of a parameter in the one-process model: layers and experts counted over all ranks."""
    words = name.split(".")
    if words[:2] == ["decoder", "layers"]:
        words[2] = str(chunk.decoder.layers[int(words[2])].layer_number - 1)
    if "experts" in words and words[-1].startswith(("weight", "bias")):
        kind = words[-1].rstrip("0123456789")
        local = config.num_moe_experts // state.get_expert_model_parallel_world_size()
        index = int(words[-1][len(kind) :]) + local * state.get_expert_model_parallel_rank()
        words[-1] = f"{kind}{index}"
    if tied and words == ["output_layer", "weight"]:
        words = ["embedding", "word_embeddings", "weight"]
    return ".".join(words)


def shard(name: str, whole: Tensor, shape: tuple[int, ...], config: Any, turn: int = 0) -> Tensor:
    """This rank's part of `whole`; `turn` takes the part of a rank further on (a wrong one)."""
    if whole.shape == shape:
        return whole
    size, rank = tensor_place(".experts." in name)
    rank = (rank + turn) % size
    (axis,) = [axis for axis, length in enumerate(shape) if length != whole.shape[axis]]
    anything: Any = whole
    pieces = anything.split(sections(name, whole.shape[axis], config), axis)
    part: Tensor = torch.cat([piece.chunk(size, axis)[rank] for piece in pieces], axis)
    return part


def sections(name: str, length: int, config: Any) -> list[int]:
    """Rows of a fused matrix that are divided each for itself: gate and up, q and k and v, ..."""
    if "linear_fc1" in name and config.gated_linear_unit:
        return [length // 2] * 2
    if ".mixer.in_proj" in name or ".mixer.conv1d" in name:  # Mamba: z, x, B, C, dt
        inner = config.mamba_num_heads * config.mamba_head_dim
        state = config.mamba_num_groups * config.mamba_state_dim
        if "conv1d" in name:
            return [inner, state, state]
        return [inner, inner, state, state, config.mamba_num_heads]
    if ".self_attention.in_proj" in name or ".self_attention.conv1d" in name:  # gated delta net
        key = config.linear_num_key_heads * config.linear_key_head_dim
        value = config.linear_num_value_heads * config.linear_value_head_dim
        if "conv1d" in name:
            return [key, key, value]
        return [key, key, value, value, config.linear_num_value_heads, config.linear_num_value_heads]
    return [length]


def tensor_place(expert: bool) -> tuple[int, int]:
    """Degree and rank of tensor parallelism, of the expert or the dense grid."""
    if expert:
        return state.get_expert_tensor_parallel_world_size(), state.get_expert_tensor_parallel_rank()
    return state.get_tensor_model_parallel_world_size(), state.get_tensor_model_parallel_rank()


def random_weights(chunk: Any) -> dict[str, Tensor]:
    """Weights for every parameter of the one-process model, drawn by name: norms near their start."""
    weights = {}
    for name, parameter in chunk.named_parameters():
        generator = torch.Generator().manual_seed(sum(name.encode()) * 7919 + parameter.numel())
        noise = torch.randn(parameter.shape, generator=generator)
        weights[name] = parameter.detach() + 0.02 * noise if parameter.dim() == 1 else 0.05 * noise
    return weights


def load(chunks: list[Any], weights: dict[str, Tensor], config: Any, tied: bool, wrong: bool = False) -> None:
    """Give every parameter of this rank its part of `weights`; `wrong` misplaces one part."""
    with torch.no_grad():
        for chunk in chunks:
            for name, parameter in chunk.named_parameters():
                found = global_name(name, chunk, config, tied)
                turn = 0
                if wrong and is_misplaced(found):
                    found, turn = misplaced(found, weights, config)
                parameter.copy_(shard(name, weights[found], tuple(parameter.shape), config, turn))


def is_misplaced(name: str) -> bool:
    """Where the fault "wrong-shard" strikes: the first matrix of the feed-forward parts."""
    return "linear_fc1.weight" in name


def misplaced(name: str, weights: dict[str, Tensor], config: Any) -> tuple[str, int]:
    """A part that belongs to somebody else: to another tensor rank, expert or pipeline stage."""
    words = name.split(".")
    expert = ".experts." in name
    if expert and state.get_expert_model_parallel_world_size() > 1:
        kind, index = "weight", int(words[-1].removeprefix("weight"))
        return ".".join([*words[:-1], f"{kind}{(index + 1) % config.num_moe_experts}"]), 0
    if tensor_place(expert)[0] > 1:
        return name, 1
    if words[:2] == ["decoder", "layers"] and state.get_pipeline_model_parallel_world_size() > 1:
        others = [".".join([*words[:2], str(layer), *words[3:]]) for layer in range(config.num_layers)]
        shape = weights[name].shape
        alike = [other for other in others if other in weights and weights[other].shape == shape]
        return alike[(alike.index(name) + 1) % len(alike)], 0
    return name, 0
