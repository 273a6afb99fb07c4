"""The package that people install: complete, typed, and running without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.package, pytest.mark.xdist_group("package")]
PACKAGE = ROOT / "src" / "meshwright"
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")


def run(*words: str | Path, **environment: str) -> str:
    """Standard output of a program; what it says on standard error where it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=300,
        env={**clean, "COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    pytest.importorskip("build")
    checkout = tmp_path_factory.mktemp("checkout")
    for name in NEEDED:
        shutil.copy(ROOT / name, checkout / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", checkout / "src", ignore=ignored)
    run(sys.executable, "-m", "build", "--no-isolation", checkout)
    return checkout / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel; dependencies come from the one of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    beside = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (own / "dependencies.pth").write_text("\n".join(beside), encoding="utf-8")
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    return folder / "bin"


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("meshwright/")}
    there = {
        f"meshwright/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there
    assert "meshwright/py.typed" in inside


def test_the_source_distribution_builds_and_names_its_licences(built: Path) -> None:
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "src/meshwright/_version.py"} <= names


def test_the_version_stands_in_one_place(wheel: Path, installed: Path) -> None:
    (version,) = re.findall(r'__version__ = "([^"]+)"', (PACKAGE / "_version.py").read_text(encoding="utf-8"))
    assert wheel.name == f"meshwright-{version}-py3-none-any.whl"
    assert run(installed / "meshwright", "--version").strip() == f"meshwright {version}"


def test_the_installed_program_plans(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import meshwright; print(meshwright.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parent)
    screen = run(installed / "meshwright", "plan", "llama3-8b", "--gpus", "16xH100")
    assert "llama-3-8b" in screen
    assert "MFU" in screen
    report = tmp_path / "plan.html"
    run(installed / "meshwright", "plan", "llama3-8b", "--gpus", "16xH100", "--html", report)
    assert "<svg" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(installed: Path, shell: str) -> None:
    program = installed / "meshwright"
    script = run(program, _MESHWRIGHT_COMPLETE=f"source_{shell}")
    assert "_MESHWRIGHT_COMPLETE=complete_" + shell in script
    typed = {"COMP_WORDS": "meshwright esti", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "meshwright esti",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    assert "estimate" in run(program, _MESHWRIGHT_COMPLETE=f"complete_{shell}", **typed)


SOURCES = {
    r"[Mm]egatron-(LM|core)": "Megatron-LM",
    r"Megatron[- ]Bridge": "Megatron Bridge",
    r"aiconfigurator": "aiconfigurator",
    r"transformers \d": "Transformers",
    r"litgpt": "LitGPT",
    r"DeepEP": "DeepEP",
    r"torchtitan": "torchtitan",
    r"ms-swift": "ms-swift",
    r"verl ": "verl",
    r"dgxc": "dgxc-benchmarking",
    r"llm-foundry": "llm-foundry",
    r"internevo": "InternEvo",
    r"nanotron": "nanotron",
    r"mlperf": "MLPerf",
    r"automodel": "Automodel",
    r"simumax": "SimuMax",
}
"""What sources of data files are called, and the name under which NOTICE attributes them."""


@pytest.mark.parametrize(("mention", "name"), SOURCES.items())
def test_projects_whose_figures_are_taken_over_are_attributed(mention: str, name: str) -> None:
    data = [path for path in PACKAGE.rglob("data/*") if path.suffix in (".json", ".csv", ".yaml")]
    data += list((ROOT / "benchmarks/data").glob("*"))
    assert any(re.search(mention, path.read_text(encoding="utf-8")) for path in data), "no longer mentioned"
    assert name in (ROOT / "NOTICE").read_text(encoding="utf-8")
