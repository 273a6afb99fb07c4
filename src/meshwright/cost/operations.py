"""The operations of one block and what each costs: seconds of its forward and of its backward pass.

An operation carries the term it belongs to and the recompute modules that run it a second time. All
arrays are [Q], one entry a layer key. Symbols: tok = mbs*seq/cp; ts = tok/tp with sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.cost.activations import Tokens, tokens
from meshwright.cost.keys import Keys
from meshwright.cost.kernels import GemmConstants, Kernels, gemm_seconds, kernels_of
from meshwright.cost.network import Group, Network, network_of
from meshwright.cost.parameters import block_weights
from meshwright.cost.precision import Recipe, recipe_for
from meshwright.cost.question import Question
from meshwright.layout.stages import BlockKind
from meshwright.layout.table import Floats
from meshwright.model.spec import Attention, Layer, LinearAttention, Mamba2, Mla, Mlp, Model, Moe
from meshwright.model.weights import Weight, padded_vocab


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Seconds of one operation of a block, for one micro-batch. [Q]"""

    term: str
    forward: Floats
    backward: Floats
    modules: tuple[str, ...] = ()
    """Names of recompute modules that contain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that prices an operation: tokens, kernels, links and the groups of each key."""

    question: Question
    keys: Keys
    tok: Tokens
    kernels: Kernels
    network: Network
    recipe: Recipe
    tp: Group
    cp: Group
    ep: Group
    etp: Group

    @property
    def model(self) -> Model:
        return self.question.model

    def gemm_constants(self, *, quantised: bool) -> GemmConstants:
        return self.kernels.gemm(self.recipe.gemm if quantised else "bf16")


def machine_for(question: Question, keys: Keys) -> Machine:
    """Prices for the keys of a table. Strides follow the rank order tp-cp-ep-dp-pp."""
    network = network_of(question.cluster)
    one = np.ones_like(keys.tp)
    return Machine(
        question=question,
        keys=keys,
        tok=tokens(question.job, keys),
        kernels=kernels_of(question.cluster.gpu),
        network=network,
        recipe=recipe_for(question.job.precision, question.cluster.gpu),
        tp=network.group(keys.tp, one),
        cp=network.group(keys.cp, keys.tp),
        ep=network.group(keys.ep, keys.etp),
        etp=network.group(keys.etp, one),
    )


def operations(x: Machine, kind: BlockKind) -> Iterator[Operation]:
    """Every operation of one block of a kind."""
    match kind.role:
        case "layer":
            yield from layer_operations(x, x.model.kinds[kind.layer or 0])
        case "mtp":
            yield from _mtp_operations(x, kind)
        case "head":
            yield from head_operations(x)
        case "vision":
            yield from _vision_operations(x)
        case "embedding":
            moved = 3 * 2.0 * x.model.hidden * x.tok.sharded
            yield _memory(x, moved, 2 * moved, launches=2)


def layer_operations(x: Machine, layer: Layer) -> Iterator[Operation]:
    """Operations of one decoder layer."""
    kind = BlockKind(name="", role="layer", layer=x.model.kinds.index(layer))
    for weight in block_weights(x.model, kind):
        if weight.gemm:
            yield _gemm(x, weight, layer)
    h = x.model.hidden
    norms = layer.norms * h * x.tok.sharded
    yield _memory(x, 10.0 * norms, 12.0 * norms, launches=2.0 * layer.norms, modules=("layernorm",))
    if layer.mixer is not None:
        yield from _mixer_operations(x, layer)
        yield _tp_collectives(x, ())
    if isinstance(layer.ffn, Mlp):
        width = layer.ffn.ffn * x.tok.full / x.keys.tp
        yield _memory(x, 6.0 * width, 10.0 * width, launches=1, modules=("mlp",))
        yield _tp_collectives(x, ("mlp",))
    elif isinstance(layer.ffn, Moe):
        yield from _moe_operations(x, layer.ffn)


def _memory(
    x: Machine, forward: Floats, backward: Floats, *, launches: float, modules: tuple[str, ...] = ()
) -> Operation:
    """A memory-bound operation, by the bytes it moves forward and backward."""
    return Operation(
        term="memory_bound",
        forward=x.kernels.memory_bound(forward, launches),
        backward=x.kernels.memory_bound(backward, launches),
        modules=modules,
    )


