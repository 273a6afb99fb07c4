"""Decoders that mix kinds of token mixers: gated delta net, Kimi delta, lightning, Mamba-2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshwright.errors import QuestionError
from meshwright.model.huggingface.build import assemble, sparse_layers, stepped_layers
from meshwright.model.huggingface.fields import Fields
from meshwright.model.huggingface.mla import latent
from meshwright.model.huggingface.moe import experts, with_shared
from meshwright.model.spec import Ffn, Layer, LinearAttention, Mamba2, Mixer, Mlp, Model, Moe

LINEAR = ("linear_attention", "mamba")


def linear_layers(c: Fields, default_period: int) -> list[bool]:
    """Which layers are linear: by `layer_types`, else all but the last of each period."""
    types = c.listing("layer_types", "layers_block_type", length=c.layers)
    if types is not None:
        return [kind in LINEAR for kind in types]
    period = c.maybe("full_attention_interval") or default_period
    return [(i + 1) % period != 0 for i in range(c.layers)]


def qwen3_next(c: Fields) -> Model:
    """Qwen3-Next and 3.5: gated delta net 3:1 with gated attention, experts with a gated shared one."""
    bias = c.flag("attention_bias")
    full = c.attention(qkv_bias=bias, out_bias=bias, qk_norm="head", output_gate=True)
    delta = LinearAttention(
        kind="gdn",
        k_heads=c.whole("linear_num_key_heads"),
        v_heads=c.whole("linear_num_value_heads"),
        k_dim=c.whole("linear_key_head_dim"),
        v_dim=c.whole("linear_value_head_dim"),
        conv=c.whole("linear_conv_kernel_dim"),
    )
    layers = [
        Layer(mixer=delta if linear else full, ffn=ffn)
        for linear, ffn in zip(linear_layers(c, 4), _qwen_ffns(c), strict=True)
    ]
    return assemble(c, layers, mtp=Layer(mixer=full, ffn=layers[-1].ffn))


def _qwen_ffns(c: Fields) -> list[Ffn]:
    if c.kind == "qwen3_5_text":
        return [Mlp(ffn=c.ffn)] * c.layers
    shared = c.maybe("shared_expert_intermediate_size", least=0) or 0
    moe = experts(c, c.whole("moe_intermediate_size"), shared_ffn=shared, shared_gate=shared > 0)
    sparse = stepped_layers(c)
    dense: Ffn = moe if all(sparse) else Mlp(ffn=c.ffn)
    return [moe if here else dense for here in sparse]


def kimi_linear(c: Fields) -> Model:
    """Kimi Linear: Kimi delta attention 3:1 with latent attention."""
    for name in ("attn_res_block_size", "routed_expert_hidden_size", "mla_use_output_gate"):
        c.refuse(name, "this variation (Kimi K3) is not described")
    inner = c.inside("linear_attn_config")
    heads = inner.maybe("num_heads") or c.whole("linear_num_heads")
    width = inner.maybe("head_dim") or c.whole("linear_head_dim")
    conv = inner.maybe("short_conv_kernel_size") or c.whole("linear_conv_kernel_dim")
    delta = LinearAttention(kind="kda", k_heads=heads, v_heads=heads, k_dim=width, v_dim=width, conv=conv)
    full_at = inner.raw("full_attn_layers")
    if isinstance(full_at, list):  # counted from 1
        linear = [i + 1 not in full_at for i in range(c.layers)]
    else:
        types = c.listing("layer_types", length=c.layers)
        linear = (
            [kind in LINEAR for kind in types] if types else [i == 0 or i % 4 != 0 for i in range(c.layers)]
        )
    sparse = sparse_layers(c)
    if c.raw("mlp_layer_types") is None and c.raw("first_k_dense_replace") is None:
        sparse[0] = False
    moe, dense, full = with_shared(c, expert_bias=True), Mlp(ffn=c.ffn), latent(c)
    layers = [
        Layer(mixer=delta if is_linear else full, ffn=moe if here else dense)
        for is_linear, here in zip(linear, sparse, strict=True)
    ]
    return assemble(c, layers)


def minimax(c: Fields) -> Model:
    """MiniMax Text-01 and M1: lightning attention with an output gate, full attention now and then."""
    lightning = LinearAttention(
        kind="lightning", k_heads=c.heads, v_heads=c.heads, k_dim=c.head_dim, v_dim=c.head_dim
    )
    marks = c.listing("attn_type_list", length=c.layers)
    types = c.listing("layer_types", length=c.layers)
    if marks is not None:
        linear = [mark == 0 for mark in marks]
    elif types is not None:
        linear = [kind in LINEAR for kind in types]
    else:
        linear = [i % 2 == 1 for i in range(c.layers)]
    moe, full = experts(c, c.ffn), c.attention()
    return assemble(c, [Layer(mixer=lightning if here else full, ffn=moe) for here in linear])


LETTERS = {
    "M": "M", "*": "*", "-": "-", "E": "E",
    "mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E",
}  # fmt: skip


def nemotron_h(c: Fields) -> Model:
    """Nemotron-H and Nemotron 3: every layer is one block: Mamba-2, attention, feed-forward or experts."""
    if c.given.get("use_conv_bias") is False or c.given.get("mamba_proj_bias"):
        raise QuestionError(
            f"{c.where('use_conv_bias')}: only a biased convolution without projection bias is described"
        )
    blocks = _blocks(c, ("hybrid_override_pattern", "layers_block_type", "layer_types"))
    if not blocks:
        c.missing.append("hybrid_override_pattern")
    parts = _nemotron_parts(c, "".join(blocks))
    layers = [Layer(mixer=parts[b][0], ffn=parts[b][1], norms=1) for b in blocks] or [
        Layer(mixer=None, ffn=None)
    ]
    mtp = None
    if c.maybe("num_nextn_predict_layers", least=0):
        named = _blocks(c, ("mtp_hybrid_override_pattern", "mtp_layers_block_type")) or ["*", "E"]
        parts |= _nemotron_parts(c, "".join(named))
        mixer = next((parts[b][0] for b in named if parts[b][0]), None)
        ffn = next((parts[b][1] for b in named if parts[b][1]), None)
        mtp = Layer(mixer=mixer, ffn=ffn, norms=len(named))
    return assemble(c, layers, mtp=mtp)


def _plain_mamba(c: Fields, conv_bias: str, proj_biases: Sequence[str]) -> None:
    if c.given.get(conv_bias) is False or any(c.given.get(name) for name in proj_biases):
        raise QuestionError(
            f"{c.where(conv_bias)}: only Mamba-2 with a bias in the convolution and none in its projections "
            "is described"
        )


def _blocks(c: Fields, names: Sequence[str]) -> list[str]:
    given = c.raw(*names)
    try:
        return [LETTERS[block] for block in given] if isinstance(given, str | list) else []
    except (KeyError, TypeError):
        raise QuestionError(
            f"{c.where(names[0])} knows the blocks M, *, - and E, not {str(given)[:60]!r}"
        ) from None


def _nemotron_parts(c: Fields, blocks: str) -> dict[str, tuple[Mixer | None, Ffn | None]]:
    parts: dict[str, tuple[Mixer | None, Ffn | None]] = {}
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    if "M" in blocks:
        mamba = Mamba2(
            heads=c.whole("mamba_num_heads"),
            head_dim=c.whole("mamba_head_dim"),
            state=c.whole("ssm_state_size"),
            groups=c.whole("n_groups", "mamba_n_groups"),
            conv=c.whole("conv_kernel", "mamba_d_conv"),
        )
        parts["M"] = (mamba, None)
    if "*" in blocks:
        parts["*"] = (c.attention(qkv_bias=bias, out_bias=bias), None)
    if "-" in blocks:
        parts["-"] = (None, Mlp(ffn=c.ffn, gated=False, bias=mlp_bias))
    if "E" in blocks:
        shared = c.maybe("moe_shared_expert_intermediate_size", least=0) or 0
        latent_width = c.maybe("moe_latent_size")
        biases = (shared + c.hidden) + (latent_width + c.hidden if latent_width else 0)  # none in the experts
        moe = experts(
            c,
            c.whole("moe_intermediate_size"),
            gated=False,
            shared_ffn=shared,
            expert_bias=True,
            latent=latent_width,
            other_parameters=biases if mlp_bias else 0,
        )
        parts["E"] = (None, moe)
    return parts


def granite_hybrid(c: Fields) -> Model:
    """Granite 4: Mamba-2 or attention, then shared feed-forward with or without routed experts."""
    if c.given.get("mamba_conv_bias") is False or c.given.get("mamba_proj_bias"):
        raise QuestionError(
            f"{c.where('mamba_conv_bias')}: only a biased convolution without projection bias is described"
        )
    heads = c.whole("mamba_n_heads")
    width = c.raw("mamba_d_head")
    mamba = Mamba2(
        heads=heads,
        head_dim=width if isinstance(width, int) else (c.maybe("mamba_expand") or 2) * c.hidden // heads,
        state=c.whole("mamba_d_state"),
        groups=c.whole("mamba_n_groups"),
        conv=c.whole("mamba_d_conv"),
    )
    bias = c.flag("attention_bias")
    full = c.attention(qkv_bias=bias, out_bias=bias)
    shared = c.whole("shared_intermediate_size")
    routed = c.maybe("num_local_experts", least=0)
    ffn: Ffn = Mlp(ffn=shared)
    if routed:
        ffn = Moe(experts=routed, top_k=c.whole("num_experts_per_tok"), ffn=c.ffn, shared_ffn=shared)
    types = c.listing("layer_types", "layers_block_type", length=c.layers)
    linear = [kind in LINEAR for kind in types] if types else [True] * c.layers
    return assemble(c, [Layer(mixer=mamba if here else full, ffn=ffn) for here in linear])


READERS: Mapping[str, Callable[[Fields], Model]] = {
    "granitemoehybrid": granite_hybrid,
    "kimi_linear": kimi_linear,
    "minimax": minimax,
    "minimax_m1": minimax,
    "minimax_text_01": minimax,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_next": qwen3_next,
}
