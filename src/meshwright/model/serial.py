"""A model as plain JSON values and back, so that an answer can carry the model it is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from meshwright.errors import QuestionError
from meshwright.model import spec

CLASSES = {
    name: value
    for name, value in vars(spec).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}


def to_dict(value: Any) -> Any:
    """Dataclasses of `model.spec` as dicts with their class under "is", fields at their default left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        row: dict[str, Any] = {"is": type(value).__name__}
        for item in dataclasses.fields(value):
            content = getattr(value, item.name)
            if content != item.default:
                row[item.name] = to_dict(content)
        return row
    if isinstance(value, tuple):
        return [to_dict(item) for item in value]
    return value


def from_dict(row: Any) -> Any:
    """The inverse of `to_dict`; QuestionError for what it did not write."""
    if isinstance(row, list):
        return tuple(from_dict(item) for item in row)
    if not isinstance(row, Mapping):
        return row
    known = CLASSES.get(str(row.get("is")))
    if known is None:
        raise QuestionError(
            f"a model description holds {str(row.get('is'))[:40]!r}; known: {', '.join(CLASSES)}"
        )
    names = {item.name for item in dataclasses.fields(known)}
    extra = sorted(set(row) - names - {"is"})
    if extra:
        raise QuestionError(
            f"a model description gives {known.__name__} the unknown fields {', '.join(extra)[:80]}"
        )
    try:
        return known(**{name: from_dict(value) for name, value in row.items() if name != "is"})
    except TypeError as error:
        raise QuestionError(f"a model description is incomplete: {error}") from None
