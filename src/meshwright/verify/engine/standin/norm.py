"""LayerNorm and RMSNorm that keep their input and the per-row statistics, as Transformer Engine does."""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class NormFunction(torch.autograd.Function):
    """y = normalised(x) * weight (+ bias); keeps x, 1/sigma and, with a mean, mu."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, one_plus: bool
    ) -> Tensor:
        wide = x.float()
        mean = None
        if bias is not None:
            mean = wide.mean(-1, keepdim=True)
            wide = wide - mean
        inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.one_plus = one_plus
        ctx.save_for_backward(x, weight, inverse, mean)
        y = wide * inverse * (weight.float() + 1 if one_plus else weight.float())
        return (y if bias is None else y + bias.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse, mean = ctx.saved_tensors
        wide_grad = grad.float()
        normalised = (x.float() if mean is None else x.float() - mean) * inverse
        rows = tuple(range(grad.dim() - 1))
        grad_weight = (wide_grad * normalised).sum(rows).to(weight.dtype)
        grad_bias = None if mean is None else wide_grad.sum(rows).to(weight.dtype)
        scaled = wide_grad * (weight.float() + 1 if ctx.one_plus else weight.float())
        grad_x = scaled - normalised * (scaled * normalised).mean(-1, keepdim=True)
        if mean is not None:
            grad_x = grad_x - scaled.mean(-1, keepdim=True)
        return (grad_x * inverse).to(x.dtype), grad_weight, grad_bias, None, None


class _Norm(torch.nn.Module):
    has_bias = False

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        zero_centered_gamma: bool = False,
        params_dtype: torch.dtype = torch.float32,
        device: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        start = 0.0 if zero_centered_gamma else 1.0
        self.weight = torch.nn.Parameter(torch.full((hidden_size,), start, dtype=params_dtype, device=device))
        self.bias = None
        if self.has_bias:
            self.bias = torch.nn.Parameter(torch.zeros(hidden_size, dtype=params_dtype, device=device))
        for parameter in self.parameters():
            parameter.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor) -> Tensor:
        return NormFunction.apply(x.contiguous(), self.weight, self.bias, self.eps, self.zero_centered_gamma)


class RMSNorm(_Norm):
    """Root-mean-square norm."""


class LayerNorm(_Norm):
    """Norm with mean and bias."""

    has_bias = True
