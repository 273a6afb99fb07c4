"""Vision towers and projectors of multimodal configs: counted, not taken apart.

Each reader states how many vectors a tower layer has beside its matrices (biases, norms), what stands
around the layers (patch embedding, positions, end norms), and the projector into the language model.
Source: the modules of transformers 5.24.0; counts are tested against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.model.huggingface.fields import Fields
from meshwright.model.spec import Vision

NATIVE_PIXELS = 896
"""Side of the square image that `tokens_per_image` assumes for towers of native resolution [pixels]."""

CHANNELS = 3


def vision_of(config: Mapping[str, Any], kind: str, hidden: int) -> tuple[Vision | None, str | None]:
    """The tower of a multimodal config, or None with a note where it is not described.

    kind    model_type of the whole config
    hidden  width of the language model
    """
    part = config.get("vision_config")
    if not isinstance(part, Mapping):
        return None, None
    inner = str(part.get("model_type") or "")
    known = BY_MODEL.get(kind) or (BY_TOWER.get(inner or "clip_vision_model") if kind in LLAVA else None)
    if known is None:
        return None, f"the vision tower ({inner or kind}) is not described and left out"
    reader, defaults = known
    tower = Fields(part, defaults, part=True)
    vision = reader(tower, Fields(config, kind, part=True), hidden)
    tower.check()
    return vision, None


def _tower(
    v: Fields, ffn: int, *, gated: bool, vectors: int, around: int, projector: int, tokens: int
) -> Vision:
    """vectors: elements of a layer beside its matrices; around: elements outside layers and projector."""
    layers, h = _layers(v), _hidden(v)
    matrices = 4 * h * h + (3 if gated else 2) * h * ffn
    return Vision(
        layers=layers, hidden=h, heads=v.whole("num_heads", "num_attention_heads", "vt_num_attention_heads"),
        ffn=ffn, gated=gated, parameters=layers * (matrices + vectors) + around + projector,
        projector_parameters=projector, tokens_per_image=tokens,
    )  # fmt: skip


def _layers(v: Fields) -> int:
    return v.whole("depth", "num_hidden_layers", "vt_num_hidden_layers")


def _hidden(v: Fields) -> int:
    if v.kind == "qwen2_vl_vision":  # its hidden_size is the width of the language model
        return v.whole("embed_dim")
    return v.whole("hidden_size", "vt_hidden_size")


def _ffn(v: Fields) -> int:
    return v.whole("intermediate_size", "vt_intermediate_size")


def _patch(v: Fields, frames: int = 1) -> int:
    """Elements of the patch embedding's matrix."""
    return CHANNELS * (v.maybe("temporal_patch_size") or frames) * _patch_size(v) ** 2 * _hidden(v)


def _patch_size(v: Fields) -> int:
    return v.uniform("patch_size") or v.whole("patch_size")


def _patches(v: Fields) -> int:
    """Patches of one image of the tower's own size."""
    return ((v.uniform("image_size") or NATIVE_PIXELS) // _patch_size(v)) ** 2


def _native_tokens(v: Fields, merge: int) -> int:
    return max(NATIVE_PIXELS // (_patch_size(v) * merge), 1) ** 2


def _merge(v: Fields) -> int:
    return v.uniform("spatial_merge_size", "merge_kernel_size") or 2


def _biased(v: Fields, ffn: int) -> int:
    """Vectors of a layer with a bias in every matrix (one hidden layer) and two layer norms."""
    return (4 + 1 + 4) * _hidden(v) + ffn


def qwen2_vl(v: Fields, _: Fields, __: int) -> Vision:
    e, out, wide = _hidden(v), v.whole("hidden_size"), _hidden(v) * _merge(v) ** 2
    ffn = e * (v.maybe("mlp_ratio") or 4)
    projector = 2 * e + wide * wide + wide + wide * out + out
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=_patch(v), projector=projector,
        tokens=_native_tokens(v, _merge(v)),
    )  # fmt: skip


def qwen2_5_vl(v: Fields, _: Fields, __: int) -> Vision:
    e, out, wide, ffn = _hidden(v), v.whole("out_hidden_size"), _hidden(v) * _merge(v) ** 2, _ffn(v)
    projector = e + wide * wide + wide + wide * out + out
    vectors = (4 + 1 + 2) * e + 2 * ffn
    return _tower(
        v, ffn, gated=True, vectors=vectors, around=_patch(v), projector=projector,
        tokens=_native_tokens(v, _merge(v)),
    )  # fmt: skip


def qwen3_vl(v: Fields, c: Fields, __: int) -> Vision:
    """Qwen3-VL; Qwen3.5 is the same without the mergers of inner layers."""
    e, out, wide, ffn = _hidden(v), v.whole("out_hidden_size"), _hidden(v) * _merge(v) ** 2, _ffn(v)
    inner = v.raw("deepstack_visual_indexes")
    if not isinstance(inner, list):
        inner = [] if c.kind.startswith("qwen3_5") else [8, 16, 24]
    elif c.kind.startswith("qwen3_5"):
        inner = []
    merger = wide * wide + wide + wide * out + out
    projector = 2 * e + merger + len(inner) * (2 * wide + merger)
    around = _patch(v) + e + v.whole("num_position_embeddings") * e
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=around, projector=projector,
        tokens=_native_tokens(v, _merge(v)),
    )  # fmt: skip


