"""A `Model` as plain data and back: the form of the catalog file and of a model inside JSON answers.

    {"name": .., "hidden": .., "vocab_size": .., "pattern": "DDDEEE",
     "kinds": {"D": {"mla": {..}, "mlp": {..}}, "E": {"mla": {..}, "moe": {..}}}, "mtp": "E", ...}

Each letter of `pattern` names the kind of one decoder layer; fields at their default are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from meshwright.errors import QuestionError, did_you_mean
from meshwright.model.spec import (
    Attention,
    Compressor,
    Indexer,
    Layer,
    LinearAttention,
    Mamba2,
    Mla,
    Mlp,
    Model,
    Moe,
    RopeScaling,
    Router,
    Vision,
)

MIXERS: Mapping[str, type] = {
    "attention": Attention,
    "mla": Mla,
    "linear_attention": LinearAttention,
    "mamba2": Mamba2,
}
FFNS: Mapping[str, type] = {"mlp": Mlp, "moe": Moe}
PARTS: Mapping[str, type] = {
    "indexer": Indexer,
    "compressor": Compressor,
    "vision": Vision,
    "rope_scaling": RopeScaling,
    "router": Router,
}
LETTERS = "DESLMABCFGHIJKNOPQRTUVWXYZabcdefghijklmnopqrstuvwxyz"


def model_from_row(row: Mapping[str, Any]) -> Model:
    """The model of one row; QuestionError names a field that is unknown, missing or malformed."""
    what = f"model {row.get('name', '?')}"
    kinds = _part(row, "kinds", dict, what)
    index = {letter: position for position, letter in enumerate(kinds)}
    layers = tuple(_layer(kinds[letter], f"{what}, layer {letter}") for letter in kinds)
    try:
        pattern = tuple(index[letter] for letter in _part(row, "pattern", str, what))
        mtp = tuple(index[letter] for letter in row.get("mtp", ""))
    except KeyError as error:
        raise QuestionError(
            f"{what}: the pattern names layer {error}, known are {', '.join(kinds)}"
        ) from None
    rest = {key: value for key, value in row.items() if key not in ("kinds", "pattern", "mtp")}
    for key in ("aliases", "notes"):
        if key in rest:
            rest[key] = tuple(rest[key])
    built: Model = _build(Model, {**rest, "kinds": layers, "pattern": pattern, "mtp": mtp}, what)
    return built


def model_to_row(model: Model) -> dict[str, Any]:
    """The row of a model: `model_from_row(model_to_row(m)) == m`."""
    row = _fields(model, without=("kinds", "pattern", "mtp"))
    letters = _letters(model)
    row["kinds"] = {letter: _layer_row(layer) for letter, layer in zip(letters, model.kinds, strict=True)}
    row["pattern"] = "".join(letters[kind] for kind in model.pattern)
    if model.mtp:
        row["mtp"] = "".join(letters[kind] for kind in model.mtp)
    return row


def _letters(model: Model) -> list[str]:
    """One letter a kind: E for experts, D for dense, S and L for sliding and linear mixers, M for Mamba."""
    taken: list[str] = []
    for layer in model.kinds:
        sliding = isinstance(layer.mixer, Attention) and layer.mixer.window
        if isinstance(layer.mixer, LinearAttention):
            wanted = "L"
        elif isinstance(layer.mixer, Mamba2):
            wanted = "M"
        elif sliding:
            wanted = "S"
        elif layer.ffn is None:
            wanted = "A"
        else:
            wanted = "E" if layer.is_moe else "D"
        taken.append(next(letter for letter in wanted + LETTERS if letter not in taken))
    return taken


def _layer(row: Mapping[str, Any], what: str) -> Layer:
    given = dict(row)
    mixer = _choice(given, MIXERS, what)
    ffn = _choice(given, FFNS, what)
    built: Layer = _build(Layer, {**given, "mixer": mixer, "ffn": ffn}, what)
    return built


def _choice(row: dict[str, Any], classes: Mapping[str, type], what: str) -> Any:
    for name, cls in classes.items():
        if name in row:
            return _build(cls, row.pop(name), f"{what}, {name}")
    return None


def _build(cls: type, values: Mapping[str, Any], what: str) -> Any:
    known = {field.name: field for field in fields(cls)}
    for name in values:
        if name not in known:
            raise QuestionError(f"{what}: unknown field {name!r}{did_you_mean(name, known)}")
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise QuestionError(f"{what}: missing {', '.join(missing)}")
    nested = {
        name: _build(PARTS[name], value, f"{what}, {name}") if name in PARTS and value is not None else value
        for name, value in values.items()
    }
    return cls(**nested)


def _part(row: Mapping[str, Any], name: str, kind: type, what: str) -> Any:
    value = row.get(name)
    if not isinstance(value, kind):
        raise QuestionError(f"{what}: {name} is {value!r}; it must be a {kind.__name__}")
    return value


def _layer_row(layer: Layer) -> dict[str, Any]:
    row = _fields(layer, without=("mixer", "ffn"))
    for classes, part in ((MIXERS, layer.mixer), (FFNS, layer.ffn)):
        for name, cls in classes.items():
            if isinstance(part, cls):
                row[name] = _fields(part)
    return row


def _fields(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from their default, nested parts as rows."""
    row: dict[str, Any] = {}
    for field in fields(value):
        current = getattr(value, field.name)
        if field.name in without or current == field.default or current == ():
            continue
        if field.name in PARTS:
            current = _fields(current)
        row[field.name] = list(current) if isinstance(current, tuple) else current
    return row
