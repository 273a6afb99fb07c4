"""Mixture-of-experts decoders with softmax attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from meshwright.errors import QuestionError
from meshwright.model.huggingface.build import assemble, repeat, sparse_layers, stepped_layers, windows
from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Ffn, Layer, Mixer, Mlp, Model, Moe

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k")
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")


def experts(c: Fields, ffn: int, **extra: Any) -> Moe:
    """Routed experts of the usual fields, each `ffn` wide."""
    return Moe(experts=c.whole(*EXPERTS), top_k=c.whole(*TOP_K), ffn=ffn, **extra)


def with_shared(c: Fields, **extra: Any) -> Moe:
    """DeepSeek style: experts of `moe_intermediate_size`, shared ones of the same width."""
    width = c.whole("moe_intermediate_size")
    shared = width * (c.maybe(*SHARED, least=0) or 0)
    return experts(c, width, shared_ffn=shared, **extra)


def mixed(c: Fields, mixer: Mixer, sparse: list[bool], moe: Ffn, dense: Ffn | None = None) -> list[Layer]:
    """Layers that share a mixer and hold experts where `sparse` says."""
    if dense is None:
        dense = moe if all(sparse) else Mlp(ffn=c.ffn)
    return [Layer(mixer=mixer, ffn=moe if here else dense) for here in sparse]


def mixtral(c: Fields) -> Model:
    moe = experts(c, c.ffn)
    return assemble(c, [Layer(mixer=c.attention(window=window), ffn=moe) for window in windows(c)])


def qwen2_moe(c: Fields) -> Model:
    shared = c.maybe("shared_expert_intermediate_size", least=0) or 0
    moe = experts(c, c.whole("moe_intermediate_size"), shared_ffn=shared, shared_gate=shared > 0)
    return assemble(c, mixed(c, c.attention(qkv_bias=c.flag("qkv_bias")), stepped_layers(c), moe))


def qwen3_moe(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head")
    return assemble(c, mixed(c, attention, stepped_layers(c), experts(c, c.whole("moe_intermediate_size"))))


def olmoe(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="full")
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=experts(c, c.ffn))))


def phimoe(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    layers = repeat(c, Layer(mixer=attention, ffn=experts(c, c.ffn)))
    return assemble(c, layers, normalization="layer", head_bias=c.flag("lm_head_bias"))


def granitemoe(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    moe = experts(c, c.ffn, shared_ffn=c.maybe("shared_intermediate_size", least=0) or 0)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=moe)))


def glm4_moe(c: Fields) -> Model:
    norm = "head" if c.flag("use_qk_norm") else None
    attention = c.attention(qkv_bias=c.flag("attention_bias"), qk_norm=norm)
    return assemble(c, mixed(c, attention, sparse_layers(c), with_shared(c, expert_bias=True)))


def dots1(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head")
    return assemble(c, mixed(c, attention, sparse_layers(c), with_shared(c, expert_bias=True)))


def bailing(c: Fields) -> Model:
    """Ling: version 1 plain; version 2 with norms over each head and a balancing bias."""
    second = c.kind != "bailing_moe"
    attention = c.attention(
        qkv_bias=c.flag("use_qkv_bias"),
        out_bias=c.flag("use_bias"),
        qk_norm="head" if second and c.raw("use_qk_norm") is not False else None,
    )
    balanced = second and c.raw("moe_router_enable_expert_bias") is not False
    return assemble(c, mixed(c, attention, sparse_layers(c), with_shared(c, expert_bias=balanced)))


def ernie_moe(c: Fields) -> Model:
    if (c.maybe("moe_layer_interval") or 1) != 1:
        c.refuse("moe_layer_interval", "only 1 is described")
    bias = c.flag("use_bias")
    first = c.maybe("moe_layer_start_index", least=0) or 0
    last = c.raw("moe_layer_end_index")
    end = last if isinstance(last, int) and last >= 0 else c.layers - 1
    sparse = [first <= i <= end for i in range(c.layers)]
    moe = with_shared(c, expert_bias=True)
    if bias and moe.shared_ffn:  # the routed experts have none
        moe = replace(moe, other_parameters=2 * moe.shared_ffn + c.hidden)
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    layers = mixed(c, attention, sparse, moe, Mlp(ffn=c.ffn, bias=bias))
    return assemble(c, layers, head_bias=bias)


def hunyuan_moe(c: Fields) -> Model:
    """Hunyuan A13B and Large; in Large every second layer takes keys and values of the one before."""
    bias = c.flag("attention_bias")
    width = c.uniform("moe_intermediate_size") or c.ffn
    shared = c.uniform(*SHARED, least=0)
    moe = Moe(
        experts=c.uniform(*EXPERTS) or c.whole(EXPERTS[0]),
        top_k=c.uniform(*TOP_K) or c.whole(TOP_K[0]),
        ffn=width,
        shared_ffn=width * (1 if shared is None else shared),
    )
    own = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head")
    borrowed = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head", shares_kv=True)
    every = (c.maybe("cla_share_factor") or 2) if c.flag("use_cla") else 1
    return assemble(c, [Layer(mixer=borrowed if i % every else own, ffn=moe) for i in range(c.layers)])


def dbrx(c: Fields) -> Model:
    attention, ffn = c.inside("attn_config"), c.inside("ffn_config")
    moe = Moe(
        experts=ffn.maybe("moe_num_experts") or 4,
        top_k=ffn.maybe("moe_top_k") or 1,
        ffn=ffn.maybe("ffn_hidden_size") or 3584,
    )
    mixer = c.attention(kv_heads=attention.maybe("kv_n_heads") or 1)
    return assemble(c, repeat(c, Layer(mixer=mixer, ffn=moe)), normalization="layer-no-bias")


def gpt_oss(c: Fields) -> Model:
    """Biases in router and experts, a clamped activation, a sink a head, a window in every other layer."""
    bias = c.flag("attention_bias")
    moe = experts(c, c.ffn, bias=True, router_bias=True, clamped=True)
    layers = [
        Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias, sinks=True, window=window), ffn=moe)
        for window in windows(c, period=2)
    ]
    return assemble(c, layers)


def llama4(c: Fields) -> Model:
    """Experts in every `interleave_moe_layer_step`-th layer; chunked attention counts as full."""
    bias, step = c.flag("attention_bias"), c.maybe("interleave_moe_layer_step") or 1
    named = c.raw("moe_layers")
    sparse = [i in named if isinstance(named, list) else (i + 1) % step == 0 for i in range(c.layers)]
    width = c.ffn
    moe = experts(c, width, shared_ffn=width)
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    return assemble(c, mixed(c, attention, sparse, moe, Mlp(ffn=c.whole("intermediate_size_mlp"))))


def minimax_m2(c: Fields) -> Model:
    attention = c.attention(qk_norm="full" if c.raw("use_qk_norm") is not False else None)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=experts(c, c.ffn, expert_bias=True))))


def minimax_m3(c: Fields) -> Model:
    """Some layers hold a block-sparse attention indexer (its parameters are counted, its FLOPs are not)."""
    inner = c.inside("sparse_attention_config")
    types, marks = c.listing("layer_types", length=c.layers), inner.raw("sparse_attention_freq")
    if types is not None:
        indexed = [kind == "minimax_m3_sparse" for kind in types]
    elif isinstance(marks, list) and len(marks) >= c.layers:
        indexed = [bool(mark) for mark in marks[: c.layers]]
    else:
        indexed = [False] * c.layers
    width = inner.maybe("sparse_index_dim") or c.whole("index_head_dim")
    heads = inner.maybe("sparse_num_index_heads") or c.whole("index_n_heads")
    indexer = c.hidden * width * (heads + 1) + 2 * width
    moe = experts(
        c,
        c.maybe("moe_intermediate_size") or c.ffn,
        shared_ffn=c.maybe("shared_intermediate_size", least=0) or 0,
        expert_bias=True,
    )
    dense = Mlp(ffn=c.whole("dense_intermediate_size"))
    attention = c.attention(qk_norm="head")
    layers = [
        Layer(mixer=attention, ffn=moe if here else dense, other_parameters=indexer if has_index else 0)
        for here, has_index in zip(sparse_layers(c), indexed, strict=True)
    ]
    return assemble(c, layers)


def mimo_v2_flash(c: Fields) -> Model:
    """Window layers have their own number of key-value heads and sinks."""
    count = c.layers
    marks = c.listing("hybrid_layer_pattern", length=count)
    if marks is not None:
        sliding = [bool(mark) for mark in marks]
    else:
        types = c.listing("layer_types", length=count)
        sliding = (
            [kind == "sliding_attention" for kind in types]
            if types
            else [i % 6 != 5 and i > 0 for i in range(count)]
        )
    usual = {"v_head_dim": c.maybe("v_head_dim"), "qkv_bias": c.flag("attention_bias")}
    full = c.attention(**usual)
    local = c.attention(
        kv_heads=c.maybe("swa_num_key_value_heads") or 2 * c.kv_heads,
        window=c.window(),
        sinks=c.raw("add_swa_attention_sink_bias") is not False,
        **usual,
    )
    sparse = sparse_layers(c)
    if c.raw("mlp_layer_types") is None and c.raw("moe_layer_freq") is None:
        sparse[0] = False
    moe, dense = with_shared(c, expert_bias=True), Mlp(ffn=c.ffn)
    layers = [
        Layer(mixer=local if slides else full, ffn=moe if here else dense)
        for slides, here in zip(sliding, sparse, strict=True)
    ]
    return assemble(c, layers)


def step3p5(c: Fields) -> Model:
    """Step 3.5 and 3.7: more heads in window layers, a gate a head; MTP layers are dense."""
    other = c.inside("attention_other_setting")
    heads = c.maybe("num_sliding_attention_heads") or other.maybe("num_attention_heads") or c.heads
    c.refuse("mlp_bias", "biases in the feed-forward of these models are not described")
    bias = c.flag("attention_bias")
    full = c.attention(qk_norm="head", head_gate=True, qkv_bias=bias, out_bias=bias)
    types = c.listing("layer_types", length=c.layers)
    sizes = windows(c) if types is not None else [None] * c.layers
    local = replace(full, heads=heads, window=c.window())
    sparse, named = sparse_layers(c), _named_layers(c)
    if named is not None:
        sparse = [i in named for i in range(c.layers)]
    elif c.raw("mlp_layer_types") is None and "first_k_dense_replace" not in c.given:
        sparse = [i >= 3 for i in range(c.layers)]
    moe = experts(
        c,
        c.whole("moe_intermediate_size"),
        shared_ffn=c.maybe("share_expert_dim", "share_expert_dims", least=0) or 0,
        expert_bias=True,
    )
    dense = Mlp(ffn=c.ffn)
    layers = [
        Layer(mixer=local if size else full, ffn=moe if here else dense)
        for size, here in zip(sizes, sparse, strict=True)
    ]
    return assemble(c, layers, mtp=Layer(mixer=full, ffn=dense))


def step3(c: Fields) -> Model:
    """Step 3: multi-matrix factorisation attention (low-rank query, one key-value head)."""
    sparse_at = _named_layers(c)
    if sparse_at is None:
        c.missing.append("moe_layers_enum")
        sparse_at = set()
    attention = c.attention(q_rank=c.whole("share_q_dim"))
    moe = experts(c, c.whole("moe_intermediate_size"), shared_ffn=c.maybe("share_expert_dim", least=0) or 0)
    return assemble(c, mixed(c, attention, [i in sparse_at for i in range(c.layers)], moe))


def _named_layers(c: Fields) -> set[int] | None:
    """Layers with experts as a list of numbers, or as one string of them."""
    named = c.raw("moe_layers_enum")
    if named is None:
        return None
    words = named.split(",") if isinstance(named, str) else named
    try:
        return {int(word) for word in words if str(word).strip()}
    except (TypeError, ValueError):
        raise QuestionError(
            f"{c.where('moe_layers_enum')} is {str(named)[:40]!r}; it must be a list of layer numbers"
        ) from None


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "bailing_moe": bailing,
    "bailing_moe_v2": bailing,
    "dbrx": dbrx,
    "dots1": dots1,
    "ernie4_5_moe": ernie_moe,
    "glm4_moe": glm4_moe,
    "glm4v_moe_text": glm4_moe,
    "gpt_oss": gpt_oss,
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    "hunyuan": hunyuan_moe,
    "hunyuan_v1_moe": hunyuan_moe,
    "llama4_text": llama4,
    "mimo_v2_flash": mimo_v2_flash,
    "minimax_m2": minimax_m2,
    "minimax_m3": minimax_m3,
    "minimax_m3_vl_text": minimax_m3,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "phimoe": phimoe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "step3_text": step3,
    "step3p5": step3p5,
}
