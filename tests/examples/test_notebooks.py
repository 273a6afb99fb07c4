"""The example notebooks run from top to bottom, and show what they promise."""

from __future__ import annotations

import ast
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last expression is what it shows."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows_pictures(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run("".join(cell["source"]), names) for cell in cells(path, "code")]
    drawn = [value._repr_svg_() for value in shown if hasattr(value, "_repr_svg_")]
    assert len(drawn) >= 4
    assert all("<svg" in one for one in drawn)
    assert shown[-1] is True  # the answer that was put back from JSON equals the first
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output_and_is_well_formed(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert (data["nbformat"], data["metadata"]["language_info"]["name"]) == (4, "python")
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(path, "code"))
    ids = [cell["id"] for cell in data["cells"]]
    assert len(set(ids)) == len(ids)
    assert cells(path, "markdown")[0]["source"][0].startswith("# ")
    if find_spec("nbformat"):
        import nbformat

        nbformat.validate(nbformat.from_dict(data))


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind
    ]
