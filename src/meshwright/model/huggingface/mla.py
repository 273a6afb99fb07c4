"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM 4.7 Flash and 5; and DeepSeek V4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshwright.errors import QuestionError
from meshwright.model.huggingface.build import assemble, sparse_layers
from meshwright.model.huggingface.fields import Fields
from meshwright.model.huggingface.moe import mixed, with_shared
from meshwright.model.spec import Attention, Compressor, Indexer, Layer, Mla, Mlp, Model


def latent(c: Fields, indexer: Indexer | None = None) -> Mla:
    """The attention of one layer; `attention_bias` adds biases to the down and output projections."""
    c.refuse("mlp_bias", "biases in the feed-forward of these models are not described")
    q_lora, kv_lora = c.maybe("q_lora_rank"), c.whole("kv_lora_rank")
    nope, rope = c.whole("qk_nope_head_dim", least=0), c.whole("qk_rope_head_dim", least=0)
    biases = (q_lora or 0) + kv_lora + rope + c.hidden if c.flag("attention_bias") else 0
    return Mla(
        heads=c.heads,
        q_lora=q_lora,
        kv_lora=kv_lora,
        qk_nope=nope,
        qk_rope=rope,
        v_head=c.whole("v_head_dim"),
        indexer=indexer,
        other_parameters=biases,
    )


def deepseek(c: Fields) -> Model:
    """DeepSeek V2 (no balancing bias), V3, R1, Moonlight, Kimi K2."""
    balanced = c.kind != "deepseek_v2"
    return assemble(c, mixed(c, latent(c), sparse_layers(c), with_shared(c, expert_bias=balanced)))


def glm_lite(c: Fields) -> Model:
    """GLM 4.7 Flash: the first layer dense unless a list says otherwise."""
    sparse = sparse_layers(c)
    if c.raw("mlp_layer_types") is None and c.raw("first_k_dense_replace") is None:
        sparse[0] = False
    return assemble(c, mixed(c, latent(c), sparse, with_shared(c, expert_bias=True)))


def sparse_mla(c: Fields) -> Model:
    """DeepSeek V3.2 and GLM 5: a top-k indexer in every layer, or in those that do not share one."""
    indexer = Indexer(
        heads=c.whole("index_n_heads"), head_dim=c.whole("index_head_dim"), top_k=c.whole("index_topk")
    )
    moe, dense = with_shared(c, expert_bias=True), Mlp(ffn=c.ffn)
    own, shared = latent(c, indexer), latent(c)
    layers = [
        Layer(mixer=own if indexed else shared, ffn=moe if here else dense)
        for indexed, here in zip(_indexed(c), sparse_layers(c), strict=True)
    ]
    return assemble(c, layers)


def _indexed(c: Fields) -> list[bool]:
    """Which layers have an indexer of their own."""
    count = c.layers
    types = c.listing("indexer_types", length=count)
    if types is not None:
        return [kind != "shared" for kind in types]
    pattern = c.raw("index_topk_pattern")
    if isinstance(pattern, str) and len(pattern) >= count:
        return [letter != "S" for letter in pattern[:count]]
    every, offset = c.maybe("index_topk_freq") or 1, c.maybe("index_skip_topk_offset", least=0)
    start = 2 if offset is None else offset
    return [max(i - start + 1, 0) % every == 0 for i in range(count)]


COMPRESSED = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def deepseek_v4(c: Fields) -> Model:
    """DeepSeek V4: shared key-value head, pooled keys, grouped low-rank output, hyper-connections."""
    c.refuse("mlp_bias", "biases in the feed-forward of these models are not described")
    hidden, head_dim, streams = c.hidden, c.head_dim, c.whole("hc_mult")
    mixing = streams * (streams + 2)
    connections = 2 * (mixing * streams * hidden + mixing + 3)
    hashed = _hashed(c)
    layers = [
        Layer(
            mixer=_pooled(c, ratio, head_dim),
            ffn=with_shared(c, expert_bias=not by_hash),
            other_parameters=connections,
        )
        for ratio, by_hash in zip(_ratios(c), hashed, strict=True)
    ]
    plain = Layer(mixer=_pooled(c, 0, head_dim), ffn=with_shared(c, expert_bias=True))
    head = streams * streams * hidden + streams + 1
    return assemble(c, layers, mtp=plain, other_parameters=head)


def _pooled(c: Fields, ratio: int, head_dim: int) -> Attention:
    compressor = None
    if ratio == COMPRESSED["compressed_sparse_attention"]:
        indexer = Indexer(
            heads=c.whole("index_n_heads"), head_dim=c.whole("index_head_dim"), top_k=c.whole("index_topk")
        )
        compressor = Compressor(ratio=ratio, width=2 * head_dim, indexer=indexer)
    elif ratio:
        compressor = Compressor(ratio=ratio, width=head_dim)
    return Attention(
        heads=c.heads,
        kv_heads=1,
        head_dim=head_dim,
        k_is_v=True,
        q_rank=c.whole("q_lora_rank"),
        sinks=True,
        window=c.window(),
        o_groups=c.whole("o_groups"),
        o_rank=c.whole("o_lora_rank"),
        compressor=compressor,
        other_parameters=head_dim,
    )


def _ratios(c: Fields) -> list[int]:
    """Keys pooled into one, layer by layer: 0, 4 (with indexer) or 128."""
    count = c.layers
    given = c.listing("compress_ratios", length=count)
    types = c.listing("layer_types", length=count)
    if given is not None:
        ratios = list(given)
    elif types is not None:
        ratios = [COMPRESSED.get(str(kind), -1) for kind in types]
    else:
        ratios = [128 if i < 2 or i % 2 == 0 else 4 for i in range(count)]
    if any(ratio not in COMPRESSED.values() for ratio in ratios):
        raise QuestionError(f"{c.where('compress_ratios')}: known are 0, 4 and 128")
    return ratios


def _hashed(c: Fields) -> list[bool]:
    """Layers that route by a fixed hash of the token."""
    kinds = c.listing("mlp_layer_types", length=c.layers)
    if kinds is not None:
        return [kind == "hash_moe" for kind in kinds]
    first = c.maybe("num_hash_layers", least=0)
    return [i < (3 if first is None else first) for i in range(c.layers)]


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "deepseek_v32": sparse_mla,
    "deepseek_v4": deepseek_v4,
    "glm4_moe_lite": glm_lite,
    "glm_moe_dsa": sparse_mla,
    "kimi_k2": deepseek,
}
