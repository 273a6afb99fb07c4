"""Linear maps with tensor and sequence parallelism; each keeps its local input."""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.verify.engine.standin.norm import NormFunction


def gather_rows(x: Tensor, group: Any) -> Tensor:
    """All ranks' rows, concatenated: [s, ...] -> [s * group size, ...]."""
    out = torch.empty((x.shape[0] * group.size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def scatter_rows(x: Tensor, group: Any) -> Tensor:
    """The sum over ranks, each keeping its rows: [s * group size, ...] -> [s, ...]."""
    out = torch.empty((x.shape[0] // group.size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def sum_ranks(x: Tensor, group: Any) -> Tensor:
    x = x.contiguous()
    dist.all_reduce(x, group=group)
    return x


class LinearFunction(torch.autograd.Function):
    """y = x Wᵀ + b with the collectives of one parallel mode; keeps the local x and W.

    mode  "column": with sequence parallelism the rows are gathered before the product
          "row": the partial products are summed over ranks (and scattered with sequence parallelism)
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, mode: str | None, sp: bool, group: Any
    ) -> Tensor:
        ctx.mode, ctx.sp, ctx.group, ctx.has_bias = mode, sp, group, bias is not None
        ctx.save_for_backward(x, weight)
        total = gather_rows(x, group) if mode == "column" and sp else x
        y = total.matmul(weight.t())
        if mode == "row":
            y = scatter_rows(y, group) if sp else sum_ranks(y, group)
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_bias = grad.flatten(0, -2).sum(0) if ctx.has_bias else None
        if ctx.mode == "row" and ctx.sp:
            grad = gather_rows(grad, ctx.group)
        total = gather_rows(x, ctx.group) if ctx.mode == "column" and ctx.sp else x
        grad_weight = grad.flatten(0, -2).t().matmul(total.flatten(0, -2))
        grad_x = grad.matmul(weight)
        if ctx.mode == "column":
            grad_x = scatter_rows(grad_x, ctx.group) if ctx.sp else sum_ranks(grad_x, ctx.group)
        return grad_x, grad_weight, grad_bias, None, None, None


def weight_of(
    shape: tuple[int, ...], dtype: torch.dtype, device: Any, init: Callable[[Tensor], Any] | None
) -> Any:
    parameter = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
    if init is not None and not parameter.is_meta:
        with torch.no_grad():
            init(parameter)
    return parameter


def mark_split(parameter: Any, dim: int | None) -> None:
    """Megatron's attributes of a tensor-parallel parameter."""
    parameter.tensor_model_parallel = dim is not None
    parameter.partition_dim = -1 if dim is None else dim
    parameter.partition_stride = 1


class Linear(torch.nn.Module):
    """`transformer_engine.pytorch.Linear`: column, row or no parallelism."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        init_method: Callable[[Tensor], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype = torch.float32,
        parallel_mode: str | None = None,
        device: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        if parallel_mode == "column":
            out_features = divide(out_features, tp_size)
        elif parallel_mode == "row":
            in_features = divide(in_features, tp_size)
        self.in_features, self.out_features = in_features, out_features
        self.parallel_mode = parallel_mode if tp_size > 1 else None
        self.sequence_parallel = sequence_parallel and tp_size > 1
        self.tp_group, self.tp_size = tp_group, tp_size
        self.use_bias, self.return_bias = bias, return_bias
        self.save_original_input = False
        self.weight = weight_of((out_features, in_features), params_dtype, device, init_method)
        split = {"column": 0, "row": 1}.get(parallel_mode or "")
        mark_split(self.weight, split)
        self.bias = weight_of((out_features,), params_dtype, device, torch.nn.init.zeros_) if bias else None
        if self.bias is not None:
            mark_split(self.bias, 0 if parallel_mode == "column" else None)
            if parallel_mode == "row":
                self.bias.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor, is_first_microbatch: bool | None = None) -> Any:
        bias = None if self.return_bias else self.bias
        y = LinearFunction.apply(
            x, self.weight, bias, self.parallel_mode, self.sequence_parallel, self.tp_group
        )
        return (y, self.bias) if self.return_bias else y


class LayerNormLinear(Linear):
    """`transformer_engine.pytorch.LayerNormLinear`: keeps the norm's input and its output."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        sequence_parallel: bool = False,
        params_dtype: torch.dtype = torch.float32,
        device: Any = None,
        return_layernorm_output: bool = False,
        **rest: Any,
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            sequence_parallel=sequence_parallel,
            params_dtype=params_dtype,
            device=device,
            **rest,
        )
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        start = torch.nn.init.zeros_ if zero_centered_gamma else torch.nn.init.ones_
        self.layer_norm_weight = weight_of((in_features,), params_dtype, device, start)
        self.layer_norm_bias = None
        if normalization == "LayerNorm":
            self.layer_norm_bias = weight_of((in_features,), params_dtype, device, torch.nn.init.zeros_)
        for parameter in (self.layer_norm_weight, self.layer_norm_bias):
            if parameter is not None:
                mark_split(parameter, None)
                parameter.sequence_parallel = sequence_parallel

    def forward(self, x: Tensor, is_first_microbatch: bool | None = None) -> Any:
        normed = NormFunction.apply(
            x, self.layer_norm_weight, self.layer_norm_bias, self.eps, self.zero_centered_gamma
        )
        return super().forward(normed, is_first_microbatch)


class GroupedFunction(torch.autograd.Function):
    """One product an expert over consecutive row blocks; keeps the rows once and the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, splits: Sequence[int], biased: bool, *tensors: Tensor) -> Tensor:
        weights = tensors[: len(splits)]
        biases = tensors[len(splits) :] if biased else ()
        ctx.splits, ctx.biased = splits, biased
        ctx.save_for_backward(x, *weights)
        parts = [rows.matmul(weight.t()) for rows, weight in zip(x.split(splits), weights, strict=True)]
        if biases:
            parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        grads = grad.split(ctx.splits)
        grad_x = torch.cat([part.matmul(weight) for part, weight in zip(grads, weights, strict=True)])
        grad_weights = [part.t().matmul(rows) for part, rows in zip(grads, x.split(ctx.splits), strict=True)]
        grad_biases = [part.sum(0) for part in grads] if ctx.biased else []
        return grad_x, None, None, *grad_weights, *grad_biases


class GroupedLinear(torch.nn.Module):
    """`transformer_engine.pytorch.GroupedLinear`: one weight (and bias) an expert."""

    def __init__(
        self,
        num_gemms: int,
        in_features: int,
        out_features: int,
        init_method: Callable[[Tensor], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype = torch.float32,
        parallel_mode: str | None = None,
        device: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.num_gemms, self.use_bias, self.return_bias = num_gemms, bias, return_bias
        self.save_original_input = False
        split = {"column": 0, "row": 1}.get(parallel_mode or "")
        for index in range(num_gemms):
            weight = weight_of((out_features, in_features), params_dtype, device, init_method)
            mark_split(weight, split or 0)
            self.register_parameter(f"weight{index}", weight)
            if bias:
                vector = weight_of((out_features,), params_dtype, device, torch.nn.init.zeros_)
                # Other ranks hold other experts; unmarked, the gradient norm would leave most of them out.
                mark_split(vector, 0)
                self.register_parameter(f"bias{index}", vector)

    def forward(self, x: Tensor, m_splits: Sequence[int], is_first_microbatch: bool | None = None) -> Any:
        weights = [getattr(self, f"weight{index}") for index in range(self.num_gemms)]
        biases = [getattr(self, f"bias{index}") for index in range(self.num_gemms)] if self.use_bias else []
        inside = [] if self.return_bias else biases
        shape = x.shape
        y = GroupedFunction.apply(x.reshape(-1, shape[-1]), list(m_splits), bool(inside), *weights, *inside)
        y = y.reshape(*shape[:-1], y.shape[-1])
        return (y, biases) if self.return_bias else y


def divide(size: int, parts: int) -> int:
    """size / parts, which must be whole."""
    if size % parts:
        raise ValueError(f"{size} is not divisible by {parts}")
    return size // parts
