"""Bytes that stay allocated between micro-batches and are neither state nor activations.

Source: transformer_engine/pytorch/module/base.py (get_cublas_workspace_size_bytes, get_dummy_wgrad);
torch/csrc cuBLAS workspaces; megatron/core/tensor_parallel/layers.py (get_global_memory_buffer).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshwright.cluster.spec import Cluster, Gpu
from meshwright.cost.activations import vocabulary
from meshwright.cost.parameters import block_weights
from meshwright.cost.question import Question
from meshwright.cost.sizes import BF16, Sizes
from meshwright.cost.stages import Flight
from meshwright.facts import load_json
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Floats, LayoutTable
from meshwright.model.spec import Model
from meshwright.model.weights import padded_vocab


def library_workspaces(x: Sizes, gpu: Gpu) -> Floats:
    """cuBLAS workspaces of torch (two streams) and of Transformer Engine (more for grouped GEMMs). [Q]"""
    sizes, keys = load_json("meshwright.cost", "memory.json")["workspaces"], x.keys
    torch = sizes["torch"].get(gpu.architecture, sizes["torch"]["other"])
    torch = np.where(keys.flag(lambda e: e.deterministic), sizes["torch"]["deterministic"], torch)
    local = keys.flag(lambda e: e.transformer_impl == "local")
    grouped = keys.flag(lambda e: e.grouped_gemm) & x.model.is_moe
    overlap = keys.flag(lambda e: "tp" in e.overlaps) & (keys.tp > 1)
    streams = 1 + sizes["grouped_gemm_streams"] * grouped + sizes["overlap_streams"] * overlap
    engine = sizes["transformer_engine"].get(gpu.architecture, sizes["transformer_engine"]["other"])
    return np.asarray(2 * torch + np.where(local, 0, streams) * engine)


def resident_bytes(question: Question, x: Sizes, table: LayoutTable, flying: Flight) -> Floats:
    """Workspaces, buffers kept for reuse, messages between stages. [N, D]"""
    keys = x.keys
    head = flying.spread(flying.held[:, :, flying.kinds.index("head")] > 0)
    local = keys.flag(lambda e: e.transformer_impl == "local")
    gather = gather_buffer(x)[keys.of_row][:, None] * np.maximum(head, local[keys.of_row][:, None])
    mask = keys.flag(lambda e: e.attention_mask) * keys.mbs * float(question.job.seq_length) ** 2 / keys.cp
    messages = np.where(table.pp > 1, 2.0, 0.0) * (BF16 * x.model.hidden * x.sharded)[keys.of_row]
    return np.asarray(
        library_workspaces(x, question.cluster.gpu)[keys.of_row][:, None]
        + stand_in_gradients(x, flying)
        + gather
        + mask[keys.of_row][:, None]
        + messages[:, None]
        + deferred_gradients(x)[keys.of_row][:, None] * head
    )


def outside_bytes(question: Question, x: Sizes, table: LayoutTable) -> Floats:
    """What a process holds beside torch's allocator: context, communicators, exchange buffers. [N, 1]"""
    constants = load_json("meshwright.cost", "memory.json")
    axes = sum(
        (axis > 1).astype(float) for axis in (table.tp, table.pp, table.cp, table.ep, table.dp, table.edp)
    )
    buffers = user_buffers(x) + expert_buffers(x, question.cluster)
    whole = constants["context_bytes"]["value"] + constants["nccl_bytes_per_axis"]["value"] * axes
    return np.asarray((whole + buffers[x.keys.of_row])[:, None])


def user_buffers(x: Sizes) -> Floats:
    """Buffers of TP overlap: one of the gathered tokens' size for each of a layer's overlapped GEMMs. [Q]

    Source: megatron/training/initialize.py, _initialize_tp_communicators; transformer_engine
    initialize_ub (qkv, proj, fc1 and fc2, forward and backward).
    """
    used = x.keys.flag(lambda e: "tp" in e.overlaps) & (x.keys.tp > 1)
    return np.where(used, 8 * BF16 * x.model.hidden * x.full, 0.0)


