"""Rows with a measured memory, as runs that the cost model can be asked about.

A row is read by the same code as `meshwright estimate --batch`. Rows of Megatron-LM's test runs carry their
arguments in a table of their own, joined here; models that published runs used and the catalog lacks come
from the package's model/data/beside.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meshwright.errors import MeshwrightError
from meshwright.facts import load_json
from meshwright.model.rows import model_from_row
from meshwright.model.spec import Model
from meshwright.planner.batch import Run, read_rows, read_run

DATA = Path(__file__).parent / "data"
GIB = 1024**3

ROW_NAMES = {
    "llama-1B": "llama-1b-nanotron",
    "GPT-22B (2205.05198)": "gpt-22b-(2205.05198)",
    "GPT-530B (2205.05198)": "gpt-530b-(2205.05198)",
    "GPT-1T (2205.05198)": "gpt-1t-(2205.05198)",
}
"""Names in the rows of models that the package's model/data/beside.json describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measured memory and the run it belongs to.

    what      "last" (allocated peak of the last rank), "allocated", "reserved" or "card" (all of the process)
    measured  bytes
    complete  the configuration is stated in full
    run       None where the row cannot be read, with the reason in `why`
    """

    id: str
    source: str
    family: str
    what: str
    measured: float
    complete: bool
    ran: bool
    cells: Mapping[str, str]
    run: Run | None
    why: str = ""


@cache
def extra_models() -> Mapping[str, Model]:
    """Models of published runs that are not in the catalog, by the names the rows use."""
    rows = load_json("meshwright.model", "beside.json")["models"]
    models = [model_from_row(row) for row in rows]
    named = {name: model for model in models for name in (model.name, *model.aliases)}
    return named | {alias: named[name] for alias, name in ROW_NAMES.items() if name in named}


def all_rows() -> Iterator[Measured]:
    """Every measured row: memory.csv, then test runs that are in the table of arguments alone."""
    arguments = {_ci_id(row): row for row in read_rows(DATA / "megatron_ci_memory.csv")}
    seen = set()
    for cells in read_rows(DATA / "memory.csv"):
        seen.add(cells["id"])
        yield _row({**arguments.get(cells["id"], {}), **{k: v for k, v in cells.items() if v}})
    for name, cells in arguments.items():
        if name not in seen and cells["mem_max_alloc_bytes"] and cells["mem_alloc_bytes_last"]:
            yield _row({**cells, "id": name, "framework": "megatron-lm (CI)", "model": cells["test_case"]})


def _ci_id(row: Mapping[str, str]) -> str:
    return f"mlmci-{row['test_case'].replace('/', '-')}-{row['env']}"


def _row(cells: Mapping[str, str]) -> Measured:
    what, measured = _measured(cells)
    run, why = None, excluded(cells)
    if not why:
        try:
            run = read_run(cells, models=extra_models())
        except MeshwrightError as error:
            why = str(error)
    family = cells.get("model_family") or f"ci-{cells['model'].split('/')[0]}"
    return Measured(
        id=cells["id"],
        source=cells["framework"],
        family=family,
        what=what,
        measured=measured,
        complete=cells.get("config_complete", "") in ("yes", "yes (args); GPU count known")
        or ("config_complete" not in cells and bool(cells.get("gpus"))),
        ran=cells.get("outcome", "ok") == "ok",
        cells=cells,
        run=run,
        why=why,
    )


def _measured(cells: Mapping[str, str]) -> tuple[str, float]:
    """What was measured, and its bytes."""
    if cells.get("mem_max_alloc_bytes"):
        return "last", float(cells["mem_max_alloc_bytes"])
    if cells.get("peak_alloc_gib"):
        value, kind = float(cells["peak_alloc_gib"]), cells.get("mem_kind", "")
        # Megatron Bridge logs memory in decimal gigabytes, on the last rank
        bridge = cells["framework"] == "megatron-bridge" and "GiB" not in kind
        return ("last", value * 1e9) if bridge else ("allocated", value * GIB)
    kind = "card" if "nvidia-smi" in cells.get("mem_kind", "") else "reserved"
    return kind, float(cells["peak_reserved_gib"]) * GIB


def excluded(cells: Mapping[str, str]) -> str:
    """Why a row is no measurement of a training step that the model describes; empty where it is one."""
    reasons = json.loads((DATA / "memory_exclusions.json").read_text(encoding="utf-8"))["rows"]
    name = cells["id"]
    return next((reason for prefix, reason in reasons.items() if name.startswith(prefix)), "")
