"""What scripts and programs rely on: nothing that was recorded is gone or has become something else."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("contract")
HINT = "a change of major version, or a mistake; see docs/versioning.md, then python tools/update_contract.py"


@cache
def contract() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_contract", ROOT / "tools/update_contract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def now() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return contract().answers(), contract().names()


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_no_answer_lost_a_key_or_changed_a_type() -> None:
    old, _ = contract().recorded()
    assert old.keys() == contract().QUESTIONS.keys()
    assert contract().broken_answers(old, now()[0]) == [], HINT


def test_no_public_name_lost_a_parameter_an_attribute_or_itself() -> None:
    _, old = contract().recorded()
    assert {"plan", "fit", "estimate", "check", "ranks", "advise", "write", "verify"} <= old.keys()
    assert contract().broken_names(old, now()[1]) == [], HINT


def test_every_public_name_is_recorded() -> None:
    import meshwright

    _, old = contract().recorded()
    assert {*meshwright.__all__} - {"__version__"} == old.keys(), "python tools/update_contract.py"


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        ("plans", None, "plan: plans is gone"),
        ("ties", ["string"], "plan: ties was number and may now be string"),
    ],
)
def test_a_lost_key_and_a_changed_type_are_seen(path: str, change: list[str] | None, says: str) -> None:
    old, _ = contract().recorded()
    new = copy.deepcopy(old)
    if change is None:
        del new["plan"][path]
    else:
        new["plan"][path] = change
    assert contract().broken_answers(old, new) == [says]


def test_a_lost_or_newly_required_parameter_is_seen() -> None:
    _, old = contract().recorded()
    new = copy.deepcopy(old)
    taken = new["plan"]["parameters"]
    new["plan"]["parameters"] = [one for one in taken if one["name"] != "top"] + [
        {"name": "colour", "kind": "keyword_only", "optional": False}
    ]
    assert contract().broken_names(old, new) == [
        "plan(top) is gone",
        "plan(colour) is new and must be given",
    ]


def test_public_names_stay_functions_when_rooms_of_that_name_are_imported() -> None:
    code = (
        "import meshwright as mw; mw.estimate('llama3-8b', '8xH100', mw.Options(tp=2)); "
        "import meshwright.verify.process; "
        "bad = [n for n in mw._WHERE if type(getattr(mw, n)).__name__ == 'module']; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
