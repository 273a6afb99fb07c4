"""Expert routing without values: every expert gets the same number of tokens.

Meta tensors have shapes and no contents, and how many tokens an expert gets is content. Here those
numbers are the balanced ones; the operations around them, and what they keep, stay the engine's.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from megatron.core.transformer.moe import token_dispatcher
from megatron.core.transformer.moe.experts import TEGroupedMLP


def install(top_k: int, experts: int) -> None:
    """Make routing balanced for layers with `experts` experts of which each token visits `top_k`."""
    patch_selection(top_k, experts)
    patch_dispatcher()
    patch_experts()


class Selection(torch.autograd.Function):
    """masked_select of a balanced mask [experts, tokens]; keeps what masked_select keeps."""

    @staticmethod
    def forward(ctx: Any, values: Any, mask: Any, count: int) -> Any:
        ctx.save_for_backward(values, mask)
        return values.new_empty(count)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        values, _ = ctx.saved_tensors
        return torch.zeros_like(values), None, None


def patch_selection(top_k: int, experts: int) -> None:
    def masked_select(self: Any, mask: Any) -> Any:
        count = mask.shape[1] * top_k * mask.shape[0] // experts
        return Selection.apply(self, mask, count) if self.requires_grad else self.new_empty(count)

    def cpu(self: Any) -> Any:
        """Only counts are copied to the host, and they are replaced where they are used."""
        return self

    torch.Tensor.masked_select = masked_select
    torch.Tensor.cpu = cpu


def patch_dispatcher() -> None:
    def preprocess(self: Any, routing_map: Any) -> Any:
        """Balanced counts in place of those gathered from all ranks."""
        total = routing_map.shape[0] * self.config.moe_router_topk
        sources = self.tp_size * self.ep_size
        self.num_out_tokens = total
        if sources > 1:
            self.input_splits = self.output_splits = [total // self.ep_size] * self.ep_size
            self.output_splits_tp = np.full(self.tp_size, total)
        each = total // self.num_experts
        self.num_global_tokens_per_local_expert = np.full((sources, self.num_local_experts), each)
        return np.full(self.num_local_experts, each * sources)

    def sort_chunks(tokens: Any, sizes: Any, order: Any, probs: Any = None, fused: bool = False) -> Any:
        count = len(sizes)

        def sort(x: Any) -> Any:
            return torch.cat(x.split(x.shape[0] // count)[:count])

        return sort(tokens), None if probs is None else sort(probs)

    token_dispatcher.MoEAlltoAllTokenDispatcher.preprocess = preprocess
    token_dispatcher.sort_chunks_by_idxs = sort_chunks


def patch_experts() -> None:
    plain = TEGroupedMLP.forward

    def forward(self: Any, tokens: Any, tokens_per_expert: Any, probs: Any) -> Any:
        each = np.full(self.num_local_experts, tokens.shape[0] // self.num_local_experts)
        return plain(self, tokens, each, probs)

    TEGroupedMLP.forward = forward
