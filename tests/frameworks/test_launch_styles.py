"""Launch scripts in the styles of the frameworks' own examples: values and verdicts as worked out by hand.

For scripts that start torchrun themselves, bash is the judge as well: it runs them with a stand-in for
torchrun, and what that is handed must be what was read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meshwright.frameworks.check import check_readings
from meshwright.frameworks.compare import PATHS
from meshwright.frameworks.read import read_command, read_files
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.spelling import short_names

FOLDER = Path(__file__).parent / "launch"
TRUTH: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text())["scripts"]
RUN_BY_BASH = (
    "01_gpt3_175b_distributed.sh", "02_llama3_8b_h100_fp8.sh", "03_mixtral_8x7b_distributed.sh",
    "04_deepseek_v3_pai.sh", "12_sweep_tuples.sh", "13_getopts_while.sh", "15_moe_parallel_folding.sh",
    "19_megatron_functions.sh", "23_torchrun_standalone_debug.sh", "27_getopts.sh", "32_nested_grid.sh",
    "36_bert_340m.sh", "37_t5_220m.sh", "38_mamba_hybrid.sh", "40_llava_pretrain.sh",
    "41_optionloop_ternary.sh", "42_dotenv.sh", "44_printf_mapfile.sh", "47_elastic.sh", "49_mixtral_etp.sh",
    "59_unusual_quoting.sh",
    "61_recompute_distopt.sh", "62_moe_no_sp.sh", "63_few_microbatches.sh",
)  # fmt: skip


@pytest.mark.parametrize("file", TRUTH)
def test_values_and_verdict(file: str) -> None:
    truth = TRUTH[file]
    report = check_readings(read_files([FOLDER / file]))
    assert [result.reading.framework for result in report.results] == [truth["framework"]] * len(
        truth["runs"]
    )
    found = [
        {"world": result.layout()["world"]}
        | {n: result.resolved[n].value for n in short_names() if n in result.resolved}
        for result in report.results
    ]
    asked = [
        {name: run.get(name) for name in wanted} for run, wanted in zip(found, truth["runs"], strict=True)
    ]
    assert asked == truth["runs"]
    assert report.verdict == truth["verdict"], [f.message for r in report.results for f in r.findings]


def test_every_script_has_its_truth() -> None:
    assert sorted(path.name for path in FOLDER.glob("[0-9]*")) == sorted(TRUTH)


STAND_IN = """#!/bin/bash
printf '%s\\0' "$@" >> "$RECORD"
printf '\\1' >> "$RECORD"
"""


def started_by_bash(file: str, folder: Path) -> list[list[str]]:
    """Arguments of every torchrun that bash starts for a script (a copy, with a stand-in on the path)."""
    work = folder / "work"
    shutil.copytree(FOLDER, work)
    (work / "pretrain_gpt.py").touch()
    programs = folder / "bin"
    programs.mkdir()
    stand_in = programs / "torchrun"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    record = folder / "record"
    record.touch()
    environment = {"PATH": f"{programs}:{os.defpath}", "RECORD": str(record), "HOME": str(folder)}
    subprocess.run(
        ["bash", file], cwd=work, env=environment, capture_output=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    runs = record.read_bytes().decode().split("\1")[:-1]
    return [run.split("\0")[:-1] for run in runs]


def said(reading: Reading) -> dict[str, Any]:
    """Options without paths: empty arguments of a script swallow what follows them there."""
    paths = PATHS | {"data_cache_path"}
    return {name: value.value for name, value in reading.options.items() if name not in paths}


@pytest.mark.parametrize("file", RUN_BY_BASH)
def test_bash_hands_over_what_was_read(file: str, tmp_path: Path) -> None:
    started = started_by_bash(file, tmp_path)
    assert started
    real = [read_command(["torchrun", *words]) for words in started]
    ours = read_files([FOLDER / file])
    assert [said(reading) for reading in ours] == [said(reading) for (reading,) in real]
    for reading, (judged,) in zip(ours, real, strict=True):
        assert reading.launcher.world == judged.launcher.world or (
            reading.launcher.world is not None
            and judged.launcher.world is not None
            and reading.launcher.world.value == judged.launcher.world.value
        )
