"""`meshwright check` over directories, patterns and everything that a commit hook hands over."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

ROOT = Path(__file__).parents[2]
GOOD = "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
BROKEN = GOOD + "--tensor-model-parallel-size 3\n"


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def verdict(*words: str) -> tuple[str, int]:
    done = run("check", *words, "--json")
    return json.loads(done.stdout)["verdict"], done.exit_code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "good.sh").write_text(GOOD)
    (tmp_path / "deep" / "er" / "good.sbatch").write_text("#!/bin/bash\n" + GOOD)
    (tmp_path / ".hidden" / "broken.sh").write_text(BROKEN)
    (tmp_path / "compose.yaml").write_text("services: {web: {image: nginx}}\n")
    (tmp_path / "README.md").write_text("no script\n")
    return tmp_path


def test_a_directory_is_read_all_the_way_down(folder):
    assert verdict(str(folder)) == ("ok", 0)
    done = json.loads(run("check", str(folder), "--json").stdout)
    assert [Path(run["sources"][0]).name for run in done["runs"]] == ["good.sh", "good.sbatch"]


def test_a_directory_may_be_named_from_beside_it(folder, monkeypatch):
    monkeypatch.chdir(folder / "deep")
    assert verdict("..") == ("ok", 0)


def test_patterns_name_files_anywhere(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for pattern in ("*.sh", "**/*.sbatch", f"{folder}/g*.sh"):
        assert len(json.loads(run("check", pattern, "--json").stdout)["runs"]) == 1
    none = run("check", "*.toml").exception
    assert isinstance(none, QuestionError)
    assert "*.toml: there is no file" in str(none)


def test_one_bad_file_among_many_makes_the_whole_bad(folder):
    (folder / "deep" / "broken.sh").write_text(BROKEN)
    assert verdict(str(folder)) == ("invalid", 1)
    text = run("check", str(folder)).stdout
    assert "3 runs: 2 ok, 1 invalid" in text


def test_a_file_that_is_named_twice_is_read_once(folder):
    done = json.loads(run("check", str(folder), str(folder / "good.sh"), "--json").stdout)
    assert len(done["runs"]) == 2


def test_thousands_of_files_show_how_far_it_is(folder, monkeypatch):
    from meshwright.api.checking import check

    for number in range(3000):
        (folder / "deep" / f"values{number}.yaml").write_text("image: nginx\n")
    seen = []
    report = check([folder], progress=lambda done, whole: seen.append((done, whole)))
    assert seen[-1] == (3003, 3003)
    assert len(report.results) == 2


def hook() -> dict:
    (entry,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return entry


def test_the_commit_hook_names_a_command_that_exists():
    program, *words = shlex.split(hook()["entry"])
    assert program == "meshwright"
    assert run(*words, "--help").exit_code == 0
    assert re.search(hook()["files"], "scripts/train.sbatch")


def test_the_commit_hook_passes_what_is_no_training_and_stops_what_is_broken(folder):
    _, *words = shlex.split(hook()["entry"])
    (folder / "lint.sh").write_text("ruff check .\n")
    other = [str(folder / "compose.yaml"), str(folder / "lint.sh")]
    assert run(*words, *other).exit_code == 0
    assert run(*words, *other, str(folder / "good.sh")).exit_code == 0
    (folder / "broken.sh").write_text(BROKEN)
    assert run(*words, *other, str(folder / "broken.sh")).exit_code == 1


def test_without_the_hook_a_named_file_must_say_something(folder):
    assert verdict(str(folder / "good.sh"), str(folder / "compose.yaml")) == ("unknown", 1)


def test_a_file_that_is_not_there_is_never_passed_over(folder):
    assert verdict("--pass-others", str(folder / "good.sh"), str(folder / "gone.sh")) == ("unknown", 1)


def test_what_we_write_for_deepspeed_checks_ok_as_a_directory_and_file_by_file(tmp_path):
    layout = ["llama3-8b", "--gpus", "16xH100", "--tp", "2"]
    done = run("write", *layout, "--to", "megatron-deepspeed", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert verdict(str(tmp_path / "out")) == ("ok", 0)
    assert verdict(*(str(path) for path in (tmp_path / "out").iterdir())) == ("ok", 0)


def test_a_deepspeed_batch_that_is_no_product_is_refused(tmp_path):
    file = tmp_path / "ds_config.json"
    content = {
        "train_batch_size": 100,
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 8,
    }
    file.write_text(json.dumps(content))
    done = run("check", str(file))
    assert done.exit_code == 1
    assert "100 is no multiple of train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps 8 = 24" in (
        done.stdout
    )
