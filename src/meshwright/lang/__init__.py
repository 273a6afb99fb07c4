"""Other languages than English: one catalog of phrases, and the doors choose.

Rooms write English. A door that was asked for another language takes a `Say` from `speaker` and hands it
to what renders the answer; everything that was made for people goes through it, and numbers stay.
"""

from __future__ import annotations

from meshwright.lang.choice import (
    DEFAULT,
    LANGUAGES,
    VARIABLE,
    Say,
    chosen,
    html_language,
    label,
    plain,
    speaker,
)
from meshwright.lang.values import translated
from meshwright.lang.wrap import fill, width_of

__all__ = [
    "DEFAULT",
    "LANGUAGES",
    "VARIABLE",
    "Say",
    "chosen",
    "fill",
    "html_language",
    "label",
    "plain",
    "speaker",
    "translated",
    "width_of",
]
