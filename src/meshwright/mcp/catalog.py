"""Resources: what is known by name, as small JSON, and the rules as pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import QuestionError

SCHEME = "meshwright://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """One kind of thing: a list, and a page for each by its name."""

    name: str
    title: str
    one: str
    """What a page holds."""
    key: str
    kind: str
    """Media type of a page."""


SHELVES: Mapping[str, Shelf] = {
    shelf.name: shelf
    for shelf in (
        Shelf(
            name="models", title="Models known by name", key="name", kind="application/json",
            one="A model: parameters, its layers, and where the figures come from",
        ),
        Shelf(
            name="gpus", title="GPUs known by name", key="name", kind="application/json",
            one="A GPU: memory, bandwidths, peaks, with sources",
        ),
        Shelf(
            name="rules", title="Rules of layouts", key="rule", kind="text/plain",
            one="A rule: what must hold, why, an example, the fix, the source",
        ),
    )
}  # fmt: skip


def read(uri: str) -> tuple[str, str]:
    """(text, media type) of a resource; QuestionError with the nearest names where there is none."""
    place, _, name = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or place not in SHELVES:
        known = ", ".join(f"{SCHEME}{shelf}" for shelf in SHELVES)
        raise QuestionError(f"there is no resource {uri[:120]!r}; there are {known}")
    if not name:
        return _LISTS[place](), "application/json"
    return _PAGES[place](name), SHELVES[place].kind


def _models() -> str:
    import meshwright as mw

    rows = [
        {"name": row["name"], "parameters_b": _billions(row["parameters"]),
         "active_b": _billions(row["active_parameters"])}
        for row in mw.models()
    ]  # fmt: skip
    return _json(rows)


def _gpus() -> str:
    import meshwright as mw

    names = ("name", "architecture", "usable_memory_bytes", "gpus_per_node", "nvlink_domain")
    return _json([{name: row[name] for name in names} for row in mw.gpus()])


def _rules() -> str:
    import meshwright as mw

    return _json([{"rule": name, "severity": severity, "must": must} for name, severity, must in mw.rules()])


def _model(name: str) -> str:
    import meshwright as mw
    from meshwright.model import catalog
    from meshwright.model.serial import to_dict

    found = catalog.find(name)
    row = next((dict(row) for row in mw.models() if row["name"] == found.name), {"name": found.name})
    return _json({**row, "description": to_dict(found)})


def _gpu(name: str) -> str:
    import meshwright as mw
    from meshwright.cluster.catalog import find_gpu

    found = find_gpu(name).name
    return _json(next(row for row in mw.gpus() if row["name"] == found))


def _rule(name: str) -> str:
    import meshwright as mw

    return str(mw.explain(name))


_LISTS = {"models": _models, "gpus": _gpus, "rules": _rules}
_PAGES = {"models": _model, "gpus": _gpu, "rules": _rule}


def _billions(value: Any) -> float | None:
    return None if value is None else round(float(value) / 1e9, 2)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
