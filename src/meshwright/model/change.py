"""Changing fields of a model: other depth, other vocabulary, any field by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from meshwright.errors import QuestionError, did_you_mean
from meshwright.model.spec import Attention, Layer, LinearAttention, Mamba2, Mla, Mlp, Model, Moe, Vision

PARTS: Mapping[str, type] = MappingProxyType(
    {
        "attention": Attention,
        "mla": Mla,
        "linear_attention": LinearAttention,
        "mamba2": Mamba2,
        "mlp": Mlp,
        "moe": Moe,
        "vision": Vision,
    }
)

SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "ffn_hidden_size": "mlp.ffn",
        "hidden_size": "hidden",
        "kv_channels": "head_dim",
        "layers": "num_layers",
        "make_vocab_size": "vocab_size",
        "max_position_embeddings": "max_position",
        "moe_ffn_hidden_size": "moe.ffn",
        "moe_router_topk": "top_k",
        "moe_shared_expert_intermediate_size": "shared_ffn",
        "mtp_layers": "mtp_num_layers",
        "num_attention_heads": "heads",
        "num_experts": "experts",
        "num_moe_experts": "experts",
        "num_query_groups": "kv_heads",
        "window_size": "window",
    }
)
"""Megatron's spelling (and a few others) -> ours."""

MODEL_FIELDS = (
    "name", "hidden", "vocab_size", "tied", "normalization", "learned_positions", "embedding_norm",
    "head_bias", "final_norm", "max_position", "other_parameters",
)  # fmt: skip

MOST = 10**9
MOST_LAYERS = 10_000


def override(model: Model, changes: Mapping[str, object]) -> Model:
    """The model with other values in some fields.

    Names are fields of `Model` (`hidden`, `vocab_size`, `max_position`), `num_layers`,
    `mtp_num_layers`, fields of a part (`heads`, `experts`, `moe.ffn`, `vision.frozen`) or Megatron's
    spelling of them; `vision` may be set to none. Values may be text. QuestionError: unknown name, a
    part the model does not have, a value of the wrong kind.

    >>> from meshwright.model.catalog import find
    >>> override(find("deepseek-v3"), {"num-layers": "5"}).pattern
    (0, 0, 0, 1, 1)
    """
    for spelled, value in changes.items():
        name = spelled.strip().lstrip("-").replace("-", "_")
        model = _changed(model, SPELLINGS.get(name, name), value)
        model = replace(model, notes=(*model.notes, f"{name} set to {_shown(value)}"))
    return model


def reaching(model: Model, tokens: int) -> Model:
    """The model with positions for sequences of `tokens`: rotary positions have no table that is too short.

    Learned positions are a table of the model's own and stay as they are.
    """
    if not model.max_position or model.learned_positions or model.max_position >= tokens:
        return model
    return replace(model, max_position=tokens)


def stretch(pattern: Sequence[int], count: int) -> tuple[int, ...]:
    """The pattern at another depth: its head (such as dense first layers) stays, its period repeats.

    >>> stretch((0, 0, 1, 1, 1, 1), 4), stretch((2, 2, 3, 2, 2, 3), 8)
    ((0, 0, 1, 1), (2, 2, 3, 2, 2, 3, 2, 2))
    """
    head, period = _head_and_period(pattern)
    return tuple(pattern[i] if i < head else pattern[head + (i - head) % period] for i in range(count))


