"""The rules and Megatron-LM's own argument validation agree on random command lines."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from meshwright.verify.process import missing_packages

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "differential_lm.py"
COMMANDS = 60


@pytest.fixture(scope="module")
def differential_lm() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differential_lm", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["differential_lm"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def judgements(differential_lm):
    version = differential_lm.VERSION
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    if not (differential_lm.CACHE / version / "megatron" / "training" / "arguments.py").exists():
        pytest.skip(f"megatron/training is not there: python benchmarks/differential_lm.py --fetch {version}")
    return differential_lm.judge(range(COMMANDS))


def test_rules_and_arguments_agree(judgements):
    assert [(j.seed, j.rules, j.refusal) for j in judgements if not j.agree] == []


def test_the_command_lines_are_worth_judging(judgements):
    """Both verdicts occur, for many reasons, and none of them is a flag that argparse does not know."""
    refused = [j for j in judgements if j.refusal]
    assert COMMANDS // 5 <= len(refused) <= COMMANDS * 4 // 5
    assert len({name for j in judgements for name in j.rules}) >= 25
    assert not [j.refusal for j in refused if "unrecognized" in j.refusal]
