"""Rules of pipeline layout strings; the parser is `meshwright.layout.pipeline`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from meshwright.errors import MeshwrightError


def stages_of(layout: Any) -> tuple[tuple[str, ...], ...] | str:
    """The stages of a layout string or list, or what is wrong with it."""
    from meshwright.layout import notation

    if isinstance(layout, str):
        return _parsed(layout)
    try:
        return notation.parse_list(layout)
    except MeshwrightError as error:
        return str(error)


@lru_cache(maxsize=256)
def _parsed(layout: str) -> tuple[tuple[str, ...], ...] | str:
    from meshwright.layout import notation

    try:
        return notation.parse_text(layout)
    except MeshwrightError as error:
        return str(error)
