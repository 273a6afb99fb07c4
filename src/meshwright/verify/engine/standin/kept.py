"""Kernels of recurrent mixers that compute nothing and save what the real ones save.

For counting saved activations without contents. Which of a kernel's tensors are saved is read from the
table of the cost model (all of them, of a kernel that is not in it); their sizes come from what Megatron
Core hands over.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.cost.recurrent_memory import saved_by

CHUNK = 64
"""Tokens of a chunk of the delta rule."""

Made = tuple[Tensor, Mapping[str, Tensor]]
"""A kernel's output, and by their names in the table all tensors that it has in its hands."""


class Kernel(torch.autograd.Function):
    """One kernel by its shapes: `make` gives the output and the tensors of which the table's are kept."""

    @staticmethod
    def forward(ctx: Any, operation: str, make: Callable[..., Made], *inputs: Any) -> Tensor:
        output, held = make(*inputs)
        names = saved_by(operation) or list(held)
        kept = [held[part] for name in names for part in name.split(", ")]
        ctx.save_for_backward(*kept)
        ctx.inputs = [torch.empty_like(x, device="meta") if torch.is_tensor(x) else None for x in inputs]
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        del grad
        return (None, None, *(x if x is not None and x.is_floating_point() else None for x in ctx.inputs))


def rows_of(x: Tensor) -> Tensor:
    """An fp32 number for each row of x."""
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


def split_conv1d_scan(
    zxbcdt: Tensor, weight: Tensor, bias: Tensor, dt_bias: Tensor, A: Tensor, D: Tensor, *,
    headdim: int, **_: Any,
) -> Tensor:  # fmt: skip
    """[b, l, 2*inner + 2*groups*state + heads] -> [b, l, inner]"""
    shape = (*zxbcdt.shape[:2], A.shape[0] * headdim)

    def make(x: Tensor, weight: Tensor, bias: Tensor, dt_bias: Tensor, A: Tensor, D: Tensor) -> Made:
        held = {"zxbcdt": x, "out_x": x.new_empty(shape), "A": A, "dt_bias": dt_bias}
        return x.new_empty(shape), {**held, "conv1d_weight": weight, "conv1d_bias": bias}

    return Kernel.apply("mamba_split_conv1d_scan_combined", make, zxbcdt, weight, bias, dt_bias, A, D)


def gated_rms_norm(module: Any, x: Tensor, z: Tensor | None = None) -> Tensor:
    assert z is None, "Megatron Core gates inside the scan"

    def make(x: Tensor, weight: Tensor) -> Made:
        return torch.empty_like(x), {"x": x, "rstd": rows_of(x.unflatten(-1, (-1, module.group_size)))}

    return Kernel.apply("rms_norm_gated", make, x, module.weight)


def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None) -> Tensor:
    """[b, d, s] -> [b, d, s]"""
    return Kernel.apply("causal_conv1d", lambda x, *_: (torch.empty_like(x), {"x": x}), x, weight, bias)


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    def make(x: Tensor) -> Made:
        y = torch.empty_like(x)
        return y, {"y": y, "rstd": rows_of(x)}

    return Kernel.apply("l2norm", make, x)


def chunk_gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **_: Any
) -> tuple[Tensor, None]:
    """q, k [b, s, h, k], v [b, s, h, v], g (fp32) and beta [b, s, h] -> [b, s, h, v]"""

    def make(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Made:
        sums = torch.empty_like(g, dtype=torch.float32)
        triangle = k.new_empty((*k.shape[:3], CHUNK))
        return torch.empty_like(v), {"q": q, "k": k, "v": v, "g": sums, "beta": beta, "A": triangle}

    return Kernel.apply("chunk_gated_delta_rule", make, query, key, value, g, beta), None


def gated_norm(module: Any, x: Tensor, gate: Tensor) -> Tensor:
    """The output norm of a gated delta net, times the gate: compiled, hence its inputs are kept."""
    y = module.out_norm(x.reshape(-1, x.shape[-1]))
    assert module.act_fn is functional.silu, "the gate is a silu"

    def make(y: Tensor, gate: Tensor) -> Made:
        return torch.empty_like(y), {"y": y, "gate": gate}

    return Kernel.apply("gate", make, y, gate.reshape(y.shape))


def output_gate(module: Any, x: Tensor, gate: Tensor) -> Tensor:
    """Attention's output times the sigmoid of a gate: compiled, hence its inputs are kept as they came."""
    del module

    def make(x: Tensor, gate: Tensor) -> Made:
        return torch.empty_like(x), {"x": x, "gate": gate}

    return Kernel.apply("output_gate", make, x, gate)


def install() -> None:
    """Put these where Megatron Core calls the real ones. For this process only."""
    from megatron.core.ssm import gated_delta_net, mamba_mixer
    from megatron.core.transformer.attention import Attention

    from meshwright.verify.engine.standin import recurrent

    mixer: Any = mamba_mixer
    net: Any = gated_delta_net
    norm: Any = recurrent.GatedNorm
    mixer.mamba_split_conv1d_scan_combined = split_conv1d_scan
    norm.forward = gated_rms_norm
    net.causal_conv1d_fn, net.l2norm = causal_conv1d, l2norm
    net.chunk_gated_delta_rule = chunk_gated_delta_rule
    net.GatedDeltaNet._apply_gated_norm = gated_norm
    attention: Any = Attention
    attention._apply_output_gate = output_gate
