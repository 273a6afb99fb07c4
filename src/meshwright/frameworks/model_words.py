"""What changes no size of a model, in Megatron's words: rotary scaling, router, windows, activation.

Where Megatron has no word, the option carries the name it has in the model's config.json (or NeMo), so
that what was written can say that it was left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshwright.frameworks.reading import Plain
from meshwright.model.spec import Attention, LinearAttention, Mamba2, Mla, Model, Moe, RopeScaling, Router

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "old_context_len": 8192}
"""What Megatron-Core takes beside the factor (rotary_pos_embedding.py, _apply_scaling)."""
YARN = {"original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}
"""Defaults of MLATransformerConfig, and of ordinary attention (argument_utils.py)."""
CLAMP, OFFSET = 7.0, 1.0
"""Of GPT-OSS's activation (transformers, GptOssConfig.swiglu_limit; the offset is in its modeling file)."""
WORDS = frozenset(
    {"rotary_percent", "use_rope_scaling", "rope_scaling_factor", "rotary_seq_len_interpolation_factor"}
    | {"rotary_scaling_factor", "mscale", "mscale_all_dim", "yarn_correction_range_round_to_int"}
    | {*LLAMA3, *YARN, *(f"yarn_{name}" for name in YARN), "rope_scaling_type", "rope_local_base_freq"}
    | {"moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor", "norm_topk_prob"}
    | {"moe_shared_expert_gate", "window_size", "window_attn_skip_freq", "softmax_type", "softmax_scale"}
    | {"quick_geglu", "glu_linear_offset", "activation_func_clamp_value", "squared_relu", "activation_func"}
    | {"layernorm_zero_centered_gamma", "attn_logit_softcapping", "final_logit_softcapping"}
    | {"scale_embeddings", "post_block_norms", "bias_gelu_fusion", "model_parts"}
)


def settings_of(model: Model) -> dict[str, Plain]:
    """Options for what a model states; what it leaves open is left out."""
    latent = any(isinstance(kind.mixer, Mla) for kind in model.kinds)
    found: dict[str, Plain] = _positions(model, latent) | _router(model.router) | _window(model)
    found |= _activation(model)
    attention = [kind.mixer for kind in model.kinds if isinstance(kind.mixer, Attention)]
    if any(mixer.sinks for mixer in attention):
        found["softmax_type"] = "learnable"
    if any(isinstance(kind.ffn, Moe) and kind.ffn.shared_gate for kind in model.kinds):
        found["moe_shared_expert_gate"] = True
    if model.zero_centered_norm:
        found["layernorm_zero_centered_gamma"] = True
    if model.query_scalar and attention and model.query_scalar != attention[0].head_dim:
        found["softmax_scale"] = 1 / math.sqrt(model.query_scalar)
    if any(kind.norms == 4 for kind in model.kinds):
        found["post_block_norms"] = True
    if parts := _other_parts(model):
        found["model_parts"] = ", ".join(parts)
    stated: dict[str, Plain] = {
        "attn_logit_softcapping": model.attention_softcap,
        "final_logit_softcapping": model.logit_softcap,
        "scale_embeddings": model.embedding_scale,
    }
    return found | {name: value for name, value in stated.items() if value}


def _other_parts(model: Model) -> tuple[str, ...]:
    """Parts that are not written: Megatron has none, or has them in its hybrid model or as an experiment."""
    mixers = [kind.mixer for kind in model.kinds]
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    shapes = {(mixer.heads, mixer.kv_heads, mixer.head_dim) for mixer in attention}
    experts = [kind.ffn for kind in model.kinds if isinstance(kind.ffn, Moe)]
    there = {
        "Mamba-2 layers": any(isinstance(mixer, Mamba2) for mixer in mixers),
        "linear attention": any(isinstance(mixer, LinearAttention) for mixer in mixers),
        "sparse attention's indexer": any(isinstance(mixer, Mla) and mixer.indexer for mixer in mixers),
        "compressed keys": any(mixer.compressor or mixer.o_rank for mixer in attention),
        "low-rank queries": any(mixer.q_rank for mixer in attention),
        "keys and values of the layer before": any(mixer.shares_kv for mixer in attention),
        "values that are the keys": any(mixer.k_is_v for mixer in attention),
        "values of another width": any(mixer.v_head_dim for mixer in attention),
        "a gate a head": any(mixer.head_gate for mixer in attention),
        "heads that differ from layer to layer": len(shapes) > 1,
        "experts in a latent space": any(ffn.latent for ffn in experts),
        "a dense block beside the experts": any(ffn.parallel_ffn for ffn in experts),
    }
    return tuple(name for name, found in there.items() if found)


