"""What changes no size and is needed to load weights that exist: rotary scaling, router, activation.

Nothing here refuses a config: a value that cannot be meant counts as not stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Layer, Mlp, Moe, RopeScaling, Router

KINDS = {
    "linear": "linear", "llama3": "llama3", "yarn": "yarn", "dynamic": "dynamic", "longrope": "longrope",
    "su": "longrope",
}  # fmt: skip
FULL, LOCAL = "full_attention", "sliding_attention"
NORMALIZED = frozenset({"mixtral", "gpt_oss", "granitemoe", "granitemoeshared", "minimax_m2"})
"""Types whose weights of the chosen experts always sum to 1 (their modeling files in transformers)."""
ZERO_CENTERED = ("gemma", "gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
SCALED_EMBEDDING = ("gemma", "gemma2", "gemma3_text", "gemma4_text")


def settings(c: Fields, layers: Sequence[Layer]) -> dict[str, Any]:
    """Fields of `Model` that a config states, without those at their default."""
    local = _number(c.raw("rope_local_base_freq"), _parameters(c, LOCAL).get("rope_theta"))
    share = _number(
        c.raw("partial_rotary_factor"), c.raw("rotary_pct"), _parameters(c).get("partial_rotary_factor")
    )
    scalar = _number(c.raw("query_pre_attn_scalar"))
    found: dict[str, Any] = {
        "rope_scaling": rope_scaling(c),
        "rope_share": share if share is not None and share < 1 else None,
        "rope_local_base": local if c.kind.startswith("gemma") else None,
        "router": router(c, layers),
        "activation": _activation(c, layers),
        "zero_centered_norm": c.kind in ZERO_CENTERED,
        "embedding_scale": c.kind in SCALED_EMBEDDING,
        "attention_softcap": _number(c.raw("attn_logit_softcapping")),
        "logit_softcap": _number(c.raw("final_logit_softcapping")),
        "query_scalar": None if scalar == c.raw("head_dim") else scalar,
    }
    return {name: value for name, value in found.items() if value not in (None, False)}


def _parameters(c: Fields, which: str = FULL) -> Mapping[str, Any]:
    """`rope_parameters` (transformers 5), those of one kind of layer where they differ, or `rope_scaling`."""
    given = c.raw("rope_parameters")
    inside = given.get(which) if isinstance(given, Mapping) else None
    if isinstance(inside, Mapping):
        return inside
    if which == LOCAL:
        return {}
    older = c.raw("rope_scaling")
    return next((one for one in (given, older) if isinstance(one, Mapping)), {})


def rope_scaling(c: Fields) -> RopeScaling | None:
    """`rope_scaling`, or `rope_parameters` of a type that scales; None where positions are as they are."""
    row = _parameters(c)
    kind = KINDS.get(str(row.get("rope_type") or row.get("type")))
    original = _number(row.get("original_max_position_embeddings"), c.raw("original_max_position_embeddings"))
    factor = _number(row.get("factor"))
    if factor is None and kind == "longrope" and original and c.max_position:
        factor = c.max_position / original
    if kind is None or factor is None:
        return None
    given: dict[str, Any] = {
        "original": int(original or (c.max_position or 0)) or None,
        "low": _number(row.get("low_freq_factor")),
        "high": _number(row.get("high_freq_factor")),
        "beta_fast": _number(row.get("beta_fast")),
        "beta_slow": _number(row.get("beta_slow")),
        "mscale": _number(row.get("mscale")),
        "mscale_all_dim": _number(row.get("mscale_all_dim")),
        "truncate": False if row.get("truncate") is False else None,
    }
    kept = {name: value for name, value in given.items() if value is not None}
    return RopeScaling(kind=kind, factor=factor, **kept)  # type: ignore[arg-type]


def router(c: Fields, layers: Sequence[Layer]) -> Router | None:
    """How a model with experts weighs them."""
    experts = [layer.ffn for layer in layers if isinstance(layer.ffn, Moe)]
    if not experts:
        return None
    stated = c.raw("scoring_func", "score_function", "moe_router_score_function")
    sigmoid = stated == "sigmoid" if stated in ("sigmoid", "softmax") else experts[0].expert_bias
    normalized = c.raw("norm_topk_prob")
    if not isinstance(normalized, bool):
        normalized = True if c.kind in NORMALIZED else None
    grouped = c.raw("topk_method") != "greedy"
    groups, chosen = (_number(c.raw(name)) for name in ("n_group", "topk_group"))
    return Router(
        score="sigmoid" if sigmoid or c.kind == "llama4_text" else "softmax",
        normalized=normalized,
        groups=int(groups) if grouped and groups and chosen else 1,
        group_top_k=int(chosen) if grouped and groups and chosen else 1,
        scale=_number(c.raw("routed_scaling_factor"), c.raw("moe_router_topk_scaling_factor")) or 1.0,
    )


def _activation(c: Fields, layers: Sequence[Layer]) -> str | None:
    """The activation's name where it is not the usual one: SiLU in gated blocks, GELU in others."""
    name = c.raw("hidden_activation", "hidden_act", "activation_function", "mlp_hidden_act")
    if not isinstance(name, str) or len(name) > 40:
        return None
    gated = any(isinstance(layer.ffn, Mlp | Moe) and layer.ffn.gated for layer in layers)
    usual = ("silu", "swish") if gated else ("gelu",)
    return None if name in usual else name


def _number(*values: Any) -> float | None:
    """The first that is a number above 0 and below belief."""
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9:
            return float(value)
    return None
