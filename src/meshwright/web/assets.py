"""The files of the page, read once into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from meshwright.report.svg.draw import stylesheet

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its bytes, media type and entity tag."""

    data: bytes
    kind: str
    mark: str


@cache
def assets() -> Mapping[str, Asset]:
    """Every file of the page by the name it is asked for."""
    found = {"pictures.css": _asset(stylesheet().encode(), ".css")}
    for entry in resources.files("meshwright.web").joinpath("static").iterdir():
        suffix = "." + entry.name.rsplit(".", 1)[-1]
        if suffix in KINDS:
            found[entry.name] = _asset(entry.read_bytes(), suffix)
    return found


def _asset(data: bytes, suffix: str) -> Asset:
    return Asset(data, KINDS[suffix], f'"{hashlib.sha256(data).hexdigest()[:20]}"')
