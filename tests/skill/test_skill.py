"""The skill says nothing that the product does not have."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from meshwright.cli.main import app

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "meshwright-parallelism"
TEXT = (SKILL / "SKILL.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands
LINES = sorted(set(re.findall(r"`(meshwright [a-z][^`]*)`", TEXT)))


def test_the_front_matter_says_when_to_use_it() -> None:
    _, front, body = TEXT.split("---\n", 2)
    said = yaml.safe_load(front)
    assert said["name"] == SKILL.name
    assert 50 < len(said["description"]) < 1024
    assert said["when_to_use"]
    assert len(body.splitlines()) < 120


@pytest.mark.parametrize("line", LINES)
def test_every_command_and_option_exists(line: str) -> None:
    words = shlex.split(line.replace("[", " ").replace("]", " "))
    own = words[: words.index("--")] if "--" in words else words
    command = COMMANDS[own[1]]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    assert {word for word in own if word.startswith("--")} <= known


ASKED = {
    "advise": "advise deepseek-v3 --gpus 256 --tp 2 --pp 16 --ep 64",
    "estimate": "estimate deepseek-v3 --gpus 1024xH100 --tp 2 --pp 16 --ep 64",
    "plan": "plan llama-3.2-1b --gpus 1xH100 --top 1",
    "fit": "fit llama-3.2-1b --gpu H100",
    "check": "check - --gpus 8",
    "ranks": "ranks --world-size 8 --tp 2",
}
SCRIPT = "torchrun pretrain_gpt.py --tensor-model-parallel-size 3 --num-layers 2 --num-attention-heads 4\n"


def answer(command: str, tmp_path: Path) -> Any:
    (tmp_path / "run.sh").write_text(SCRIPT)
    words = ASKED[command].replace(" - ", f" {tmp_path / 'run.sh'} ").split()
    return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)


def paths(command: str) -> list[str]:
    """Keys that the skill names for a command: `a.b|c`, `rows[].d`."""
    said = next(block for block in re.findall(r"^- (`.*?)(?=^- `|^$|\n\n)", TEXT, re.M | re.S)
                if block.startswith(f"`{command}`:"))  # fmt: skip
    found = re.findall(r"`([^`]+)`", said.split(":", 1)[1])
    named = re.search(r"`fit` adds `(\w+)`", said)
    return [path for path in found if path != "fit" and not (named and path == named[1])]


@pytest.mark.parametrize("command", [name for name in ASKED if name != "fit"])
def test_every_json_key_exists(command: str, tmp_path: Path) -> None:
    data = answer(command, tmp_path)
    wanted = paths(command)
    assert len(wanted) >= 3
    for path in wanted:
        assert_there(data, path)


def assert_there(data: Any, path: str) -> None:
    """The key is in the JSON, or (named by itself) in a finding or in the first plan."""
    name, _, rest = path.partition(".")
    key = name.removesuffix("[]")
    inside = [data, *data.get("findings", [])[:1], *data.get("plans", [])[:1]]
    value = next((row[key] for row in inside if key in row), None)
    assert value is not None, path
    if rest:
        row = value[0] if isinstance(value, list) else value
        assert {one.removesuffix("[]") for one in rest.split("|")} - {"..."} <= set(row), path


def test_fit_adds_its_number(tmp_path: Path) -> None:
    assert answer("fit", tmp_path)["min_gpus_fitting"] >= 1


def generator() -> Any:
    """tools/generate_card.py as a module."""
    spec = importlib.util.spec_from_file_location("generate_card", ROOT / "tools" / "generate_card.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_card_is_that_of_the_tests_and_questions_that_exist() -> None:
    card, tool = yaml.safe_load((SKILL / "card.yaml").read_text(encoding="utf-8")), generator()
    assert tool.structure_of(card) == tool.structure(), "run: python tools/generate_card.py"
    for row in card["verified"]:
        assert row["outcome"].startswith("passed")
        assert row["cases"] > 0
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", str(row["date"]))
        for test in row["tests"]:
            assert_test(test)


def assert_test(test: str) -> None:
    """A test of that name is there to be collected."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if path.is_dir():
        assert list(path.glob("test_*.py")), test
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in functions if name else any(one.startswith("test_") for one in functions), test
