"""Making Megatron Core run on a torch without CUDA. Process-global, hence only in a child process."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import types
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


class Device:
    """Where "cuda" means: `cpu` for real and fake runs, `meta` for counting parameters."""

    current = torch.device("cpu")


class IdleStream:
    """A CUDA stream or event on which everything has already happened."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def record_event(self, event: Any = None) -> IdleStream:
        return self

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0

    def __enter__(self) -> IdleStream:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def is_cuda(device: Any) -> bool:
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, torch.device) and device.type == "cuda"


class CudaMeansHere(TorchFunctionMode):
    """Sends every tensor meant for "cuda" to the current device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0].to(Device.current)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = Device.current
        if func is torch.Tensor.to and len(args) > 1 and is_cuda(args[1]):
            args = (args[0], Device.current, *args[2:])
        return func(*args, **kwargs)


def install() -> None:
    """Patch torch and import Megatron Core over the Transformer Engine stand-in."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    torch.set_num_threads(1)
    # Imported now, so that no request pays for them, and before anything they look at is patched.
    for name in ("_dynamo", "_subclasses.fake_tensor", "testing._internal.distributed.fake_pg"):
        importlib.import_module(f"torch.{name}")
    # Megatron Core compiles its fused element-wise functions; eagerly they compute the same.
    any_torch: Any = torch
    any_torch.compile = lambda model=None, **_: model if callable(model) else (lambda function: function)
    patch_cuda()
    patch_tensors()
    patch_collectives()
    logging.getLogger("megatron").setLevel(logging.ERROR)
    from meshwright.verify.engine import standin

    standin.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.core.models.gpt.experimental_attention_variant_module_specs
        import megatron.core.optimizer
        import megatron.core.pipeline_parallel

        with standin.triton_in_sight():
            import megatron.core.models.mamba.mamba_layer_specs  # noqa: F401
    mode: Any = CudaMeansHere()
    mode.__enter__()


def patch_cuda() -> None:
    """torch.cuda as one idle device of an H100's capability."""
    cuda: Any = torch.cuda

    def nothing() -> Any:
        # A new function each time: torch's tables of known functions refuse one under two names.
        return lambda *_, **__: None

    def no_context() -> Any:
        return lambda *_, **__: contextlib.nullcontext()

    properties = types.SimpleNamespace(
        major=9, minor=0, name="cpu", total_memory=80 << 30, multi_processor_count=132
    )
    cuda.current_device = lambda: Device.current
    cuda.device_count = lambda: 1
    cuda.Stream = cuda.Event = IdleStream
    cuda.get_device_capability = lambda *_, **__: (9, 0)
    cuda.get_device_properties = lambda *_, **__: properties
    cuda.mem_get_info = lambda *_, **__: (80 << 30, 80 << 30)
    cuda.is_current_stream_capturing = lambda: False
    cuda.memory_stats = lambda *_, **__: {}
    cuda.nvtx = types.SimpleNamespace(
        range_push=nothing(), range_pop=nothing(), range=no_context(), mark=nothing()
    )
    for name in ("set_device", "synchronize", "empty_cache", "set_stream", "reset_peak_memory_stats"):
        setattr(cuda, name, nothing())
    for name in ("stream", "device"):
        setattr(cuda, name, no_context())
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_, **__: IdleStream())
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: 0)
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *_, **__: torch.get_rng_state()
        module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
        module.manual_seed = lambda seed: (torch.default_generator.manual_seed(seed), None)[1]
        module.manual_seed_all = nothing()


def patch_tensors() -> None:
    """Tensors that look as if they were on a GPU where Megatron Core compares names."""
    tensor: Any = torch.Tensor
    plain_type = tensor.type

    def cuda_type(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = plain_type(self, *args, **kwargs)
        if not isinstance(answer, str) or answer.startswith("torch.cuda."):
            return answer
        return answer.replace("torch.", "torch.cuda.", 1)

    tensor.type = cuda_type
    tensor.is_cuda = property(lambda self: True)
    tensor.record_stream = lambda self, stream: None
    tensor.pin_memory = lambda self, *_, **__: self


def patch_collectives() -> None:
    """What gloo lacks: `device_ids` of a barrier, lists of unequal lengths."""
    plain_barrier, plain_gather, plain_scatter = dist.barrier, dist.all_gather, dist.reduce_scatter

    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return plain_barrier(group=group, async_op=async_op)

    def all_gather(tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        if len({part.shape for part in tensor_list}) == 1:
            return plain_gather(tensor_list, tensor, group=group, async_op=async_op)
        me = dist.get_rank(group)
        for rank, part in enumerate(tensor_list):
            if rank == me:
                part.copy_(tensor)
            dist.broadcast(part, group=group, group_src=rank)
        return None

    def reduce_scatter(
        output: Any, input_list: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if len({part.shape for part in input_list}) == 1:
            return plain_scatter(output, input_list, op=op, group=group, async_op=async_op)
        total: Any = torch.cat(list(input_list)).contiguous()
        dist.all_reduce(total, op=op, group=group)
        output.copy_(total.split([part.shape[0] for part in input_list])[dist.get_rank(group)])
        return None

    patched: Any = dist
    patched.barrier, patched.all_gather, patched.reduce_scatter = barrier, all_gather, reduce_scatter
