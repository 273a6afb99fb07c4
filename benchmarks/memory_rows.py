"""Rows with a measured memory, as runs that the cost model can be asked about.

A row is read by the same code as `meshwright estimate --batch`; what is added here are the models that
published runs used and the catalog lacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meshwright.errors import MeshwrightError
from meshwright.model.rows import model_from_row
from meshwright.model.spec import Model
from meshwright.planner.batch import Run, read_rows, read_run

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published row: the run it describes (None where it cannot be read, with the reason) and its cells."""

    id: str
    cells: Mapping[str, str]
    run: Run | None
    why: str = ""


@cache
def extra_models() -> Mapping[str, Model]:
    """Models of published runs that are not in the catalog, by the names the rows use."""
    rows = json.loads((DATA / "models.json").read_text(encoding="utf-8"))["models"]
    models = [model_from_row(row) for row in rows]
    return {name: model for model in models for name in (model.name, *model.aliases)}


def published(name: str, settings: str | None = None) -> Iterator[Published]:
    """The rows of one data file, each as a run."""
    joined = {row["id"]: row for row in read_rows(DATA / settings)} if settings else {}
    for number, cells in enumerate(read_rows(DATA / name)):
        identity = cells.get("id") or f"{cells.get('test_case') or cells.get('model')}-{cells.get('env') or number}"
        try:
            yield Published(id=identity, cells=cells, run=read_run(cells, joined.get(identity), extra_models()))
        except MeshwrightError as error:
            yield Published(id=identity, cells=cells, run=None, why=str(error))
