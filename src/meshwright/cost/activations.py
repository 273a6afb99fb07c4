"""Activations of a block of each kind on one rank: what a micro-batch keeps, and what its backward needs.

Counted by the tensors each operation saves in Megatron Core with Transformer Engine: the input of each
norm, the input of each GEMM (in the number format of the GEMM), q, k, v and the output of attention, the
input of the activation, dropout masks, the router's scores, the permuted tokens of a MoE layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.attention_memory import Part, mixer_part
from meshwright.cost.ffn_memory import ffn_part, router_part
from meshwright.cost.sizes import BF16, BOOL, FP32, Sizes, Tokens, tokens
from meshwright.layout.stages import BlockKind, describe_kinds
from meshwright.layout.table import Bools, Floats
from meshwright.model.spec import Attention, Layer, Mla, Mlp, Moe
from meshwright.model.weights import padded_vocab

__all__ = ["BlockMemory", "Part", "Tokens", "block_memory", "layer_part", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMemory:
    """Activation memory of one block of each kind for one micro-batch. [Q, K] bytes

    kept     held from its forward to its backward pass
    working  most bytes beyond everything kept while the block runs backward
    logits   of `kept`, what the loss holds until its own backward pass, which comes first
    hosted   held in host memory instead
    graphed  of `kept`, what CUDA graphs own: it stays theirs from step to step
    graph_working  most bytes that a graphed part needs beyond that, in memory no eager kernel may use
    """

    kept: Floats
    working: Floats
    logits: Floats
    hosted: Floats
    graphed: Floats
    graph_working: Floats


def block_memory(x: Sizes) -> BlockMemory:
    """Kept and working bytes of every block kind."""
    kinds = describe_kinds(x.model)
    parts = [_block(x, kind) for kind in kinds]
    loss = x.of_share(x.model.loss_share)
    logits = [_logits(loss) if kind.role in ("head", "mtp") else x.zeros for kind in kinds]
    graphs = [graphed_part(x, kind, part) for kind, part in zip(kinds, parts, strict=True)]
    return BlockMemory(
        graphed=np.stack([part.kept for part in graphs], axis=1),
        graph_working=np.stack([part.working for part in graphs], axis=1),
        kept=np.stack([part.kept for part in parts], axis=1),
        working=np.stack([part.working for part in parts], axis=1),
        logits=np.stack(logits, axis=1),
        hosted=np.stack([x.zeros + part.hosted for part in parts], axis=1),
    )


def graphed_part(x: Sizes, kind: BlockKind, whole: Part) -> Part:
    """What CUDA graphs hold of a block: the saved tensors of the parts that their scope covers.

    A graph's memory is its own from its capture on: saved tensors are not given back between steps, and
    what a part needs while it runs cannot serve eager kernels, nor theirs the graph. A graph of the full
    iteration holds everything, and only the optimizer runs beside it.
    Left out: the executable graphs themselves. Source: torch/cuda/graphs.py (private pools);
    megatron/core/transformer/cuda_graphs.py.
    """
    scope = np.array([e.cuda_graphs for e in x.keys.executions])[x.keys.execution]
    full = scope == "full"
    held = np.where(full, whole.kept, 0.0)
    if (scope == "none").all() or kind.role != "layer" or kind.recomputed or kind.layer is None:
        return Part(kept=held, working=x.zeros)
    layer = x.model.kinds[kind.layer]
    x = x.of_share(layer.share)
    working = x.zeros
    covered: list[tuple[Part, tuple[str, ...]]] = []
    if layer.mixer is not None:
        covered.append((mixer_part(x, layer.mixer), ("attn", "moe")))
    if isinstance(layer.ffn, Mlp):
        covered.append((ffn_part(x, layer.ffn), ("attn", "mlp")))
    if isinstance(layer.ffn, Moe):
        covered.append((router_part(x, layer.ffn), ("router", "moe")))
    for part, scopes in covered:
        inside = np.isin(scope, scopes)
        held = held + np.where(inside, part.kept, 0.0)
        working = np.maximum(working, np.where(inside, part.working, 0.0))
    return Part(kept=np.minimum(held, whole.kept), working=working)


def _block(x: Sizes, kind: BlockKind) -> Part:
    match kind.role:
        case "head":
            return head_part(x.of_share(x.model.loss_share))
        case "embedding":
            return embedding_part(x)
        case "vision":
            return Part(kept=x.zeros, working=x.zeros)
    described = x.model.kinds[kind.layer or 0]
    x = x.of_share(described.share)
    layer = layer_part(x, described)
    if kind.role == "mtp":
        return _mtp(x, layer, recomputed=kind.recomputed)
    if kind.recomputed:
        return fully_recomputed(x, layer)
    return _beside_exchange(x, _hosted_layers(x, layer))


def _hosted_layers(x: Sizes, layer: Part) -> Part:
    """Transformer Engine's layer offloading: of `cpu_offload_layers` layers nothing stays but two buffers."""
    share = x.keys.number(lambda e: e.cpu_offload_layers) / max(x.model.num_layers, 1)
    moved = layer.kept * np.minimum(share, 1.0)
    return Part(
        kept=layer.kept - moved,
        working=layer.working + np.where(share > 0, 2 * layer.kept, 0.0),
        hosted=layer.hosted + moved,
    )