def _gemm_modules(weight: Weight, layer: Layer) -> tuple[str, ...]:
    if isinstance(layer.ffn, Moe) and weight.part == "moe":
        return ("moe", "shared_experts") if weight.name.startswith("shared") else ("moe",)
    if weight.part == "mlp":
        return ("mlp",)
    return ("mla_up_proj",) if "up_proj" in weight.name else ()


def _gemm(x: Machine, weight: Weight, layer: Layer) -> Operation:
    """Forward (m, n, k), input gradient (m, k, n), weight gradient (n, k, m), and quantisation."""
    n, k = (np.full(len(x.keys), size, dtype=float) for size in weight.shape)
    groups: Floats | float = 1.0
    penalty: Floats | float = 1.0
    if weight.grid == "expert":
        degree = x.keys.etp
        groups = weight.copies / x.keys.ep
        routed = x.tok.sharded * weight.active * x.keys.etp * x.keys.number(lambda e: e.capacity_factor or 1.0)
        m = routed / groups
        form = x.kernels.table["grouped_gemm"]
        penalty = np.where(x.keys.flag(lambda e: e.grouped_mlp_fusion), form["fused"], form["penalty"])
    else:
        degree = x.keys.tp
        m = x.tok.full if weight.split else x.tok.sharded
    n = n / degree if weight.split == "n" else n
    k = k / degree if weight.split == "k" else k
    quantised = x.recipe.quantised and weight.name != "router" and "indexer" not in weight.name
    c = x.gemm_constants(quantised=quantised)
    factor = penalty * x.question.calibration.factor("gemm", x.question.cluster.gpu.architecture)
    q = x.recipe.quantise if quantised else 0.0
    efficiency = x.kernels.table["quantise_efficiency"]["value"] * c.hbm
    quantise = q * m * groups / efficiency
    return Operation(
        term="gemm",
        forward=gemm_seconds(c, m, n, k, groups) * factor + quantise * k,
        backward=(gemm_seconds(c, m, k, n, groups) + gemm_seconds(c, n, k, m, groups)) * factor + quantise * n,
        modules=_gemm_modules(weight, layer),
    )


def _mixer_operations(x: Machine, layer: Layer) -> Iterator[Operation]:
    mixer, toks, tp = layer.mixer, x.tok, x.keys.tp
    match mixer:
        case Attention():
            width = (mixer.heads + max(mixer.kv_heads, 1)) * mixer.head_dim
            bytes_moved = 8.0 * width * toks.full / tp
            yield _memory(x, bytes_moved, bytes_moved, launches=2)
            dims = mixer.head_dim + (mixer.v_head_dim or mixer.head_dim)
            yield from _core_attention(x, mixer.heads, dims / 2, mixer.window, _kv_width(mixer))
        case Mla():
            width = mixer.heads * (2 * (mixer.qk_nope + mixer.qk_rope) + mixer.v_head)
            bytes_moved = 6.0 * width * toks.full / tp
            yield _memory(x, bytes_moved, bytes_moved, launches=4, modules=("mla_up_proj",))
            qk = mixer.qk_nope + mixer.qk_rope
            window = mixer.indexer.top_k if mixer.indexer else None
            yield from _core_attention(x, mixer.heads, (qk + mixer.v_head) / 2, window, mixer.heads * (qk + mixer.v_head))
        case LinearAttention():
            width = (2 * mixer.k_heads * mixer.k_dim + 3 * mixer.v_heads * mixer.v_dim) * toks.full / tp
            yield _memory(x, 12.0 * width, 24.0 * width, launches=8)
            flops = 4.0 * mixer.v_heads * mixer.v_dim * (mixer.k_dim + 64) * toks.full / tp
            yield _chunked_scan(x, flops)
        case Mamba2():
            inner = mixer.heads * mixer.head_dim
            width = (3 * inner + 2 * mixer.groups * mixer.state) * toks.full / tp
            yield _memory(x, 12.0 * width, 24.0 * width, launches=6)
            yield _chunked_scan(x, 6.0 * inner * mixer.state * toks.full / tp)


def _kv_width(a: Attention) -> float:
    return a.kv_heads * (a.head_dim + (a.v_head_dim or a.head_dim))


def _chunked_scan(x: Machine, flops: Floats) -> Operation:
    """Matrix products of a chunked linear recurrence, at a third of the bf16 peak."""
    rate = x.question.cluster.gpu.peak["bf16"] / 3
    return Operation(term="attention", forward=flops / rate, backward=2 * flops / rate)


