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


BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.S)
READMES = ("README.md", "README.zh-CN.md")
BLOCKS = [pair for name in READMES for pair in BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_readme_shows_real_output(command, shown):
    readme = tool("refresh_readme")
    printed = readme.output_of(command)
    assert readme.without_times(printed) == readme.without_times(shown), "run: python tools/refresh_readme.py"


def test_both_readmes_show_the_same_commands_and_sections():
    """The Chinese one asks for Chinese answers, and may show more or fewer lines of them."""
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in READMES)
    said = [re.sub(r" --lang zh| \| head -\d+", "", command) for command, _ in BLOCK.findall(chinese)]
    assert said == [command.split(" | head")[0] for command, _ in BLOCK.findall(english)]
    assert len(re.findall(r"^## ", english, re.M)) == len(re.findall(r"^## ", chinese, re.M))


def test_no_path_of_a_machine_is_committed():
    kinds = (".py", ".md", ".toml", ".json", ".csv", ".yaml", ".yml", ".txt", "Makefile")
    found = []
    for path in [
        *(ROOT / "src").rglob("*"),
        *(ROOT / "docs").rglob("*"),
        *(ROOT / name for name in READMES),
        ROOT / "Makefile",
    ]:
        if path.is_file() and path.name.endswith(kinds) and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [
                f"{path}: {hit}" for hit in re.findall(r"(?<![\w.$}])/(?:root|home/\w+|work)/\w+", text)
            ]
    assert not found