def _beside_exchange(x: Sizes, layer: Part) -> Part:
    """Where the expert exchange overlaps, another micro-batch's layer runs forward beside this one."""
    beside = np.where(x.keys.flag(lambda e: "ep" in e.overlaps), layer.kept, 0.0) * x.model.is_moe
    return Part(kept=layer.kept, working=layer.working + beside, hosted=layer.hosted)


def fully_recomputed(x: Sizes, layer: Part) -> Part:
    """Only the input stays; a group of layers is computed again at once (uniform: N layers, block: one)."""
    group = x.keys.number(lambda e: (e.recompute.num_layers or 1) if e.recompute.method == "uniform" else 1)
    checkpoint = BF16 * x.model.hidden * x.sharded
    return Part(kept=checkpoint / group, working=group * layer.kept + layer.working - checkpoint)


def layer_part(x: Sizes, layer: Layer) -> Part:
    """One decoder layer with the key's selective recompute; its feed-forward part runs backward first."""
    parts = []
    if layer.ffn is not None:
        # a MoE layer has a norm of its own; a dense one has it fused with fc1, inside what `mlp` recomputes
        apart = isinstance(layer.ffn, Moe)
        dropped = x.keys.recomputes("layernorm") if apart else x.keys.recomputes("mlp")
        parts.append((ffn_part(x, layer.ffn), _norm(x, "mlp_norm", dropped)))
    if layer.mixer is not None:
        # Transformer Engine fuses the norm with the projection after it, but for latent attention
        apart = isinstance(layer.mixer, Mla)
        dropped = x.keys.recomputes("layernorm") & apart
        parts.append((mixer_part(x, layer.mixer), _norm(x, "attn_norm", dropped)))
    kept, working, hosted = x.zeros, x.zeros, x.zeros
    for part, norm in parts:
        working = np.maximum(working, part.working + norm.working - kept)
        kept = kept + part.kept + norm.kept + _residual_mask(x)
        hosted = hosted + part.hosted + norm.hosted
    extra_norms = layer.norms - len(parts)
    kept = kept + max(extra_norms, 0) * BF16 * x.model.hidden * x.sharded + _adapter_inputs(x, layer)
    return Part(kept=kept, working=working, hosted=hosted)


def _norm(x: Sizes, name: str, dropped: Bools) -> Part:
    """Input of a norm, its statistics, and its output as the input of the next GEMM."""
    statistics = FP32 * (1 if x.model.normalization == "rms" else 2) * x.sharded
    before = BF16 * x.model.hidden * x.sharded
    after = np.where(dropped, 0.0, x.saved) * x.model.hidden * x.sharded
    part = Part(kept=before + after + statistics, working=x.zeros)
    linear = x.keys.offloads("qkv_linear") if name == "attn_norm" else x.keys.offloads("none")
    return part.offload(before, x.keys.offloads(name)).offload(after, linear)


