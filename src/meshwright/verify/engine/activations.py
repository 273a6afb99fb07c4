"""What a rank keeps from its forward to its backward passes, under the real schedule and without memory.

Tensors are on the meta device (shapes and no contents), collectives go nowhere, and hooks see everything
that autograd saves. Saved storages are counted once, parameters and buffers not at all.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return,attr-defined,assignment"
from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import get_forward_backward_func, p2p_communication
from megatron.core.tensor_parallel import random as engine_random

from meshwright.verify.engine import balanced, build, parameters, patches, world
from meshwright.verify.engine.standin import kept


def measure(request: dict[str, Any]) -> list[dict[str, Any]]:
    """For each rank of `request["ranks"]`: bytes saved, at the peak and by part of the model.

    request  world, mesh, config, model, ranks, seq_length, micro_batch_size, num_microbatches;
             `until_steady` ends a rank once its backward passes keep pace with the forward passes
    Answer, a rank: `peak_saved_bytes` (most that is kept after a forward pass), `microbatch_bytes` (kept
    by the first micro-batch alone), `parts` (that, by part of the model), `left_bytes` (must be 0).
    """
    patches.Device.current = torch.device("meta")
    forget_randomness()
    forget_neighbours()
    kept.install()
    config = request["config"]
    if config.get("num_moe_experts"):
        balanced.install(config["moe_router_topk"], config["num_moe_experts"])
    return [one_rank(request, rank) for rank in request["ranks"]]


def forget_randomness() -> None:
    """Random states have contents; nothing here depends on them."""
    engine_random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    engine_random._get_cuda_rng_state = lambda *_, **__: None
    engine_random._set_cuda_rng_state = lambda *_, **__: None
    engine_random._get_all_rng_states = lambda: (None, None, {})
    engine_random._set_all_rng_states = lambda *_: None


def forget_neighbours() -> None:
    """What would need another rank: objects are our own, messages are not waited for."""
    dist.all_gather_object = fill
    p2p_communication._batched_p2p_ops = lambda **_: []
    p2p_communication._p2p_ops = lambda **_: {}


def fill(found: list[Any], mine: Any, group: Any = None) -> None:
    """all_gather_object where every rank says the same."""
    found[:] = [mine] * len(found)


class Ledger:
    """Which storages autograd keeps alive, and for which part of the model each was saved first."""

    def __init__(self, ignored: set[int]) -> None:
        self.ignored = ignored
        self.storages: dict[int, Any] = {}
        self.holders: collections.Counter[int] = collections.Counter()
        self.owner: dict[int, str] = {}
        self.place = "outside"
        self.peak = 0
        self.turned = False

    def pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.ignored:
            return tensor
        if not self.holders[key]:
            self.storages[key] = storage
            self.owner[key] = self.place
        self.holders[key] += 1
        held = Held(tensor)
        weakref.finalize(held, self.release, key)
        return held

    def release(self, key: int) -> None:
        self.holders[key] -= 1
        if not self.holders[key]:
            self.storages.pop(key, None)

    def turn(self, _: Any) -> None:
        """A backward pass has begun."""
        self.turned = True

    def total(self) -> int:
        """Bytes kept now; a storage that was emptied for recomputation counts as empty."""
        return sum(storage.nbytes() for storage in self.storages.values())

    def note_peak(self) -> None:
        self.peak = max(self.peak, self.total())

    def parts(self) -> dict[str, int]:
        sums: collections.Counter[str] = collections.Counter()
        for key, storage in self.storages.items():
            sums[self.owner[key]] += storage.nbytes()
        return dict(sums)


class Steady(Exception):  # noqa: N818 - a signal, not an error
    """The peak is behind: forward and backward passes alternate."""


class Held:
    """A saved tensor, alive exactly as long as autograd keeps it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def unpack(held: Any) -> Any:
    return held.tensor if isinstance(held, Held) else held


def one_rank(request: dict[str, Any], rank: int) -> dict[str, Any]:
    world.enter(request["world"], rank, request["mesh"])
    with torch.device("meta"):
        _, chunks = build.build_rank(request)
    for chunk in chunks:
        chunk.model_type = ModelType.encoder_or_decoder
        chunk.train()
    ledger = Ledger(known_storages(chunks))
    for number, chunk in enumerate(chunks):
        watch(ledger, chunk, f"chunk{number}." if len(chunks) > 1 else "")
    first: dict[str, int] = {}
    hooks = torch.autograd.graph.saved_tensors_hooks(ledger.pack, unpack)
    with hooks, contextlib.suppress(Steady):
        run_schedule(request, chunks, ledger, first)
    return {
        "rank": rank,
        **parameters.coordinates(),
        "peak_saved_bytes": ledger.peak,
        "microbatch_bytes": sum(first.values()),
        "parts": first,
        "left_bytes": ledger.total(),
    }


def known_storages(chunks: list[Any]) -> set[int]:
    """Storages of parameters and buffers, which are not activations."""
    tensors = [x for chunk in chunks for x in (*chunk.parameters(), *chunk.buffers())]
    return {x.untyped_storage()._cdata for x in tensors}


def watch(ledger: Ledger, chunk: Any, prefix: str) -> None:
    """While a part of the model runs, what is saved is on its account."""
    named = {
        "embedding": getattr(chunk, "embedding", None),
        "output_layer": getattr(chunk, "output_layer", None),
    }
    decoder = chunk.decoder
    named["final_norm"] = getattr(decoder, "final_layernorm", None)
    for layer in decoder.layers:
        named[f"layer{layer.layer_number - 1}"] = layer
    for index, module in enumerate(getattr(getattr(chunk, "mtp", None), "layers", [])):
        named[f"mtp{index}"] = module
    for name, module in named.items():
        if module is not None:
            follow(ledger, module, prefix + name)


def follow(ledger: Ledger, module: Any, name: str) -> None:
    before: list[str] = []

    def enter(*_: Any) -> None:
        before.append(ledger.place)
        ledger.place = name

    def leave(*_: Any) -> None:
        ledger.place = before.pop()

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave)


def run_schedule(request: dict[str, Any], chunks: list[Any], ledger: Ledger, first: dict[str, int]) -> None:
    """All micro-batches of one step of this rank."""
    length, micro = request["seq_length"], request["micro_batch_size"]
    shape = (micro, length // request["mesh"]["context_parallel_size"])
    several = len(chunks) > 1
    passes, steady = [0], [0]

    def batches() -> Iterator[Any]:
        while True:
            yield torch.zeros(shape, dtype=torch.long, device="meta")

    def forward_step(data: Iterator[Any], chunk: Any) -> Any:
        tokens = next(data)
        ledger.place = "ends"
        output = chunk(tokens, tokens, None, labels=tokens)
        passes[0] += 1
        ledger.note_peak()
        if passes[0] == 1:
            first.update(ledger.parts())
        steady[0] += ledger.turned
        output.register_hook(ledger.turn)
        if request.get("until_steady") and steady[0] == 2:
            raise Steady

        def loss(losses: Any) -> Any:
            return losses.float().mean(), {}

        return output, loss

    data = [batches() for _ in chunks] if several else batches()
    get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=data,
        model=chunks if several else chunks[0],
        num_microbatches=request["num_microbatches"],
        seq_length=length,
        micro_batch_size=micro,
        forward_only=False,
    )
