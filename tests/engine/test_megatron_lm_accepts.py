"""Megatron-LM's own parser, validation and model configuration take what is written for it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.wheels import unpacked
from tests.engine.written_plans import PLANS, plan

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.write import write
from meshwright.verify.process import child_environment, missing_packages

pytestmark = pytest.mark.engine

JUDGE = Path(__file__).parents[2] / "benchmarks" / "megatron_lm_judge.py"
VERSIONS = ("0.17.1", "0.19.2")


def question(case: str) -> dict[str, object]:
    text = write("megatron-lm", plan(case))["train.sh"]
    exported = {
        name: value.strip("'") for name, value in re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE)
    }
    words = shlex.split(text[text.index("torchrun ") :].replace("\\\n", " "))
    words = words[words.index("pretrain_gpt.py") + 1 :]
    cluster = parse_cluster(PLANS[case][1])
    capability = [10, 0] if "B200" in cluster.gpu.name else [9, 0]
    return {"world": cluster.world, "env": exported, "words": words, "capability": capability}


@pytest.fixture(scope="module", params=VERSIONS)
def refusals(request) -> dict[str, str]:
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    environment = child_environment()
    place = unpacked("megatron-core", request.param)
    environment["PYTHONPATH"] = os.pathsep.join([str(place), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(JUDGE)], input=json.dumps([question(case) for case in PLANS]),
        capture_output=True, text=True, timeout=600, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(PLANS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", PLANS)
def test_megatron_lm_refuses_nothing(refusals, case: str) -> None:
    if "invalid choice: 'full_iteration'" in refusals[case]:
        pytest.skip("this release spells graphs of the whole iteration otherwise")
    if "invalid choice: 'yarn'" in refusals[case]:
        pytest.skip("this release has no YaRN for ordinary attention; the script says so")
    assert refusals[case] == ""