def _adapter_inputs(x: Sizes, layer: Layer) -> Floats:
    """LoRA with sequence parallelism: adapters of qkv and fc1 keep their gathered input, all tokens of it.

    Measured by Megatron Bridge (nemo-mbridge-perf-memory-tuning skill) as what gathering again saves:
    4.7 GB for Qwen3-8B (two a layer at 8,192 tokens), 1.6 GB for Qwen3-30B-A3B (one: experts have none).
    """
    if x.job.task != "lora":
        return x.zeros
    gathers = isinstance(layer.mixer, Attention) + isinstance(layer.ffn, Mlp)
    return gathers * BF16 * x.model.hidden * x.gathered * (x.keys.tp > 1)


def _residual_mask(x: Sizes) -> Floats | float:
    """The dropout mask before the residual is added."""
    return BOOL * x.model.hidden * x.sharded if x.job.hidden_dropout > 0 else 0.0


def vocabulary(x: Sizes) -> Floats:
    return np.asarray(padded_vocab(x.model.vocab_size, x.keys.tp) / x.keys.tp)


def _in_place(x: Sizes) -> Bools:
    """Transformer Engine's cross entropy writes the gradient over the bf16 logits.

    Reinforcement learning takes log-probabilities from fp32 logits by Megatron's own cross entropy instead
    (verl, utils/megatron/tensor_parallel.py; NeMo RL, distributed/model_utils.py).
    """
    fused = x.keys.flag(lambda e: e.cross_entropy_fusion and e.cross_entropy_impl == "te")
    return fused & (x.job.task != "rl")


def _logits(x: Sizes) -> Floats:
    """What cross entropy keeps: bf16 logits (fused by Transformer Engine) or fp32 probabilities.

    Source: megatron/core/tensor_parallel/cross_entropy.py; transformer_engine/pytorch/cross_entropy.py.
    """
    return np.where(_in_place(x), BF16, FP32) * vocabulary(x) * x.full


def head_part(x: Sizes) -> Part:
    """Final norm, output projection, cross entropy.

    Beside what is kept: the bf16 logits while fp32 probabilities are made (the compiled form holds those
    twice), their gradient while it is cast down, or the projection's own gradients after that. torch's own
    cross entropy makes fp32 gradients of log-probabilities and of logits.
    """
    hidden, vocab = x.model.hidden, vocabulary(x)
    kept = 2 * BF16 * hidden * x.sharded + _logits(x)
    gradient = BF16 * hidden * (x.full + x.sharded) + BF16 * hidden * vocab * x.own_wgrad
    bf16_logits, probabilities = BF16 * vocab * x.full, FP32 * vocab * x.full
    compiled = x.keys.flag(lambda e: e.cross_entropy_fusion and e.cross_entropy_impl == "native")
    torch = x.keys.flag(lambda e: e.cross_entropy_impl == "torch")
    of_loss = np.where(torch, 2 * probabilities, bf16_logits + np.where(compiled, probabilities, 0.0))
    working = np.where(_in_place(x), gradient, np.maximum(of_loss, bf16_logits + gradient - probabilities))
    return Part(kept=kept, working=working)


def embedding_part(x: Sizes) -> Part:
    """Dropout mask of the embeddings; backward makes a dense bf16 gradient of the whole table."""
    mask = BOOL * x.model.hidden * x.sharded if x.job.hidden_dropout > 0 else x.zeros
    table = BF16 * x.model.hidden * vocabulary(x)
    return Part(kept=mask, working=table + BF16 * x.model.hidden * (x.gathered + x.sharded))


def _mtp(x: Sizes, layer: Part, *, recomputed: bool) -> Part:
    """A multi-token-prediction module: two normed inputs, their concatenation, a layer, norm and logits.

    Recomputed, it keeps its two inputs, and the output projection's own.
    Source: megatron/core/transformer/multi_token_prediction.py.
    """
    head, hidden = head_part(x), BF16 * x.model.hidden * x.sharded
    module = layer.kept + 6 * hidden
    beyond = head.kept - hidden  # without the final norm's input, which is the module's
    kept = np.where(recomputed, 2 * hidden, module) + beyond
    again = module if recomputed else x.zeros
    return Part(kept=kept, working=np.maximum(layer.working + again, head.working), hosted=layer.hosted)
