"""Gemma 1 to 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshwright.model.huggingface.build import assemble, repeat, windows
from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Ffn, Layer, Mlp, Model, Moe


def gemma(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    return assemble(c, repeat(c, Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=Mlp(ffn=c.ffn))))


def gemma2(c: Fields) -> Model:
    """Norms before and after each block; a window in every other layer."""
    bias, mlp = c.flag("attention_bias"), Mlp(ffn=c.ffn)
    layers = [
        Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias, window=size), ffn=mlp, norms=4)
        for size in windows(c, period=2)
    ]
    return assemble(c, layers)


def gemma3(c: Fields) -> Model:
    """Five window layers, then a full one; norms over each head."""
    bias, mlp = c.flag("attention_bias"), Mlp(ffn=c.ffn)
    period = c.maybe("sliding_window_pattern", "_sliding_window_pattern") or 6
    layers = [
        Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head", window=size), ffn=mlp, norms=4)
        for size in windows(c, period=period)
    ]
    return assemble(c, layers)


def gemma4(c: Fields) -> Model:
    """Wider heads and values that are the keys in full layers; E2B and E4B add per-layer embeddings."""
    count, ple = c.layers, c.maybe("hidden_size_per_layer_input", least=0) or 0
    sizes = windows(c, period=6)
    if c.listing("layer_types", length=count) is None:
        sizes[-1] = None
    borrowed = c.maybe("num_kv_shared_layers", least=0) or 0
    layers = [_gemma4_layer(c, size, ple, shares=i >= count - borrowed > 0) for i, size in enumerate(sizes)]
    rows = c.maybe("vocab_size_per_layer_input") or 0
    extra = (rows + c.hidden) * count * ple + ple
    return assemble(c, layers, other_parameters=extra if ple else 0)


def _gemma4_layer(c: Fields, window: int | None, ple: int, *, shares: bool) -> Layer:
    bias, same = c.flag("attention_bias"), c.flag("attention_k_eq_v")
    if window is None:
        kv_heads = c.maybe("num_global_key_value_heads") if same else None
        width = c.maybe("global_head_dim") or 512
        mixer = c.attention(
            head_dim=width, kv_heads=kv_heads or c.kv_heads, k_is_v=same,
            qkv_bias=bias, out_bias=bias, qk_norm="head", shares_kv=shares,
        )  # fmt: skip
    else:
        mixer = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head", window=window, shares_kv=shares)
    ffn: Ffn = Mlp(ffn=c.ffn * (2 if shares and c.flag("use_double_wide_mlp") else 1))
    norms, scales = 4, 0
    if c.flag("enable_moe_block"):
        routed = c.whole("num_experts")
        ffn = Moe(
            experts=routed,
            top_k=c.whole("top_k_experts"),
            ffn=c.whole("moe_intermediate_size"),
            parallel_ffn=c.ffn,
        )
        norms, scales = 8, routed  # three more norms, the router's scale, and one scale an expert
    other = 2 * c.hidden * ple + c.hidden if ple else 0
    return Layer(mixer=mixer, ffn=ffn, norms=norms, scales=scales, other_parameters=other)


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma4_text": gemma4,
}
