"""A few random plans through `verify` (30 of each by `python benchmarks/verify_random.py`)."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "verify_random.py"
WANTED = {"valid": 3, "refused": 3, "miscomputes": 1}
MODELS = ("llama-3-8b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-9b")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_random", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verify_random"] = module
    spec.loader.exec_module(module)
    return module


def test_the_engine_says_of_random_plans_what_our_rules_say(script, engine):
    judged = [script.judge(engine, plan) for plan in script.plans(random.Random(5), MODELS, WANTED)]
    assert len(judged) == sum(WANTED.values())
    assert [(one.words, one.engine) for one in judged if not one.agrees] == []


def test_a_plan_that_trains_wrongly_fails_with_our_rule_beside_what_was_seen(script, engine):
    (plan,) = script.plans(random.Random(2), ("mixtral-8x7b",), {"miscomputes": 1})
    level = script.judge(engine, plan).verification.levels[-1]
    assert "off that of one process" in level.why
    assert "our rules: ep=1 with etp=" in level.why
