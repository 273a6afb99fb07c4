"""Dense decoders with rotary positions: the Llama line and its variations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshwright.model.huggingface.build import assemble, repeat, windows
from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Attention, Layer, Mlp, Model


def llama(c: Fields) -> Model:
    """Llama, and what is built like it (Mistral without a window, Granite, SmolLM3)."""
    bias = c.flag("attention_bias", "qkv_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn, bias=c.flag("mlp_bias")))))


def mistral(c: Fields) -> Model:
    """A window in every layer, or in those that `layer_types` names."""
    mlp = Mlp(ffn=c.ffn)
    return assemble(c, [Layer(mixer=c.attention(window=window), ffn=mlp) for window in windows(c)])


def qwen2(c: Fields) -> Model:
    """Biases on query, key and value only; a window from layer `max_window_layers` on if switched on."""
    layers = [
        Layer(mixer=c.attention(qkv_bias=True, window=window), ffn=Mlp(ffn=c.ffn))
        for window in qwen_windows(c)
    ]
    return assemble(c, layers)


def qwen3(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    layers = [
        Layer(
            mixer=c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head", window=window), ffn=Mlp(ffn=c.ffn)
        )
        for window in qwen_windows(c)
    ]
    return assemble(c, layers)


def qwen_windows(c: Fields) -> list[int | None]:
    if not c.flag("use_sliding_window"):
        return [None] * c.layers
    if c.listing("layer_types", length=c.layers) is not None:
        return windows(c)
    first = c.maybe("max_window_layers", least=0) or 0
    size = c.window()
    return [size if i >= first else None for i in range(c.layers)]


def olmo(c: Fields) -> Model:
    """OLMo 1: norms without parameters."""
    bias = c.flag("attention_bias")
    layer = Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=Mlp(ffn=c.ffn))
    return assemble(c, repeat(c, layer), normalization="none")


def olmo2(c: Fields) -> Model:
    """OLMo 2 and 3: norms after each block and over whole queries and keys; OLMo 3 has windows 3:1."""
    bias = c.flag("attention_bias")
    layers = [
        Layer(
            mixer=c.attention(qkv_bias=bias, out_bias=bias, qk_norm="full", window=window), ffn=Mlp(ffn=c.ffn)
        )
        for window in windows(c, period=4)
    ]
    return assemble(c, layers)


def phi3(c: Fields) -> Model:
    return assemble(c, [Layer(mixer=c.attention(window=w), ffn=Mlp(ffn=c.ffn)) for w in windows(c)])


def glm(c: Fields) -> Model:
    """GLM-4 (two norms a layer)."""
    return assemble(c, repeat(c, Layer(mixer=_qkv_biased(c), ffn=Mlp(ffn=c.ffn))))


def glm4(c: Fields) -> Model:
    """GLM-4-0414 (norms before and after each block)."""
    return assemble(c, repeat(c, Layer(mixer=_qkv_biased(c), ffn=Mlp(ffn=c.ffn), norms=4)))


def seed_oss(c: Fields) -> Model:
    attention = c.attention(qkv_bias=c.flag("attention_bias"), out_bias=c.flag("attention_out_bias"))
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn, bias=c.flag("mlp_bias")))))


def exaone4(c: Fields) -> Model:
    """Norms after each block, over each head; windows where `sliding_window_pattern` says."""
    pattern = c.raw("sliding_window_pattern")
    if isinstance(pattern, str):  # "LLLG": local, local, local, global
        sizes = [c.window() if pattern[i % len(pattern)] == "L" else None for i in range(c.layers)]
        sizes[-1] = None
    else:
        sizes = windows(c, period=c.maybe("sliding_window_pattern") or None)
    mlp = Mlp(ffn=c.ffn)
    return assemble(c, [Layer(mixer=c.attention(qk_norm="head", window=size), ffn=mlp) for size in sizes])


def hunyuan_dense(c: Fields) -> Model:
    bias = c.flag("attention_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head")
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn))))


def internlm2(c: Fields) -> Model:
    bias = c.flag("bias")
    return assemble(c, repeat(c, Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=Mlp(ffn=c.ffn))))


def internlm3(c: Fields) -> Model:
    qkv, bias = c.flag("attention_bias", "qkv_bias"), c.flag("mlp_bias", "bias")
    attention = c.attention(qkv_bias=qkv, out_bias=bias)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn, bias=bias))))


def ernie(c: Fields) -> Model:
    bias = c.flag("use_bias")
    attention = c.attention(qkv_bias=bias, out_bias=bias)
    return assemble(c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn, bias=bias))))


def ungated(c: Fields) -> Model:
    """Arcee: Llama with a plain two-matrix feed-forward."""
    bias = c.flag("attention_bias")
    mlp = Mlp(ffn=c.ffn, gated=False, bias=c.flag("mlp_bias"))
    return assemble(c, repeat(c, Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=mlp)))


def nemotron(c: Fields) -> Model:
    """Nemotron 4, Minitron: squared ReLU, norms with bias."""
    bias = c.flag("attention_bias")
    mlp = Mlp(ffn=c.ffn, gated=False, bias=c.flag("mlp_bias"))
    layer = Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias), ffn=mlp)
    return assemble(c, repeat(c, layer), normalization="layer")


def starcoder2(c: Fields) -> Model:
    bias = c.flag("use_bias")
    mlp = Mlp(ffn=c.ffn, gated=False, bias=bias)
    layers = [
        Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias, window=window), ffn=mlp)
        for window in windows(c)
    ]
    return assemble(c, layers, normalization="layer")


def stablelm(c: Fields) -> Model:
    c.refuse("qk_layernorm", "a norm of its own for each head is not described")
    attention = c.attention(qkv_bias=c.flag("use_qkv_bias"))
    norms = 1 if c.flag("use_parallel_residual") else 2
    return assemble(
        c, repeat(c, Layer(mixer=attention, ffn=Mlp(ffn=c.ffn), norms=norms)), normalization="layer"
    )


def cohere(c: Fields) -> Model:
    """Command R: attention and feed-forward side by side behind one norm without bias."""
    bias = c.flag("attention_bias")
    qk_norm = "full" if c.flag("use_qk_norm") else None
    mlp = Mlp(ffn=c.ffn)
    sizes = windows(c, period=4) if c.kind == "cohere2" else [None] * c.layers
    layers = [
        Layer(mixer=c.attention(qkv_bias=bias, out_bias=bias, qk_norm=qk_norm, window=size), ffn=mlp, norms=1)
        for size in sizes
    ]
    return assemble(c, layers, normalization="layer-no-bias")


def phi(c: Fields) -> Model:
    """Phi 1 and 2: side by side behind one norm, biases everywhere, also in the output projection."""
    attention = c.attention(qkv_bias=True, out_bias=True, qk_norm="head" if c.flag("qk_layernorm") else None)
    layer = Layer(mixer=attention, ffn=Mlp(ffn=c.ffn, gated=False, bias=True), norms=1)
    return assemble(c, repeat(c, layer), normalization="layer", head_bias=True)


def _qkv_biased(c: Fields) -> Attention:
    return c.attention(qkv_bias=c.kind == "glm4v_text" or c.flag("attention_bias"))


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "arcee": ungated,
    "cohere": cohere,
    "cohere2": cohere,
    "ernie4_5": ernie,
    "exaone": llama,
    "exaone4": exaone4,
    "glm": glm,
    "glm4": glm4,
    "glm4v_text": glm4,
    "granite": llama,
    "hunyuan_v1_dense": hunyuan_dense,
    "internlm2": internlm2,
    "internlm3": internlm3,
    "llama": llama,
    "mimo": qwen2,
    "ministral": mistral,
    "ministral3": mistral,
    "mistral": mistral,
    "nemotron": nemotron,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo2,
    "phi": phi,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen2_vl_text": qwen2,
    "qwen3": qwen3,
    "qwen3_vl_text": qwen3,
    "seed_oss": seed_oss,
    "smollm3": llama,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
}