def _core_attention(
    x: Machine, heads: int, head_dim: float, window: int | None, kv_width: float
) -> Iterator[Operation]:
    """Causal attention: 4*heads*head_dim*keys FLOPs a token, over half the keys or the window."""
    seq = x.question.job.seq_length
    attended = seq / 2 if window is None or window >= seq else window * (1 - window / (2 * seq))
    flops = 4.0 * heads * head_dim * attended * x.tok.full / x.keys.tp
    form = x.kernels.table["attention"]
    length = np.full(len(x.keys), float(min(seq, 2 * attended))) / np.sqrt(x.keys.cp)
    rate = x.kernels.attention_rate(round(head_dim), length)
    rate = rate / x.question.calibration.factor("attention", x.question.cluster.gpu.architecture)
    forward = flops / rate
    backward = forward * form["backward_flops"] / form["backward_rate"]
    yield Operation(term="attention", forward=forward, backward=backward, modules=("core_attn",))
    query_width = heads * head_dim
    yield _cp_communication(x, kv_width, query_width, forward, backward)


def _cp_communication(x: Machine, kv_width: float, q_width: float, forward: Floats, backward: Floats) -> Operation:
    """Keys and values around the ring (p2p), or heads against sequence by all-to-all (a2a).

    p2p: (cp-1)/cp of all keys and values pass every rank forward, twice that backward, beside the
    attention of the step before. a2a: q, k, v, o change hands once each way, and nothing hides it.
    """
    form, keys = x.network.table["overlap"], x.keys
    cp = np.asarray(keys.cp, dtype=float)
    ring_bytes = 2.0 * np.maximum(kv_width / keys.tp, 1) * x.tok.full * cp
    ring = x.network.gather(x.cp, ring_bytes) + (cp - 1) * x.network.latency(x.cp)
    hide = form["cp_hidden"]
    ring_forward = np.maximum(form["cp_floor"] * ring, ring - hide * forward)
    ring_backward = np.maximum(form["cp_floor"] * 2 * ring, 2 * ring - hide * backward)
    swap = x.network.alltoall(x.cp, 2.0 * (2 * q_width + kv_width) * x.tok.full / keys.tp)
    gathered = x.network.gather(x.cp, ring_bytes)
    choice = [keys.flag(lambda e, kind=kind: e.cp_comm == kind) for kind in ("a2a", "a2a+p2p", "allgather")]  # type: ignore[misc]
    several = cp > 1
    pick_forward = np.select(choice, [swap, (swap + ring_forward) / 2, gathered], default=ring_forward)
    pick_backward = np.select(choice, [swap, (swap + ring_backward) / 2, 2 * gathered], default=ring_backward)
    return Operation(
        term="cp",
        forward=np.where(several, pick_forward, 0.0),
        backward=np.where(several, pick_backward, 0.0),
        modules=("core_attn",),
    )


def _tp_collectives(x: Machine, modules: tuple[str, ...], *, width: int | None = None) -> Operation:
    """Around one TP region: all-gather and reduce-scatter with SP, one all-reduce without; same backward."""
    message = 2.0 * (width or x.model.hidden) * x.tok.full
    one = x.network.gather(x.tp, message)
    form = x.network.table["overlap"]
    share = np.where(x.keys.flag(lambda e: "tp" in e.overlaps), form["tp_exposed"], form["tp_plain_exposed"])
    seconds = np.where(x.keys.tp > 1, 2 * one * share, 0.0)
    return Operation(term="tp", forward=seconds, backward=seconds, modules=modules)


def _moe_operations(x: Machine, moe: Moe) -> Iterator[Operation]:
    """Router, permutation, dispatch and combine, activation of the experts, shared expert."""
    space = moe.latent or x.model.hidden
    routed = moe.top_k * x.tok.sharded * x.keys.number(lambda e: e.capacity_factor or 1.0)
    router = 24.0 * moe.experts * x.tok.sharded
    yield _memory(x, router, router, launches=8, modules=("moe",))
    permute = 8.0 * space * routed
    yield _memory(x, permute, permute, launches=4, modules=("moe",))
    act = moe.ffn * routed
    yield _memory(x, 6.0 * act, 10.0 * act, launches=1, modules=("moe", "moe_act"))
    if moe.shared_ffn or moe.parallel_ffn:
        width = (moe.shared_ffn + moe.parallel_ffn) * x.tok.full / x.keys.tp
        yield _memory(x, 6.0 * width, 10.0 * width, launches=1, modules=("moe", "shared_experts"))
        yield _tp_collectives(x, ("moe", "shared_experts"))
    yield _ep_exchange(x, moe, space)
    message = 2.0 * space * routed * x.keys.etp
    etp = np.where(x.keys.etp > 1, 2 * x.network.gather(x.etp, message), 0.0)
    yield Operation(term="ep", forward=etp, backward=etp, modules=("moe",))