def expert_buffers(x: Sizes, cluster: Cluster) -> Floats:
    """Buffers of DeepEP and HybridEP for dispatch and combine. [Q]

    DeepEP holds a queue of tokens for each channel and peer. HybridEP holds room for all tokens of all
    peers inside the NVLink domain, for each direction.
    Source: DeepEP, csrc/config.hpp (get_nvl_buffer_size_hint, get_rdma_buffer_size_hint) and its hybrid-ep
    branch (expert input and output buffers of max_num_of_tokens_per_rank * ranks per domain).
    """
    if not x.model.is_moe:
        return x.zeros
    form = load_json("meshwright.cost", "memory.json")["deepep"]
    peers = x.keys.ep * x.keys.etp
    near = np.minimum(peers, cluster.nvlink_domain)
    token = BF16 * x.model.hidden
    far = np.maximum(peers // np.maximum(near, 1) - 1, 0)
    queues = form["channels"] * form["tokens"] * token * (near + 2 * far)
    whole = 2 * token * x.sharded * near
    chosen = x.keys.flag(lambda e: e.dispatcher == "hybridep")
    deep = x.keys.flag(lambda e: e.dispatcher == "deepep")
    return np.where(peers > 1, np.where(chosen, whole, np.where(deep, 2 * queues, 0.0)), 0.0)


def stand_in_gradients(x: Sizes, flying: Flight) -> Floats:
    """Stand-in weight gradients of a stage, one for each weight shape that it holds. [N, D]

    Where a GEMM adds its weight gradient to the gradient buffer, autograd is given a stand-in tensor of
    the same shape; Transformer Engine keeps one for each distinct shape. Experts are one weight each.
    """
    found: dict[tuple[object, ...], Floats] = {}
    members: dict[tuple[object, ...], list[int]] = {}
    kinds = describe_kinds(x.model)
    for number, kind in enumerate(kinds):
        for rows, width, split, grid in _shapes(x.model, kind):
            degree = x.keys.etp if grid == "expert" else x.keys.tp
            size = BF16 * width * (padded_vocab(rows, x.keys.tp) if rows == x.model.vocab_size else rows)
            found[rows, width, split, grid] = size / (degree if split else np.ones_like(degree))
            members.setdefault((rows, width, split, grid), []).append(number)
    if not found:
        return np.zeros((len(x.keys.of_row), flying.held.shape[1]))
    sizes = np.stack(list(found.values()), axis=1) * (1 - x.own_wgrad)[:, None]  # [Q, W]
    holds = np.zeros((len(kinds), len(found)))
    for column, numbers in enumerate(members.values()):
        holds[numbers, column] = 1.0
    needed = ((flying.held > 0).astype(np.float64) @ holds > 0).astype(np.float64)  # [F, D, W]
    return flying.total(needed, sizes, x.keys)


def _shapes(model: Model, kind: BlockKind) -> Iterator[tuple[int, int, str | None, str]]:
    if kind.role not in ("layer", "mtp", "head"):
        return
    for weight in block_weights(model, kind):
        if weight.gemm and len(weight.shape) == 2 and "router" not in weight.name:
            yield weight.shape[0], weight.shape[1], weight.split, weight.grid
    if kind.role == "head" and model.tied:
        yield model.vocab_size, model.hidden, "n", "dense"


def deferred_gradients(x: Sizes) -> Floats:
    """Gradients and inputs of the output projection whose weight gradient waits for the end. [Q]

    Source: megatron/core/pipeline_parallel/utils or schedules (defer_embedding_wgrad_compute).
    """
    waiting = x.keys.number(lambda e: e.embedding_wgrad_deferral or 0)
    return waiting * BF16 * (vocabulary(x) + x.model.hidden) * x.full


def gather_buffer(x: Sizes) -> Floats:
    """The buffer that gathers the output projection's input over TP, kept for reuse. [Q]"""
    return np.asarray(BF16 * x.model.hidden * x.gathered)
