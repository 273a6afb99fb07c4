"""The operations of one block and what each costs: seconds of its forward and of its backward pass.

An operation carries the term it belongs to and the recompute modules that run it a second time. All
arrays are [Q], one entry a layer key. Symbols: tok = mbs*seq/cp; ts = tok/tp with sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshwright.cost.experts import moe_operations, routed_tokens
from meshwright.cost.machine import Machine, Operation
from meshwright.cost.mixers import mixer_operations
from meshwright.cost.parameters import block_weights
from meshwright.layout.stages import BlockKind
from meshwright.layout.table import Floats
from meshwright.model.spec import Layer, Mlp, Moe
from meshwright.model.weights import Weight, padded_vocab


def operations(x: Machine, kind: BlockKind) -> Iterator[Operation]:
    """Every operation of one block of a kind; of an MTP module those beside its layer and its head."""
    match kind.role:
        case "layer":
            yield from layer_operations(x, x.model.kinds[kind.layer or 0])
        case "mtp":
            yield from _joining_operations(x, kind)
        case "head":
            yield from head_operations(x)
        case "vision":
            yield from _vision_operations(x)
        case "embedding":
            moved = 3 * 2.0 * x.model.hidden * x.tok.sharded
            yield x.memory(moved, 2 * moved, launches=2)


def layer_operations(x: Machine, layer: Layer) -> Iterator[Operation]:
    """Operations of one decoder layer."""
    kind = BlockKind(name="", role="layer", layer=x.model.kinds.index(layer))
    regions = {"mixer": np.zeros((2, len(x.keys))), "ffn": np.zeros((2, len(x.keys)))}
    for weight in block_weights(x.model, kind):
        if weight.gemm:
            product, quantised = linear_operations(x, weight, layer)
            if weight.grid == "dense":
                regions["ffn" if weight.part in ("mlp", "moe") else "mixer"] += (
                    product.forward,
                    product.backward,
                )
            yield product
            if quantised is not None:
                yield quantised
            if x.frozen and weight.part == "attn" and weight.split:
                yield _adapter(x, weight)
    h = x.model.hidden
    norms = layer.norms * h * x.tok.sharded
    yield x.memory(10.0 * norms, 12.0 * norms, launches=2.0 * layer.norms, modules=("layernorm",))
    if layer.mixer is not None:
        yield from mixer_operations(x, layer)
        yield tensor_parallel(x, regions["mixer"], ())
    if isinstance(layer.ffn, Mlp):
        width = layer.ffn.ffn * x.tok.full / x.keys.tp
        passes = 6.0 if layer.ffn.gated else 4.0
        yield x.memory(passes * width, (passes + 4.0) * width, launches=1, modules=("mlp",))
        yield tensor_parallel(x, regions["ffn"], ("mlp",))
    elif isinstance(layer.ffn, Moe):
        yield from moe_operations(x, layer.ffn)
        if layer.ffn.shared_ffn or layer.ffn.parallel_ffn:
            yield tensor_parallel(x, regions["ffn"], ("moe", "shared_experts"))


def _modules(weight: Weight, layer: Layer) -> tuple[str, ...]:
    if isinstance(layer.ffn, Moe) and weight.part == "moe":
        return ("moe", "shared_experts") if weight.name.startswith("shared") else ("moe",)
    if weight.part == "mlp":
        return ("mlp",)
    return ("mla_up_proj",) if "up_proj" in weight.name else ()


def linear_operations(x: Machine, weight: Weight, layer: Layer) -> tuple[Operation, Operation | None]:
    """Forward (m, n, k), input gradient (m, k, n), weight gradient (n, k, m); and the quantisation of
    the input (forward) and of the output's gradient (backward), None in bf16.
    """
    n, k = (np.full(len(x.keys), size, dtype=float) for size in weight.shape)
    groups: Floats | float = 1.0
    factor: Floats | float = 1.0
    apart: Floats | float = 0.0
    if weight.grid == "expert":
        degree = x.keys.etp
        groups = weight.copies / x.keys.ep
        m = routed_tokens(x, layer.ffn) * x.keys.etp / groups if isinstance(layer.ffn, Moe) else x.tok.full
        factor, apart = grouped_factor(x, layer)
    else:
        degree = x.keys.tp
        m = x.tok.full if weight.split else x.tok.sharded
    n = n / degree if weight.split == "n" else n
    k = k / degree if weight.split == "k" else k
    quantised = x.recipe.quantised and weight.name != "router" and "indexer" not in weight.name
    modules = _modules(weight, layer)
    piece, pieces, torn = _in_pieces(x, weight, m, groups, apart)
    backward = x.gemm(piece, k, n, pieces, quantised=quantised, apart=torn)
    if not x.frozen:
        backward = backward + x.gemm(n, k, m, groups, quantised=quantised, wgrad=True, apart=apart)
    product = Operation(
        term="gemm",
        forward=x.gemm(piece, n, k, pieces, quantised=quantised, apart=torn) * factor,
        backward=backward * factor,
        modules=modules,
    )
    if not quantised:
        return product, None
    spared = _fused_quantisation(x, weight)
    cast = Operation(
        term="memory_bound",
        forward=x.quantise(m * k * groups, groups) * spared,
        backward=x.quantise(m * n * groups, groups) * spared,
        modules=modules,
    )
    return product, cast


def _in_pieces(
    x: Machine, weight: Weight, m: Floats, groups: Floats | float, apart: Floats | float
) -> tuple[Floats, Floats | float, Floats | float]:
    """Rows of one GEMM, how many, and the lost share of a last wave, where user buffers cut it up.

    Overlapped with its gather or scatter, a tensor-parallel GEMM runs as tp pieces of m/tp rows, each as
    soon as its rows are there: small pieces fill the processors badly.
    """
    if weight.grid == "expert" or not weight.split:
        return m, groups, apart
    cut = x.keys.flag(lambda e: "tp" in e.overlaps) & x.keys.sp
    if not cut.any():
        return m, groups, apart
    parts = np.where(cut, x.keys.tp, 1).astype(float)
    lost = x.kernels.table["grouped_gemm"]["apart"]
    return m / parts, parts, np.where(cut, lost, 0.0)


def grouped_factor(x: Machine, layer: Layer) -> tuple[Floats, Floats]:
    """Seconds of the experts' grouped GEMMs against one GEMM of the same tiles, and the share of each
    expert's last partial wave that is lost: launched one by one unless fused. [Q], [Q]
    """
    form = x.kernels.table["grouped_gemm"]
    fused = x.keys.flag(lambda e: e.grouped_mlp_fusion)
    factor = np.where(fused, form["fused"] * x.factor("fused"), form["penalty"] * x.factor("grouped"))
    if isinstance(layer.ffn, Moe) and layer.ffn.bias:
        factor = factor * form["bias"] * x.factor("grouped", "bias") / x.factor("grouped")
    return np.asarray(factor), np.where(fused, 0.0, form["apart"])


def _fused_quantisation(x: Machine, weight: Weight) -> Floats:
    """The fused expert MLP quantises its inner activation in the kernel that makes it. [Q]"""
    fused = x.keys.flag(lambda e: e.grouped_mlp_fusion) & (weight.grid == "expert")
    return np.where(fused, 0.5, 1.0)


def _adapter(x: Machine, weight: Weight) -> Operation:
    """LoRA beside a frozen projection of attention: two thin bf16 products and an addition, by memory."""
    n, k = weight.shape
    wide = n / x.keys.tp if weight.split == "n" else n
    deep = k / x.keys.tp if weight.split == "k" else k
    m = x.tok.full if weight.split else x.tok.sharded
    return x.memory((2.0 * deep + 6.0 * wide) * m, (4.0 * wide + 8.0 * deep) * m, launches=6)


def tensor_parallel(x: Machine, products: Floats, modules: tuple[str, ...]) -> Operation:
    """Around one TP region: all-gather and reduce-scatter with SP, one all-reduce without; same backward.

    Inputs of quantised layers are gathered in their low precision; what is scattered is bf16.
    products  [2, Q] seconds of the region's GEMMs forward and backward, beside which user buffers run
    """
    form = x.network.table["overlap"]["tp"]
    message = 2.0 * x.model.hidden * x.tok.full
    if not (x.keys.tp > 1).any():
        return Operation(
            term="tp", forward=np.zeros(len(x.keys)), backward=np.zeros(len(x.keys)), modules=modules
        )
    thin = x.kernels.table["element_bytes"][x.recipe.gemm] / 2.0 if x.recipe.quantised else 1.0
    one = x.network.gather(x.tp, thin * message) + x.network.gather(x.tp, message, "reduce_scatter")
    if not x.keys.sp[x.keys.tp > 1].all():
        one = np.where(x.keys.sp, one, x.network.all_reduce(x.tp, message))
    buffers = x.keys.flag(lambda e: "tp" in e.overlaps) & x.keys.sp
    slow = x.factor("tp", "plain")
    ways = []
    for product, exposed in (
        (products[0], np.where(x.keys.sp, form["plain_forward"] * slow, form["no_sp_forward"])),
        (products[1], np.where(x.keys.sp, form["plain_backward"] * slow, form["no_sp_backward"])),
    ):
        hidden = np.maximum(form["floor"] * x.factor("tp", "floor") * one, one - form["hidden"] * product)
        ways.append(np.where(x.keys.tp > 1, np.where(buffers, hidden, exposed * one), 0.0))
    return Operation(term="tp", forward=ways[0], backward=ways[1], modules=modules)


def head_operations(x: Machine) -> Iterator[Operation]:
    """Output projection in bf16, cross entropy (8 bytes a logit forward, 4 backward) and its gather."""
    vocab = np.asarray(padded_vocab(x.model.vocab_size, x.keys.tp) / x.keys.tp)
    hidden = np.full(len(x.keys), float(x.model.hidden))
    backward = x.gemm(x.tok.full, hidden, vocab, 1.0, quantised=False)
    if not x.frozen:
        backward = backward + x.gemm(vocab, hidden, x.tok.full, 1.0, quantised=False, wgrad=True)
    yield Operation(
        term="gemm", forward=x.gemm(x.tok.full, vocab, hidden, 1.0, quantised=False), backward=backward
    )
    fused = x.keys.flag(lambda e: e.cross_entropy_fusion)
    logits = vocab * x.tok.full
    yield x.memory(np.where(fused, 8.0, 20.0) * logits, np.where(fused, 4.0, 10.0) * logits, launches=4)
    norms = 10.0 * x.model.hidden * x.tok.sharded
    yield x.memory(norms, 1.2 * norms, launches=1)
    yield tensor_parallel(x, np.zeros((2, len(x.keys))), ())


def _joining_operations(x: Machine, kind: BlockKind) -> Iterator[Operation]:
    """The projection that joins an MTP module's two inputs."""
    join = next(w for w in block_weights(x.model, kind) if w.name == "mtp.eh_proj")
    products = linear_operations(x, join, x.model.kinds[kind.layer or 0])
    yield from (op for op in products if op is not None)


def _vision_operations(x: Machine) -> Iterator[Operation]:
    """The vision tower, as its weights times the image tokens of one sequence."""
    vision = x.model.vision
    if vision is None:
        return
    rate = x.question.cluster.gpu.peak["bf16"] * 0.4
    flops = 2.0 * vision.parameters * vision.tokens_per_image * x.keys.mbs / x.keys.tp
    yield Operation(
        term="gemm", forward=flops / rate, backward=(0.0 if vision.frozen else 2.0) * flops / rate
    )
