"""What is generated is what is committed, and what the README shows is what the commands print."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rule_pages_are_those_of_the_rule_objects():
    docs = tool("generate_docs")
    there = {path.name: path.read_text() for path in docs.FOLDER.glob("*.md")}
    assert there == docs.pages(), "run: python tools/generate_docs.py"


README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", README, re.S)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_readme_shows_real_output(command, shown):
    readme = tool("refresh_readme")
    printed = readme.output_of(command)
    assert readme.without_times(printed) == readme.without_times(shown), "run: python tools/refresh_readme.py"


def test_no_path_of_a_machine_is_committed():
    kinds = (".py", ".md", ".toml", ".json", ".csv", ".yaml", ".yml", ".txt", "Makefile")
    found = []
    for path in [
        *(ROOT / "src").rglob("*"),
        *(ROOT / "docs").rglob("*"),
        ROOT / "README.md",
        ROOT / "Makefile",
    ]:
        if path.is_file() and path.name.endswith(kinds) and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [
                f"{path}: {hit}" for hit in re.findall(r"(?<![\w.$}])/(?:root|home/\w+|work)/\w+", text)
            ]
    assert not found