def glm4v(v: Fields, _: Fields, __: int) -> Vision:
    e, out, m = _hidden(v), v.whole("out_hidden_size"), _merge(v)
    around = _patch(v) + e + _patches(v) * e + 2 * e
    projector = out * e * m * m + out + out * out + 2 * out + 3 * out * _ffn(v)
    bias = 4 * e if v.flag("attention_bias") else 0
    return _tower(
        v, out, gated=True, vectors=2 * e + bias, around=around, projector=projector,
        tokens=_native_tokens(v, m),
    )  # fmt: skip


def kimi(v: Fields, c: Fields, hidden: int) -> Vision:
    e, ffn, wide = _hidden(v), _ffn(v), _hidden(v) * _merge(v) ** 2
    rows = v.whole("pos_emb_height", "init_pos_emb_height") * v.whole("pos_emb_width", "init_pos_emb_width")
    around = _patch(v) + e + rows * e + 2 * e
    norm = v.maybe("mm_hidden_size") or c.whole("projection_hidden_size")
    projector = 2 * norm + wide * wide + wide + wide * hidden + hidden
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=around, projector=projector,
        tokens=_native_tokens(v, _merge(v)),
    )  # fmt: skip


def gemma3(v: Fields, c: Fields, hidden: int) -> Vision:
    e = _hidden(v)
    return _siglip(v, e * hidden + e, c.maybe("mm_tokens_per_image") or 256)


def gemma4(v: Fields, c: Fields, hidden: int) -> Vision:
    e, ffn, head = _hidden(v), _ffn(v), v.whole("head_dim")
    around = _patch(v) + 2 * v.whole("position_embedding_size") * e
    tokens = c.maybe("vision_soft_tokens_per_image") or v.maybe("default_output_length") or 280
    return _tower(
        v, ffn, gated=True, vectors=4 * e + 2 * head, around=around, projector=e * hidden, tokens=tokens
    )


def mistral3(v: Fields, c: Fields, hidden: int) -> Vision:
    e, m = _hidden(v), c.maybe("spatial_merge_size") or 2
    bias = 2 * hidden if c.flag("multimodal_projector_bias") else 0
    projector = e + e * e * m * m + e * hidden + hidden * hidden + bias
    return _pixtral(v, projector, m)


def llama4(v: Fields, _: Fields, hidden: int) -> Vision:
    e, ffn, patches = _hidden(v), _ffn(v), _patches(v)
    adapter = ffn * v.whole("projector_input_dim") + v.whole("projector_input_dim") * v.whole(
        "projector_output_dim"
    )
    around = _patch(v) + e + (patches + 1) * e + 4 * e
    projector = adapter + v.whole("vision_output_dim") * hidden
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=around, projector=projector, tokens=patches // 4
    )


def internvl(v: Fields, _: Fields, hidden: int) -> Vision:
    e, ffn, patches, wide = _hidden(v), _ffn(v), _patches(v), 4 * _hidden(v)
    v.refuse("use_qk_norm", "norms over queries and keys of the tower are not described")
    vectors = 2 * e + (4 if v.flag("attention_bias") else 1) * e + ffn + e + 4 * e
    around = e + (patches + 1) * e + _patch(v) + e
    projector = 2 * wide + wide * hidden + hidden + hidden * hidden + hidden
    return _tower(
        v, ffn, gated=False, vectors=vectors, around=around, projector=projector, tokens=patches // 4
    )


