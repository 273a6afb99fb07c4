"""The GPT line: layer norms with bias, two-matrix feed-forwards, learned or ALiBi positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshwright.model.huggingface.build import assemble, repeat
from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Attention, Layer, Mlp, Model


def gpt2(c: Fields) -> Model:
    """GPT-2 and GPT-BigCode (one key-value head when `multi_query`)."""
    kv_heads = 1 if c.kind == "gpt_bigcode" and c.flag("multi_query") else c.heads
    attention = Attention(heads=c.heads, kv_heads=kv_heads, head_dim=c.head_dim, qkv_bias=True, out_bias=True)
    mlp = Mlp(ffn=c.maybe("n_inner", "intermediate_size") or 4 * c.hidden, gated=False, bias=True)
    positions = c.whole("n_positions", "max_position_embeddings")
    return assemble(
        c, repeat(c, Layer(mixer=attention, ffn=mlp)), normalization="layer", learned_positions=positions
    )


def gpt_neox(c: Fields) -> Model:
    """GPT-NeoX, Pythia: rotary positions, both blocks side by side but each with its norm."""
    bias = c.flag("attention_bias")
    mlp = Mlp(ffn=c.ffn, gated=False, bias=True)
    layer = Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=mlp)
    return assemble(c, repeat(c, layer), normalization="layer")


def opt(c: Fields) -> Model:
    """OPT: two more position rows than positions."""
    narrow = c.maybe("word_embed_proj_dim")
    if narrow is not None and narrow != c.hidden:
        c.refuse("word_embed_proj_dim", "an embedding narrower than the model is not described")
    c.refuse("_remove_final_layer_norm", "a decoder without its final norm is not described")
    bias = c.flag("enable_bias")
    layer = Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=Mlp(ffn=c.ffn, gated=False, bias=bias))
    positions = c.whole("max_position_embeddings") + 2
    return assemble(c, repeat(c, layer), normalization="layer", learned_positions=positions)


def bloom(c: Fields) -> Model:
    """BLOOM: ALiBi, a norm after the embedding."""
    mlp = Mlp(ffn=4 * c.hidden, gated=False, bias=True)
    layer = Layer(mixer=c.attention(qkv_bias=True, out_bias=True), ffn=mlp)
    return assemble(c, repeat(c, layer), normalization="layer", embedding_norm=True)


def mpt(c: Fields) -> Model:
    """MPT: ALiBi, no biases at all."""
    inner = c.inside("attn_config")
    attention = Attention(
        heads=c.heads, kv_heads=inner.maybe("kv_n_heads") or c.heads, head_dim=c.hidden // c.heads
    )
    mlp = Mlp(ffn=(c.maybe("expansion_ratio") or 4) * c.hidden, gated=False)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=mlp)), normalization="layer-no-bias")


def falcon(c: Fields) -> Model:
    """Falcon: 7B (one key-value head, one norm), 40B and 180B (groups, two norms), 1B (neither)."""
    bias, grouped = c.flag("bias"), c.flag("new_decoder_architecture")
    if grouped:
        kv_heads, norms = c.kv_heads, c.maybe("num_ln_in_parallel_attn") or 2
    else:
        kv_heads = 1 if c.flag("multi_query") else c.heads
        norms = 1 if c.flag("parallel_attn") else 2
    attention = c.attention(kv_heads=kv_heads, qkv_bias=bias, out_bias=bias)
    mlp = Mlp(ffn=c.maybe("ffn_hidden_size") or 4 * c.hidden, gated=False, bias=bias)
    layer = Layer(mixer=attention, ffn=mlp, norms=norms)
    return assemble(c, repeat(c, layer), normalization="layer")


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "bloom": bloom,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt2,
    "gpt_neox": gpt_neox,
    "mpt": mpt,
    "opt": opt,
}
