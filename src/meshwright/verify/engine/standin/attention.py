"""Softmax attention that keeps q, k, v, its output and one statistic a row, as flash attention does.

Under context parallelism each rank holds the chunks r and 2*cp-1-r of the sequence (Megatron's
load-balanced order); keys and values of the other ranks are gathered for the product and not kept.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def global_positions(length: int, group: Any, device: Any) -> Tensor:
    """Positions in the whole sequence of this rank's `length` rows."""
    cp = 1 if group is None else group.size()
    if cp == 1:
        return torch.arange(length, device=device)
    half, rank = length // 2, group.rank()
    rows = torch.arange(half, device=device)
    return torch.cat([rows + rank * half, rows + (2 * cp - 1 - rank) * half])


def gather_sequence(x: Tensor, group: Any) -> Tensor:
    """[s/cp, ...] of every rank -> [s, ...] in the order of positions."""
    cp = 1 if group is None else group.size()
    if cp == 1:
        return x
    out = torch.empty((cp, *x.shape), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out.view(-1), x.contiguous().view(-1), group=group)
    half = x.shape[0] // 2
    chunks = [out[rank, :half] for rank in range(cp)] + [out[rank, half:] for rank in reversed(range(cp))]
    return torch.cat(chunks)


def sum_sequence(grad: Tensor, group: Any) -> Tensor:
    """Gradient of `gather_sequence`: summed over ranks, this rank's rows kept."""
    cp = 1 if group is None else group.size()
    if cp == 1:
        return grad
    grad = grad.contiguous()
    dist.all_reduce(grad, group=group)
    return grad[global_positions(grad.shape[0] // cp, group, grad.device)]


def attend(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, scale: float, window: int | None, group: Any
) -> Tensor:
    """softmax(q kᵀ scale) v over earlier positions.

    q [s/cp, b, h, d], k and v [s, b, g, d] -> [s/cp, b, h*dv]
    """
    rows, batch, heads, _ = q.shape
    q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
    plain = window is None and sink is None and (group is None or group.size() == 1)
    if plain:
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=k.shape[1] != heads
        )
    else:
        behind = global_positions(rows, group, q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
        seen = behind >= 0 if window is None else (behind >= 0) & (behind <= window)
        repeat = heads // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen, float("-inf"))
        if sink is not None:
            column = sink.to(scores.dtype).view(1, heads, 1, 1).expand(batch, heads, rows, 1)
            scores = torch.cat([scores, column], -1)
        weights = scores.float().softmax(-1).to(v.dtype)
        out = (weights if sink is None else weights[..., :-1]) @ v
    return out.permute(2, 0, 1, 3).reshape(rows, batch, -1)


class AttentionFunction(torch.autograd.Function):
    """Keeps q, k, v (local rows), the output and a row statistic; computes again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        scale: float,
        window: int | None,
        group: Any,
    ) -> Tensor:
        out = attend(q, gather_sequence(k, group), gather_sequence(v, group), sink, scale, window, group)
        ctx.scale, ctx.window, ctx.group = scale, window, group
        statistic = torch.empty((q.shape[1], q.shape[2], q.shape[0]), dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, sink, out, statistic)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, sink, _, _ = ctx.saved_tensors
        group = ctx.group
        with torch.enable_grad():
            whole = (q, gather_sequence(k, group), gather_sequence(v, group))
            inputs = [x.detach().requires_grad_() for x in whole]
            leaf = None if sink is None else sink.detach().requires_grad_()
            out = attend(inputs[0], inputs[1], inputs[2], leaf, ctx.scale, ctx.window, group)
            grads = list(torch.autograd.grad(out, inputs if leaf is None else [*inputs, leaf], grad))
        grad_sink = grads.pop() if sink is not None else None
        grad_q, grad_k, grad_v = grads
        return grad_q, sum_sequence(grad_k, group), sum_sequence(grad_v, group), grad_sink, None, None, None


class DotProductAttention(torch.nn.Module):
    """`transformer_engine.pytorch.DotProductAttention` for causal self-attention in `sbhd` order."""

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        tp_size: int = 1,
        tp_group: Any = None,
        cp_group: Any = None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
        softmax_type: str = "vanilla",
        window_size: tuple[int, int] | None = None,
        layer_number: int | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        width = kv_channels if isinstance(kv_channels, int) else kv_channels[0]
        self.softmax_scale = softmax_scale or width**-0.5
        self.window = None if window_size is None or window_size[0] < 0 else window_size[0]
        self.cp_group, self.cp_comm_type = merge_levels(cp_group), cp_comm_type
        self.check_context_parallel(
            num_attention_heads // tp_size, (num_gqa_groups or num_attention_heads) // tp_size
        )
        self.softmax_offset = None
        if softmax_type == "learnable":
            heads = num_attention_heads // tp_size
            device = torch.cuda.current_device()
            self.softmax_offset = torch.nn.Parameter(torch.zeros(heads, dtype=torch.float32, device=device))
            self.softmax_offset.tensor_model_parallel = True
            self.softmax_offset.partition_dim, self.softmax_offset.partition_stride = 0, 1

    def check_context_parallel(self, heads: int, groups: int) -> None:
        """Transformer Engine's own condition: a2a divides the heads of a rank."""
        cp = 1 if self.cp_group is None else self.cp_group.size()
        if self.cp_comm_type == "a2a" and (heads % cp or groups % cp):
            raise ValueError(
                f"The number of attention heads ({heads}) and gqa groups ({groups}) of a rank need to be "
                f"divisible by context parallel size ({cp}) for cp_comm_type='a2a'"
            )

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> Tensor:
        return AttentionFunction.apply(
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            self.softmax_offset,
            self.softmax_scale,
            self.window,
            self.cp_group,
        )


def merge_levels(group: Any) -> Any:
    """The whole context-parallel group; hierarchical communication hands in one group a level."""
    if not isinstance(group, list):
        return group
    from megatron.core import parallel_state

    return parallel_state.get_context_parallel_group()


class RotaryFunction(torch.autograd.Function):
    """Rotary embedding of the leading channels; keeps the angles only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
        ctx.interleaved = interleaved
        ctx.save_for_backward(angles)
        return rotate(x, angles, interleaved)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (angles,) = ctx.saved_tensors
        return rotate(grad, -angles, ctx.interleaved), None, None


def rotate(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """x [s, b, h, d] turned by angles [s, 1, 1, r], r <= d; the rest passes through."""
    width = angles.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if interleaved:
        other = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        other = torch.cat((-second, first), -1)
    return torch.cat((turned * cos + other * sin, rest), -1)


def apply_rotary_pos_emb(
    t: Tensor,
    freqs: Tensor,
    tensor_format: str = "sbhd",
    interleaved: bool = False,
    fused: bool = True,
    **_: Any,
) -> Tensor:
    """`transformer_engine.pytorch.attention.rope.apply_rotary_pos_emb` for `sbhd`."""
    return RotaryFunction.apply(t, freqs[: t.shape[0]], interleaved)
