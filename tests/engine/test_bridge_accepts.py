"""Megatron Bridge itself takes what is written for it: overrides, YAML, and its validation of the whole."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.wheels import unpacked
from tests.engine.written_plans import PLANS, plan

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.write import write
from meshwright.verify.process import child_environment, missing_packages

pytestmark = pytest.mark.engine

BRIDGE, CORE = "0.6.2", "0.19.2"
JUDGE = Path(__file__).with_name("bridge_judge.py")


def questions(case: str) -> list[dict[str, Any]]:
    """What the written script and the written YAML ask of Bridge."""
    cluster = parse_cluster(PLANS[case][1])
    files = write("megatron-bridge", plan(case))
    text = files["train.sh"]
    exported = dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
    words = shlex.split(text[text.index("torchrun ") :].replace("\\\n", " "))
    recipe = words[words.index("--recipe") + 1]
    overrides = words[words.index("--recipe") + 2 :]
    ask = [word.partition("=")[0].lstrip("+") for word in overrides]
    ask = [name for name in ask if name != "mixed_precision"] + ["data_parallel_size"]
    common = {"recipe": recipe, "world": cluster.world, "env": exported, "ask": ask}
    return [
        {**common, "overrides": overrides, "yaml": ""},
        {**common, "overrides": [], "yaml": files["overrides.yaml"]},
    ]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[dict[str, Any]]]:
    """Bridge's word on every plan; one process for all, for it takes long to start."""
    pytest.importorskip("hydra", reason="hydra-core is not installed: pip install 'meshwright[dev]'")
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    places = [unpacked("megatron-bridge", BRIDGE), unpacked("megatron-core", CORE)]
    environment = child_environment()
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, places), environment["PYTHONPATH"]])
    asked = {case: questions(case) for case in PLANS}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(JUDGE)],
        input=json.dumps([question for pair in asked.values() for question in pair]),
        capture_output=True, text=True, timeout=600, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    replies = iter(json.loads(done.stdout))
    return {case: [next(replies) for _ in pair] for case, pair in asked.items()}


@pytest.mark.parametrize("case", PLANS)
def test_bridge_refuses_nothing(verdicts, case: str) -> None:
    assert [reply["refusal"] for reply in verdicts[case]] == ["", ""]


DEGREES = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}  # fmt: skip


@pytest.mark.parametrize("case", PLANS)
def test_bridge_ends_with_the_layout_that_was_meant(verdicts, case: str) -> None:
    _, gpus, job, layout, _ = PLANS[case]
    for reply in verdicts[case]:
        values = reply["values"]
        found = {
            short: values[f"model.{name}"] for name, short in DEGREES.items() if f"model.{name}" in values
        }
        assert found == {short: getattr(layout, short) for short in found}
        assert {"tp", "pp", "cp"} <= set(found)
        assert values["data_parallel_size"] == layout.dp(parse_cluster(gpus).world)
        assert values["train.global_batch_size"] == job.global_batch
        assert values["dataset.seq_length"] == job.seq_length


def test_a_word_that_bridge_does_not_have_is_refused() -> None:
    """The judge is awake: it refuses what no configuration has."""
    pytest.importorskip("hydra", reason="hydra-core is not installed: pip install 'meshwright[dev]'")
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    places = [unpacked("megatron-bridge", BRIDGE), unpacked("megatron-core", CORE)]
    environment = child_environment()
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, places), environment["PYTHONPATH"]])
    base = {"recipe": "llama3_8b_pretrain_config", "world": 8, "env": {}, "ask": [], "yaml": ""}
    asked = [
        {**base, "overrides": ["model.tensor_parallel=2"]},
        {**base, "overrides": ["model.tensor_model_parallel_size=3"]},
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(JUDGE)], input=json.dumps(asked), capture_output=True, text=True,
        timeout=600, env=environment, check=False,
    )  # fmt: skip
    unknown, illegal = json.loads(done.stdout)
    assert "tensor_parallel" in unknown["refusal"]
    assert "not divisible" in illegal["refusal"]
