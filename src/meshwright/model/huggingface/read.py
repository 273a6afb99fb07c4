"""From the JSON object of a config.json to a `Model`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from meshwright.errors import QuestionError, did_you_mean
from meshwright.model.huggingface import dense, gemma, gpt, hybrid, mla, moe
from meshwright.model.huggingface.fields import Fields
from meshwright.model.huggingface.vision import vision_of
from meshwright.model.parameters import count_parameters
from meshwright.model.spec import Model

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Where multimodal configs keep their text part."""

TEXT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "gemma3": "gemma3_text",
        "gemma4": "gemma4_text",
        "glm4v": "glm4v_text",
        "glm4v_moe": "glm4v_moe_text",
        "internvl": "qwen2",
        "kimi_k25": "deepseek_v3",
        "llama4": "llama4_text",
        "llava": "llama",
        "llava_next": "llama",
        "minimax_m3_vl": "minimax_m3_vl_text",
        "mistral3": "mistral",
        "qwen2_5_vl": "qwen2_5_vl_text",
        "qwen2_vl": "qwen2_vl_text",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "qwen3_vl": "qwen3_vl_text",
        "qwen3_vl_moe": "qwen3_vl_moe_text",
        "step3_vl": "step3_text",
        "step3p7": "step3p5",
    }
)
"""Multimodal type -> type of its text part, where that part does not name its own."""

MOST_PARAMETERS = 10**15


def known_types() -> tuple[str, ...]:
    """Every model_type that can be read."""
    return tuple(sorted({*_readers(), *TEXT_TYPES}))


def read_config(config: Mapping[str, Any], name: str | None = None) -> Model:
    """The model that a config.json describes; `name` is what to call it.

    Absent fields take the defaults of the configuration class in transformers, and the model's notes
    say which. QuestionError: unknown architecture, a field missing, or a value that cannot be meant.
    """
    kind = _type_of(config)
    text, text_kind, part = _text_part(config, kind)
    reader = _readers().get(text_kind)
    if reader is None:
        raise QuestionError(_unknown(text_kind))
    fields = Fields(text, text_kind, part=part)
    model = reader(fields)
    fields.check()
    if count_parameters(model).total > MOST_PARAMETERS:
        raise QuestionError(f"config.json ({text_kind}): the sizes make more than 10^15 parameters")
    vision, note = vision_of(config, kind, model.hidden)
    notes = (*model.notes, *_default_notes(fields), *((note,) if note else ()))
    return replace(
        model, name=name or kind, family=kind, vision=vision, notes=notes, source=f"config.json ({kind})"
    )


def _text_part(config: Mapping[str, Any], kind: str) -> tuple[Mapping[str, Any], str, bool]:
    """The text config, its type, and whether it is a part of `config`."""
    for key in TEXT_KEYS:
        part = config.get(key)
        if isinstance(part, Mapping):
            tie = config.get("tie_word_embeddings")
            given = (
                part if "tie_word_embeddings" in part or tie is None else {**part, "tie_word_embeddings": tie}
            )
            return given, str(part.get("model_type") or TEXT_TYPES.get(kind, kind)), True
    return config, TEXT_TYPES.get(kind, kind), False


def _type_of(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if isinstance(kind, str) and kind:
        return kind
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        bare = re.sub(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)$", "", named[0])
        plain = {key.replace("_", "").replace(".", ""): key for key in known_types()}
        if bare.lower() in plain:
            return plain[bare.lower()]
        raise QuestionError(_unknown(named[0]))
    raise QuestionError(f"config.json: missing model_type; known are {', '.join(known_types())}")


def _unknown(kind: str) -> str:
    shown = kind if len(kind) <= 60 else f"{kind[:57]}..."
    near = did_you_mean(shown, known_types()) or "."
    return f"config.json: unknown architecture {shown!r} (model_type){near} Known: {', '.join(known_types())}"


def _default_notes(fields: Fields) -> tuple[str, ...]:
    sizes = {name: value for name, value in fields.defaulted.items() if not isinstance(value, bool) and value}
    if not sizes:
        return ()
    listed = ", ".join(f"{name} {value}" for name, value in sizes.items())
    return (f"absent from config.json, class defaults taken: {listed}",)


@cache
def _readers() -> Mapping[str, Callable[[Fields], Model]]:
    found: dict[str, Callable[[Fields], Model]] = {}
    for module in (dense, gpt, moe, mla, hybrid, gemma):
        found |= module.READERS
    return MappingProxyType(found)
