"""Vocabulary-parallel cross entropy whose backward pass reuses the memory of its input."""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class CrossEntropyFunction(torch.autograd.Function):
    """Loss of each token over logits split along the vocabulary; keeps the logits.

    Source: TransformerEngine, pytorch/cross_entropy.py: the kernel writes the gradient over the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, group: Any) -> Tensor:
        wide = logits.float()
        top = wide.amax(-1, keepdim=True)
        first = 0
        split = group is not None and group.size() > 1
        if split:
            dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
            first = group.rank() * logits.shape[-1]
        wide = wide - top
        local = target - first
        inside = (local >= 0) & (local < logits.shape[-1])
        at_target = wide.gather(-1, local.clamp(0, logits.shape[-1] - 1).unsqueeze(-1)).squeeze(-1) * inside
        exponential = wide.exp()
        total = exponential.sum(-1)
        if split:
            dist.all_reduce(total, group=group)
            dist.all_reduce(at_target, group=group)
        gradient = exponential / total.unsqueeze(-1)
        one_hot = torch.zeros_like(gradient)
        one_hot.scatter_(
            -1, local.clamp(0, logits.shape[-1] - 1).unsqueeze(-1), inside.unsqueeze(-1).to(wide.dtype)
        )
        logits.copy_((gradient - one_hot).to(logits.dtype))
        ctx.save_for_backward(logits.detach())
        return total.log() - at_target

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (gradient,) = ctx.saved_tensors
        return (gradient * grad.unsqueeze(-1)).to(gradient.dtype), None, None


def parallel_cross_entropy(
    inp: Tensor,
    target: Tensor,
    label_smoothing: float = 0.0,
    reduce_loss: bool = False,
    dist_process_group: Any = None,
    ignore_idx: int = -100,
    is_cg_capturable: bool = False,
) -> Tensor:
    """`transformer_engine.pytorch.cross_entropy.parallel_cross_entropy`: [s, b] losses."""
    return CrossEntropyFunction.apply(inp, target, dist_process_group)
