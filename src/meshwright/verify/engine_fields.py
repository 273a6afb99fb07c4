"""A model's architecture as fields of Megatron Core's TransformerConfig, or what it has no module for.

Source: megatron/core/transformer/transformer_config.py, release 0.16.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshwright.errors import LayoutError
from meshwright.model.spec import Attention, Layer, LinearAttention, Mamba2, Mla, Mlp, Model, Moe

RELEASE = "0.16.1"
ENGINE = f"Megatron Core {RELEASE}"


class CannotBuild(LayoutError):  # noqa: N818 - reads as the sentence it is
    """The engine has no module for a part of this model; not a fault of the layout."""

    def __init__(self, model: Model, what: str) -> None:
        super().__init__(f"{ENGINE} cannot build {model.name}: {what}")
        self.what = what


def model_fields(model: Model) -> dict[str, Any]:
    """The architecture as TransformerConfig takes it; CannotBuild where it has no field for it."""
    refuse_unknown_parts(model)
    fields: dict[str, Any] = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden,
        "normalization": "RMSNorm" if model.normalization == "rms" else "LayerNorm",
        "layernorm_epsilon": 1e-5,
        **mixer_fields(model),
        **ffn_fields(model),
        **bias_fields(model),
    }
    if model.mtp:
        fields |= {"mtp_num_layers": len(model.mtp), "mtp_loss_scaling_factor": 0.1}
    return fields


def refuse_unknown_parts(model: Model) -> None:
    """CannotBuild for parts outside the layers, and for layers of a shape that no spec has."""
    if model.normalization in ("none", "layer-no-bias"):
        raise CannotBuild(model, f"no norm of the kind {model.normalization!r}")
    for has_it, what in (
        (model.embedding_norm, "no norm after the embedding"),
        (model.head_bias, "its output projection has no bias"),
        (not model.final_norm, "its decoder always ends with a norm"),
        (bool(model.other_parameters), "parts of its own outside the layers"),
    ):
        if has_it:
            raise CannotBuild(model, what)
    for kind in model.kinds:
        refuse_layer(model, kind)
    if model.mtp and any(kind != model.pattern[-1] for kind in model.mtp):
        raise CannotBuild(
            model, "MTP modules are built like the last decoder layer, and these differ from it"
        )


def refuse_layer(model: Model, kind: Layer) -> None:
    if kind.other_parameters or kind.scales:
        raise CannotBuild(model, "layers with parts of their own")
    expected = (1,) if is_hybrid(model) else (2, 4)
    if kind.norms not in expected:
        raise CannotBuild(model, f"a layer with {kind.norms} norms")
    if kind.norms == 4 and (kind.is_moe or not isinstance(kind.mixer, Attention)):
        raise CannotBuild(model, "norms after attention and experts")


def is_hybrid(model: Model) -> bool:
    """Some layers hold only a mixer or only a feed-forward part, or mix with Mamba."""
    return model.is_hybrid


def hybrid_pattern(model: Model) -> str:
    """One letter a layer: M Mamba, * attention, - MLP, E MoE."""
    letters = {}
    for index, kind in enumerate(model.kinds):
        if kind.mixer is not None and kind.ffn is not None:
            raise CannotBuild(model, "hybrid layers hold either a mixer or a feed-forward part")
        if isinstance(kind.ffn, Moe):
            letters[index] = "E"
        elif isinstance(kind.ffn, Mlp):
            letters[index] = "-"
        else:
            letters[index] = "M" if isinstance(kind.mixer, Mamba2) else "*"
    return "".join(letters[index] for index in model.pattern)


def mixer_fields(model: Model) -> dict[str, Any]:
    """Attention of all kinds, which must agree but for the window."""
    mixers = [kind.mixer for kind in model.kinds if kind.mixer is not None]
    fields: dict[str, Any] = {}
    attention = one_of_each(model, [mixer for mixer in mixers if isinstance(mixer, Attention)], "attention")
    mla = one_of_each(model, [mixer for mixer in mixers if isinstance(mixer, Mla)], "latent attention")
    linear = one_of_each(
        model, [mixer for mixer in mixers if isinstance(mixer, LinearAttention)], "linear attention"
    )
    mamba = one_of_each(model, [mixer for mixer in mixers if isinstance(mixer, Mamba2)], "Mamba")
    if attention and mla:
        raise CannotBuild(model, "latent and plain attention in one model")
    if attention:
        fields |= attention_fields(model, attention)
    elif mla:
        fields |= mla_fields(model, mla)
    else:
        heads = mamba.heads if mamba else 1
        fields |= {"num_attention_heads": heads, "num_query_groups": heads}
    if linear:
        fields |= linear_fields(model, linear)
    if mamba:
        if mamba.conv != 4:
            raise CannotBuild(model, f"a Mamba convolution of width {mamba.conv}")
        fields |= {
            "is_hybrid_model": True,
            "mamba_num_heads": mamba.heads,
            "mamba_head_dim": mamba.head_dim,
            "mamba_state_dim": mamba.state,
            "mamba_num_groups": mamba.groups,
        }
    return fields


def one_of_each(model: Model, found: list[Any], what: str) -> Any:
    """The only value among `found` (windows apart), None where there is none."""
    plain = {replace(x, window=None) if isinstance(x, Attention) else x for x in found}
    if len(plain) > 1:
        raise CannotBuild(model, f"layers with different {what}")
    return next(iter(plain), None)


def attention_fields(model: Model, a: Attention) -> dict[str, Any]:
    for has_it, what in (
        (a.v_head_dim not in (None, a.head_dim), "value heads of another width"),
        (a.qk_norm == "full", "a norm over the whole query and key projection"),
        (a.head_gate, "a gate a head"),
        (a.shares_kv or a.k_is_v, "keys or values shared between projections"),
        (a.q_rank is not None or bool(a.o_groups), "low-rank query or output projections"),
        (a.compressor is not None or bool(a.other_parameters), "sparse attention"),
    ):
        if has_it:
            raise CannotBuild(model, what)
    fields: dict[str, Any] = {
        "num_attention_heads": a.heads,
        "num_query_groups": a.kv_heads,
        "kv_channels": a.head_dim,
        "qk_layernorm": a.qk_norm == "head",
        "attention_output_gate": a.output_gate,
        "softmax_type": "learnable" if a.sinks else "vanilla",
    }
    windows = [attention.window for attention in layer_attentions(model)]
    sizes = {window for window in windows if window}
    if len(sizes) > 1:
        raise CannotBuild(model, f"windows of different sizes ({', '.join(map(str, sorted(sizes)))})")
    if sizes:
        fields["window_size"] = [sizes.pop() - 1, 0]
        fields["window_attn_skip_freq"] = [int(bool(window)) for window in windows]
    return fields


def layer_attentions(model: Model) -> list[Attention]:
    """The attention of each decoder layer; layers with another mixer count as unwindowed."""
    empty = Attention(heads=1, kv_heads=1, head_dim=1)
    mixers = [model.kinds[kind].mixer for kind in model.pattern]
    return [mixer if isinstance(mixer, Attention) else empty for mixer in mixers]


def mla_fields(model: Model, m: Mla) -> dict[str, Any]:
    if m.indexer is not None or m.other_parameters:
        raise CannotBuild(model, "the indexer of sparse latent attention has no layer spec in this release")
    return {
        "multi_latent_attention": True,
        "num_attention_heads": m.heads,
        "num_query_groups": m.heads,
        "kv_channels": m.qk_nope,
        "q_lora_rank": m.q_lora,
        "kv_lora_rank": m.kv_lora,
        "qk_head_dim": m.qk_nope,
        "qk_pos_emb_head_dim": m.qk_rope,
        "v_head_dim": m.v_head,
        "qk_layernorm": True,
        "rope_type": "rope",
    }


def linear_fields(model: Model, a: LinearAttention) -> dict[str, Any]:
    if a.kind != "gdn" or a.other_parameters:
        raise CannotBuild(model, f"no module for {a.kind} attention")
    return {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": [
            int(isinstance(model.kinds[kind].mixer, LinearAttention)) for kind in model.pattern
        ],
        "linear_conv_kernel_dim": a.conv,
        "linear_key_head_dim": a.k_dim,
        "linear_value_head_dim": a.v_dim,
        "linear_num_key_heads": a.k_heads,
        "linear_num_value_heads": a.v_heads,
    }


def ffn_fields(model: Model) -> dict[str, Any]:
    """Dense and expert feed-forward parts; one of each at most."""
    ffns = [kind.ffn for kind in model.kinds if kind.ffn is not None]
    dense: Mlp | None = one_of_each(model, [ffn for ffn in ffns if isinstance(ffn, Mlp)], "dense blocks")
    moe: Moe | None = one_of_each(model, [ffn for ffn in ffns if isinstance(ffn, Moe)], "experts")
    gated = {ffn.gated for ffn in ffns}
    if len(gated) > 1:
        raise CannotBuild(model, "gated and plain feed-forward blocks in one model")
    width = dense.ffn if dense else moe.ffn if moe else 4 * model.hidden
    fields: dict[str, Any] = {"ffn_hidden_size": width, **activation_fields(model, gated != {False})}
    if moe:
        fields |= moe_fields(model, moe)
    return fields


def activation_fields(model: Model, gated: bool) -> dict[str, Any]:
    if any(isinstance(kind.mixer, Attention) and kind.mixer.sinks for kind in model.kinds):  # GPT-OSS
        return {
            "gated_linear_unit": True,
            "activation_func": "quick_gelu",
            "glu_linear_offset": 1.0,
            "activation_func_clamp_value": 7.0,
            "bias_activation_fusion": True,
        }
    if gated:
        return {"gated_linear_unit": True, "activation_func": "silu", "bias_activation_fusion": True}
    if is_hybrid(model):
        return {
            "gated_linear_unit": False,
            "activation_func": "squared_relu",
            "bias_activation_fusion": False,
        }
    return {
        "gated_linear_unit": False,
        "activation_func": "gelu",
        "bias_activation_fusion": has_biases(model),
    }


def moe_fields(model: Model, m: Moe) -> dict[str, Any]:
    for has_it, what in (
        (bool(m.parallel_ffn), "a dense block beside the experts"),
        (bool(m.other_parameters), "experts with parts of their own"),
        (m.router_bias != m.bias, "a router bias without biases in the experts, or the other way round"),
    ):
        if has_it:
            raise CannotBuild(model, what)
    fields: dict[str, Any] = {
        "num_moe_experts": m.experts,
        "moe_router_topk": m.top_k,
        "moe_ffn_hidden_size": m.ffn,
        "moe_grouped_gemm": True,
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        "moe_router_dtype": "fp32",
        "moe_router_pre_softmax": m.top_k == 1,
        "moe_shared_expert_gate": m.shared_gate,
    }
    if not is_hybrid(model):
        fields["moe_layer_freq"] = [int(model.kinds[kind].is_moe) for kind in model.pattern]
    if m.shared_ffn:
        fields["moe_shared_expert_intermediate_size"] = m.shared_ffn
    if m.expert_bias:
        fields |= {"moe_router_enable_expert_bias": True, "moe_router_score_function": "sigmoid"}
    if m.latent is not None:
        fields["moe_latent_size"] = m.latent
    return fields


def bias_fields(model: Model) -> dict[str, Any]:
    """One switch for the biases of all linears, another for those of q, k and v alone."""
    attentions = [kind.mixer for kind in model.kinds if isinstance(kind.mixer, Attention)]
    qkv = {a.qkv_bias for a in attentions}
    rest = {a.out_bias for a in attentions} | {kind.ffn.bias for kind in model.kinds if kind.ffn is not None}
    if len(qkv) > 1 or len(rest) > 1 or (rest == {True} and qkv == {False}):
        raise CannotBuild(model, "biases on some linear layers and not on others")
    return {"add_bias_linear": rest == {True}, "add_qkv_bias": qkv == {True} and rest != {True}}


def has_biases(model: Model) -> bool:
    return bool(bias_fields(model)["add_bias_linear"])