def minimax_m3(v: Fields, c: Fields, hidden: int) -> Vision:
    e, ffn, p = _hidden(v), _ffn(v), c.whole("projector_hidden_size")
    projector = (e * p + p) + (p * hidden + hidden) + (4 * hidden * p + p) + (p * hidden + hidden)
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=_patch(v, frames=2) + 2 * e, projector=projector,
        tokens=_native_tokens(v, 2),
    )  # fmt: skip


def llava_clip(v: Fields, c: Fields, hidden: int) -> Vision:
    e, ffn, patches = _hidden(v), _ffn(v), _patches(v)
    around = e + _patch(v) + (patches + 1) * e + 4 * e
    projector = _llava_projector(c, e, hidden)
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=around, projector=projector, tokens=patches
    )


def llava_siglip(v: Fields, c: Fields, hidden: int) -> Vision:
    return _siglip(v, _llava_projector(c, _hidden(v), hidden), _patches(v))


def llava_pixtral(v: Fields, c: Fields, hidden: int) -> Vision:
    return _pixtral(v, _llava_projector(c, _hidden(v), hidden), 1)


def _llava_projector(c: Fields, e: int, hidden: int) -> int:
    levels = c.raw("vision_feature_layer")
    wide = e * (len(levels) if isinstance(levels, list) else 1)
    bias = 0 if c.raw("multimodal_projector_bias") is False else 2 * hidden
    newline = hidden if c.kind == "llava_next" else 0
    return wide * hidden + hidden * hidden + bias + newline


def _siglip(v: Fields, projector: int, tokens: int) -> Vision:
    e, ffn = _hidden(v), _ffn(v)
    around = _patch(v) + e + _patches(v) * e + 2 * e
    if v.raw("vision_use_head") is not False:
        around += e + 4 * e * e + 4 * e + 2 * e + 2 * e * ffn + ffn + e
    return _tower(
        v, ffn, gated=False, vectors=_biased(v, ffn), around=around, projector=projector, tokens=tokens
    )


def _pixtral(v: Fields, projector: int, merge: int) -> Vision:
    e = _hidden(v)
    return _tower(
        v, _ffn(v), gated=True, vectors=2 * e, around=_patch(v) + e, projector=projector,
        tokens=_native_tokens(v, merge),
    )  # fmt: skip


Reader = Callable[[Fields, Fields, int], Vision]

LLAVA = frozenset({"llava", "llava_next"})

BY_TOWER: Mapping[str, tuple[Reader, str]] = {
    "clip_vision_model": (llava_clip, "clip_vision_model"),
    "pixtral": (llava_pixtral, "pixtral"),
    "siglip_vision_model": (llava_siglip, "siglip_vision_model"),
}
"""Tower type -> reader and key of its defaults, for the models that take any tower."""

BY_MODEL: Mapping[str, tuple[Reader, str]] = {
    "gemma3": (gemma3, "siglip_vision_model"),
    "gemma4": (gemma4, "gemma4_vision"),
    "glm4v": (glm4v, "glm4v_vision"),
    "glm4v_moe": (glm4v, "glm4v_vision"),
    "internvl": (internvl, "internvl_vision"),
    "kimi_k25": (kimi, "kimi_k25_vision"),
    "llama4": (llama4, "llama4_vision_model"),
    "minimax_m3_vl": (minimax_m3, "minimax_m3_vl_vision"),
    "mistral3": (mistral3, "pixtral"),
    "qwen2_5_vl": (qwen2_5_vl, "qwen2_5_vl_vision"),
    "qwen2_vl": (qwen2_vl, "qwen2_vl_vision"),
    "qwen3_5": (qwen3_vl, "qwen3_5_vision"),
    "qwen3_5_moe": (qwen3_vl, "qwen3_5_vision"),
    "qwen3_vl": (qwen3_vl, "qwen3_vl_vision"),
    "qwen3_vl_moe": (qwen3_vl, "qwen3_vl_vision"),
}
