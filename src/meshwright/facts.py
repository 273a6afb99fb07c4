"""Reading the data files that travel with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def load_json(package: str, name: str) -> Any:
    """Content of `data/<name>` inside a package; the result is shared, so treat it as read-only."""
    return json.loads(resources.files(package).joinpath("data", name).read_text(encoding="utf-8"))