def _head_and_period(pattern: Sequence[int]) -> tuple[int, int]:
    """Shortest head and period that make the pattern; the whole pattern where it has none."""
    n = len(pattern)
    best = (0, n)
    for period in range(1, n // 2 + 1):
        head = n - period
        while head > 0 and pattern[head - 1] == pattern[head - 1 + period]:
            head -= 1
        if head <= min(n // 4, n - 2 * period) and head + period < sum(best):
            best = (head, period)
    return best


def _changed(model: Model, name: str, value: object) -> Model:
    if name == "num_layers":
        count = _whole(name, value, 1, MOST_LAYERS)
        return replace(model, pattern=stretch(model.pattern, count))
    if name == "mtp_num_layers":
        count = _whole(name, value, 0, 16)
        kind = model.mtp[0] if model.mtp else model.pattern[-1]
        return replace(model, mtp=(kind,) * count)
    if name == "vision":
        if str(value).lower() not in ("none", "false", "no", "0"):
            raise QuestionError(f"vision is {_shown(value)}; the tower can only be left out: vision=none")
        return replace(model, vision=None)
    if name in MODEL_FIELDS:
        return replace(model, **{name: _typed(Model, name, value)})
    part, _, field = name.rpartition(".")
    return _changed_part(model, part, field, value)


def _changed_part(model: Model, part: str, field: str, value: object) -> Model:
    """The field set in every layer (or the tower) that has it."""
    present = _parts_of(model)
    if part and part not in PARTS:
        raise QuestionError(
            f"unknown part {part!r} of a model{did_you_mean(part, PARTS) or '.'} Known: {', '.join(PARTS)}"
        )
    having = [
        name for name, cls in PARTS.items()
        if name in present and (part in ("", name)) and field in _names(cls)
        and (name != "vision" or part == "vision")
    ]  # fmt: skip
    if not having:
        raise QuestionError(_no_such(model, part, field, present))
    softmax = [name for name in having if name in ("attention", "mla")]
    having = softmax or having  # a bare `heads` means attention heads, also in a model with Mamba layers
    if not softmax and len(having) > 1:
        raise QuestionError(
            f"{field} could be {' or '.join(f'{name}.{field}' for name in having)}; say which"
        )
    classes = tuple(PARTS[name] for name in having)
    typed = _typed(classes[0], field, value)
    if having == ["vision"]:
        assert model.vision is not None
        return replace(model, vision=replace(model.vision, **{field: typed}))
    kinds = tuple(_in_layer(layer, classes, field, typed) for layer in model.kinds)
    return replace(model, kinds=kinds)


def _in_layer(layer: Layer, classes: tuple[type, ...], field: str, value: Any) -> Layer:
    mixer = _in_part(layer.mixer, classes, field, value)
    ffn = _in_part(layer.ffn, classes, field, value)
    changed = replace(layer, mixer=mixer, ffn=ffn)
    if isinstance(mixer, Attention) and mixer.heads % mixer.kv_heads:
        raise QuestionError(
            f"{mixer.heads} attention heads are not a multiple of {mixer.kv_heads} key-value heads"
        )
    if isinstance(ffn, Moe) and ffn.top_k > ffn.experts:
        raise QuestionError(f"top_k {ffn.top_k} is more than the {ffn.experts} experts")
    return changed


def _in_part(part: Any, classes: tuple[type, ...], field: str, value: Any) -> Any:
    return replace(part, **{field: value}) if type(part) in classes else part


def _parts_of(model: Model) -> set[str]:
    held = [part for layer in model.kinds for part in (layer.mixer, layer.ffn)] + [model.vision]
    return {name for name, cls in PARTS.items() if any(isinstance(part, cls) for part in held)}


def _no_such(model: Model, part: str, field: str, present: set[str]) -> str:
    if part and part not in present:
        return f"{model.name} has no {part}; it has {', '.join(sorted(present))}"
    known = sorted({*MODEL_FIELDS, "num_layers", "mtp_num_layers", *SPELLINGS})
    known += [name for held in sorted(present) for name in _names(PARTS[held]) if name not in known]
    near = did_you_mean(field[:40], known) or "."
    return f"{model.name} has no field {field[:40]!r}{near} Known: {', '.join(known)}"


def _names(cls: type) -> list[str]:
    assert is_dataclass(cls)
    return [
        field.name
        for field in fields(cls)
        if "Indexer" not in str(field.type) and "Comp" not in str(field.type)
    ]


def _typed(cls: type, name: str, value: object) -> Any:
    """`value` as the field wants it, by the annotation of the field."""
    assert is_dataclass(cls)
    wanted = str(next(field.type for field in fields(cls) if field.name == name))
    text = str(value).strip()
    if "None" in wanted and (value is None or text.lower() in ("none", "null")):
        return None
    if "bool" in wanted:
        if text.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return text.lower() in ("true", "yes", "on", "1")
        raise QuestionError(f"{name} is {_shown(value)}; it must be true or false")
    if "int" in wanted:
        least = (
            0
            if name in ("learned_positions", "shared_ffn", "parallel_ffn", "conv", "other_parameters")
            else 1
        )
        return _whole(name, value, least, MOST)
    return _worded(name, text, wanted)


WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "normalization": ("rms", "layer", "layer-no-bias", "none"),
        "qk_norm": ("head", "full"),
        "kind": ("gdn", "kda", "lightning"),
    }
)


def _worded(name: str, text: str, wanted: str) -> str:
    known = WORDS.get(name)
    if known and text not in known:
        raise QuestionError(f"{name} is {_shown(text)}; known: {', '.join(known)}")
    if not known and wanted != "str":
        raise QuestionError(f"{name} cannot be changed")
    return text


def _whole(name: str, value: object, least: int, most: int) -> int:
    text = str(value).strip().replace("_", "").replace(",", "")
    if isinstance(value, bool) or not text.lstrip("+-").isdigit() or len(text) > 30:
        raise QuestionError(f"{name} is {_shown(value)}; it must be a whole number")
    number = int(text)
    if not least <= number <= most:
        raise QuestionError(f"{name} is {number}; it must lie between {least} and {most:,}")
    return number


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
