"""Putting the stand-in modules where Megatron Core looks for Transformer Engine, Mamba and FLA."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

VERSION = "2.11.0"
"""The Transformer Engine release whose behaviour the stand-in follows."""


def install() -> None:
    """Register the modules; call before Megatron Core is imported."""
    from meshwright.verify.engine.standin import attention, linear, loss, norm, recurrent

    modules: dict[str, dict[str, Any]] = {
        "transformer_engine": {"__version__": VERSION},
        "transformer_engine.common": {},
        "transformer_engine.common.recipe": {
            name: gpu_only(name)
            for name in (
                "DelayedScaling",
                "Float8CurrentScaling",
                "Float8BlockScaling",
                "Format",
                "MXFP8BlockScaling",
                "NVFP4BlockScaling",
                "Recipe",
            )
        },
        "transformer_engine.pytorch": {
            "DotProductAttention": attention.DotProductAttention,
            "GroupedLinear": linear.GroupedLinear,
            "LayerNorm": norm.LayerNorm,
            "LayerNormLinear": linear.LayerNormLinear,
            "Linear": linear.Linear,
            "RMSNorm": norm.RMSNorm,
            "Fp8Padding": gpu_only("Fp8Padding"),
            "Fp8Unpadding": gpu_only("Fp8Unpadding"),
        },
        "transformer_engine.pytorch.attention": {},
        "transformer_engine.pytorch.attention.rope": {"apply_rotary_pos_emb": attention.apply_rotary_pos_emb},
        "transformer_engine.pytorch.cross_entropy": {"parallel_cross_entropy": loss.parallel_cross_entropy},
        "transformer_engine.pytorch.distributed": {
            "CudaRNGStatesTracker": gpu_only("CudaRNGStatesTracker"),
            "activation_recompute_forward": nothing,
            "checkpoint": gpu_only("checkpoint"),
        },
        "transformer_engine.pytorch.fp8": {"FP8GlobalStateManager": NoFp8, "fp8_autocast": nothing},
        "transformer_engine.pytorch.ops": {
            name: gpu_only(name) for name in ("FusibleOperation", "Sequential")
        },
        "transformer_engine.pytorch.router": {
            name: gpu_only(name)
            for name in (
                "fused_compute_score_for_moe_aux_loss",
                "fused_moe_aux_loss",
                "fused_topk_with_score_function",
            )
        },
        "transformer_engine.pytorch.tensor": {"QuantizedTensor": gpu_only("QuantizedTensor")},
        "fla": {},
        "fla.modules": {},
        "fla.modules.l2norm": {"l2norm": recurrent.l2norm},
        "fla.ops": {},
        "fla.ops.gated_delta_rule": {"chunk_gated_delta_rule": recurrent.chunk_gated_delta_rule},
        "mamba_ssm": {"__version__": "2.2.6"},
        "mamba_ssm.ops": {},
        "mamba_ssm.ops.triton": {},
        "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": recurrent.GatedNorm},
        "mamba_ssm.ops.triton.ssd_combined": {
            "mamba_chunk_scan_combined": gpu_only("mamba_chunk_scan_combined"),
            "mamba_split_conv1d_scan_combined": recurrent.mamba_split_conv1d_scan_combined,
        },
        "mamba_ssm.ops.triton.selective_state_update": {
            "selective_state_update": gpu_only("selective_state_update")
        },
    }
    for name, content in modules.items():
        register(name, content)


def register(name: str, content: dict[str, Any]) -> None:
    """A module made of `content`, known under `name` and to its parent."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    module.__dict__.update(content)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


@contextlib.contextmanager
def triton_in_sight() -> Iterator[None]:
    """While open, `import triton` gives a module whose kernels are never called.

    Closed again at once: torch itself behaves differently where it finds Triton.
    """

    def keep(function: Any = None, **_: Any) -> Any:
        return function if callable(function) else keep

    register("triton", {"jit": keep, "autotune": lambda *_, **__: keep, "heuristics": lambda *_, **__: keep})
    register("triton.language", {"constexpr": int})
    yield
    for name in ("triton.language", "triton"):
        del sys.modules[name]


def gpu_only(name: str) -> type:
    """A class of this name that cannot be used here; Megatron Core only needs it to exist.

    The words of the error tell the parent that a GPU is missing (`verification.GPUS_ONLY`).
    """

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        # nothing is left to be written: these kernels cannot run here, and `verify` reports the level skipped
        raise NotImplementedError(f"{name} runs on GPUs only")

    return type(name, (), {"__init__": refuse})


@contextlib.contextmanager
def nothing(*_: Any, **__: Any) -> Iterator[None]:
    """A context that does nothing (8-bit formats are never on here)."""
    yield


class NoFp8:
    """The state of 8-bit training: off."""

    @staticmethod
    def is_fp8_enabled() -> bool:
        return False

    @staticmethod
    def get_fp8_recipe() -> None:
        return None