def copies_sent(ep: Floats, top_k: int) -> Floats:
    """Copies of a token that leave a rank when equal destinations are merged. [Q]

    ep*(1-(1-1/ep)^k) ranks are hit by k balanced choices, all but one of ep of them elsewhere.
    """
    return np.asarray(ep * (1 - (1 - 1 / ep) ** top_k) * (ep - 1) / ep)


def _ep_exchange(x: Machine, moe: Moe, space: int) -> Operation:
    """Dispatch and combine over the EP group: the same bytes forward and backward."""
    keys, form, table = x.keys, x.network.table["overlap"], x.network.table["dispatcher_efficiency"]
    token = 2.0 * space * x.tok.sharded
    ep = np.asarray(keys.ep, dtype=float)
    merged = keys.flag(lambda e: e.dispatcher in ("deepep", "hybridep"))
    copies = np.where(merged, copies_sent(ep, moe.top_k), moe.top_k * (ep - 1) / ep)
    nodes = x.ep.domains
    crossing = np.where(
        merged, (nodes - 1) * (1 - (1 - 1 / nodes) ** moe.top_k), moe.top_k * (ep - x.ep.inside) / ep
    )
    efficiency = keys.number(lambda e: table[e.dispatcher])
    one_way = x.network.alltoall(x.ep, token * copies * ep / np.maximum(ep - 1, 1), crossing=token * crossing)
    one_way = one_way / efficiency
    gathered = x.network.gather(x.ep, token * ep)
    one_way = np.where(keys.flag(lambda e: e.dispatcher == "allgather"), gathered, one_way)
    both = np.where(keys.ep > 1, 2 * one_way, 0.0)
    exposed = np.where(keys.flag(lambda e: "ep" in e.overlaps), form["ep_floor"] + (1 - form["ep_floor"]) * (1 - form["ep_hidden"]), 1.0)
    factor = x.question.calibration.factor("ep", x.question.cluster.gpu.architecture)
    return Operation(term="ep", forward=both * exposed * factor, backward=both * exposed * factor, modules=("moe",))


def head_operations(x: Machine) -> Iterator[Operation]:
    """Output projection in bf16, cross entropy (8 bytes a logit forward, 4 backward) and its gather."""
    model, c = x.model, x.gemm_constants(quantised=False)
    vocab = padded_vocab(model.vocab_size, x.keys.tp) / x.keys.tp
    hidden = np.full(len(x.keys), float(model.hidden))
    factor = x.question.calibration.factor("gemm", x.question.cluster.gpu.architecture)
    yield Operation(
        term="gemm",
        forward=gemm_seconds(c, x.tok.full, vocab, hidden) * factor,
        backward=(gemm_seconds(c, x.tok.full, hidden, vocab) + gemm_seconds(c, vocab, hidden, x.tok.full)) * factor,
    )
    yield _memory(x, 8.0 * vocab * x.tok.full, 4.0 * vocab * x.tok.full, launches=4)
    norms = 10.0 * model.hidden * x.tok.sharded
    yield _memory(x, norms, 1.2 * norms, launches=1)
    yield _tp_collectives(x, ())


def _mtp_operations(x: Machine, kind: BlockKind) -> Iterator[Operation]:
    """A whole MTP module: joining projection, its layer, its own pass through the head."""
    layer = x.model.kinds[kind.layer or 0]
    yield from layer_operations(x, layer)
    join = next(w for w in block_weights(x.model, kind) if w.name == "mtp.eh_proj")
    yield _gemm(x, join, layer)
    yield from head_operations(x)


def _vision_operations(x: Machine) -> Iterator[Operation]:
    """The vision tower, as its weights times the image tokens of one sequence."""
    vision = x.model.vision
    if vision is None:
        return
    rate = x.question.cluster.gpu.peak["bf16"] * 0.4
    flops = 2.0 * vision.parameters * vision.tokens_per_image * x.keys.mbs / x.keys.tp
    yield Operation(term="gemm", forward=flops / rate, backward=(0.0 if vision.frozen else 2.0) * flops / rate)
