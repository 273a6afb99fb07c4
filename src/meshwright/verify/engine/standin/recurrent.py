"""State-space and delta-rule mixers, step by step in plain torch: for short sequences.

Source: the reference functions of state-spaces/mamba (ssd_combined.py, mamba_split_conv1d_scan_ref) and
flash-linear-attention (gated_delta_rule).
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor, conv1d_weight: Tensor, conv1d_bias: Tensor, dt_bias: Tensor, A: Tensor, D: Tensor,
    headdim: int, ngroups: int, **_: Any,
) -> Tensor:  # fmt: skip
    """Convolution, selective scan and gate of Mamba-2.

    zxbcdt [b, l, 2*inner + 2*groups*state + heads] -> [b, l, inner]
    """
    batch, length, width = zxbcdt.shape
    heads = A.shape[0]
    inner = heads * headdim
    state = (width - 2 * inner - heads) // (2 * ngroups)
    z, mixed, dt = zxbcdt.split([inner, inner + 2 * ngroups * state, heads], -1)
    mixed = causal_convolution(mixed, conv1d_weight, conv1d_bias)
    x, b, c = mixed.split([inner, ngroups * state, ngroups * state], -1)
    x = x.view(batch, length, heads, headdim)
    b, c = (
        y.view(batch, length, ngroups, state).repeat_interleave(heads // ngroups, 2) for y in (b, c)
    )  # [b, l, heads, state]
    dt = functional.softplus(dt.float() + dt_bias)
    held = x.new_zeros(batch, heads, headdim, state)
    outputs = []
    for t in range(length):
        decay = torch.exp(dt[:, t] * A)[..., None, None]
        held = held * decay + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None, :]
        outputs.append((held * c[:, t, :, None, :]).sum(-1))
    y = torch.stack(outputs, 1) + x * D[:, None]
    return (y.reshape(batch, length, inner) * functional.silu(z)).to(zxbcdt.dtype)


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Depthwise convolution over earlier positions, then silu: x [b, l, c], weight [c, width]."""
    channels, width = weight.shape
    padded = functional.pad(x.transpose(1, 2), (width - 1, 0))
    return functional.silu(functional.conv1d(padded, weight[:, None], bias, groups=channels)).transpose(1, 2)


def chunk_gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> Any:
    """Megatron Core's own plain version of the kernel."""
    from megatron.core.ssm.gated_delta_net import torch_chunk_gated_delta_rule

    return torch_chunk_gated_delta_rule(query, key, value, **rest)


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)


class GatedNorm(torch.nn.Module):
    """Mamba's RMSNorm over groups of channels, after the gate."""

    def __init__(
        self, hidden_size: int, eps: float = 1e-5, group_size: int | None = None, device: Any = None,
        dtype: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.group_size = eps, group_size or hidden_size
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = None

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        if z is not None:
            x = x * functional.silu(z)
        groups = x.unflatten(-1, (-1, self.group_size)).float()
        normed = groups * torch.rsqrt(groups.pow(2).mean(-1, keepdim=True) + self.eps)
        return (normed.flatten(-2) * self.weight).to(x.dtype)