def _positions(model: Model, latent: bool) -> dict[str, Plain]:
    found: dict[str, Plain] = {}
    if model.rope_share is not None:
        found["rotary_percent"] = model.rope_share
    scaling = model.rope_scaling
    if model.rope_local_base is not None:
        found["rope_local_base_freq"] = model.rope_local_base
        if scaling is not None:  # only layers of full attention are scaled
            found["rope_scaling_type"] = f"{scaling.kind} {scaling.factor:g} in layers of full attention"
        return found
    if scaling is None:
        known = latent and model.rope_base is not None
        return found | ({"rotary_scaling_factor": 1.0} if known else {})
    if scaling.kind == "yarn":
        return found | (_latent_yarn(scaling) if latent else _yarn(scaling))
    if scaling.kind == "llama3" and not latent:
        given = {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
        given |= {"old_context_len": scaling.original or LLAMA3["old_context_len"]}
        other: dict[str, Plain] = {name: value for name, value in given.items() if value != LLAMA3[name]}
        return found | {"use_rope_scaling": True, "rope_scaling_factor": scaling.factor} | other
    if scaling.kind == "linear" and not latent and scaling.factor.is_integer():
        return found | {"rotary_seq_len_interpolation_factor": int(scaling.factor)}
    return found | {"rope_scaling_type": f"{scaling.kind} {scaling.factor:g}"}


def _latent_yarn(scaling: RopeScaling) -> dict[str, Plain]:
    """YaRN of multi-head latent attention; what is at the default of its configuration is left out."""
    given = {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
    given |= {
        "original_max_position_embeddings": scaling.original or YARN["original_max_position_embeddings"]
    }
    other: dict[str, Plain] = {name: value for name, value in given.items() if value != YARN[name]}
    return {"rotary_scaling_factor": scaling.factor, **_scales(scaling), **other}


def _yarn(scaling: RopeScaling) -> dict[str, Plain]:
    """YaRN of ordinary attention."""
    found: dict[str, Plain] = {"position_embedding_type": "yarn", "rotary_scaling_factor": scaling.factor}
    if scaling.original is not None:
        found["yarn_original_max_position_embeddings"] = scaling.original
    found |= {"yarn_beta_fast": scaling.beta_fast, "yarn_beta_slow": scaling.beta_slow}
    found["yarn_correction_range_round_to_int"] = scaling.truncate
    return found | _scales(scaling)


def _scales(scaling: RopeScaling) -> dict[str, Plain]:
    given = {"mscale": scaling.mscale, "mscale_all_dim": scaling.mscale_all_dim}
    return {name: value for name, value in given.items() if value is not None}


def _router(router: Router | None) -> dict[str, Plain]:
    if router is None:
        return {}
    found: dict[str, Plain] = {"moe_router_score_function": router.score}
    if router.score == "softmax" and router.normalized is not None:
        # softmax over the chosen is softmax over all, made to sum to 1 afterwards
        found["moe_router_pre_softmax"] = not router.normalized
    if router.score == "sigmoid" and router.normalized is False:
        found["norm_topk_prob"] = "False"  # Megatron makes them sum to 1
    if router.groups > 1:
        found |= {"moe_router_num_groups": router.groups, "moe_router_group_topk": router.group_top_k}
    if router.scale != 1:
        found["moe_router_topk_scaling_factor"] = router.scale
    return found


def _window(model: Model) -> dict[str, Plain]:
    """Megatron counts the tokens before the own one, Hugging Face the own one too."""
    mixers = [model.kinds[kind].mixer for kind in model.pattern]
    sizes = [mixer.window if isinstance(mixer, Attention) else None for mixer in mixers]
    widths = {size for size in sizes if size}
    if not widths:
        return {}
    if len(widths) > 1:
        return {"window_size": f"{min(widths)} to {max(widths)}"}
    (width,) = widths
    found: dict[str, Plain] = {"window_size": (width - 1, 0)}
    slides = [int(bool(size)) for size in sizes]
    return found if all(slides) else found | {"window_attn_skip_freq": _frequency(slides)}


def _frequency(slides: Sequence[int]) -> Plain:
    """N where every N-th layer attends to everything, else one flag a layer."""
    every = slides.index(0) + 1
    regular = [int((at + 1) % every != 0) for at in range(len(slides))]
    return every if every > 1 and regular == list(slides) else tuple(slides)


def _activation(model: Model) -> dict[str, Plain]:
    if any(isinstance(kind.ffn, Moe) and kind.ffn.clamped for kind in model.kinds):
        clamp: dict[str, Plain] = {"glu_linear_offset": OFFSET, "activation_func_clamp_value": CLAMP}
        return {"swiglu": False, "quick_geglu": True, **clamp}
    if model.activation == "relu2":
        return {"squared_relu": True, "bias_gelu_fusion": False}  # they are not fused
    return {"activation_func": model.activation} if model.activation else {}
