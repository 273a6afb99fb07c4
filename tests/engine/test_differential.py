"""The rules and Megatron Core agree on 200 random configs (2,000 by `python benchmarks/differential.py`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "differential.py"
CONFIGS = 200


@pytest.fixture(scope="module")
def differential() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differential", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["differential"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def judgements(differential, engine):
    return list(differential.judge(engine, range(CONFIGS)))


def test_rules_and_engine_agree_on_every_config(judgements):
    apart = [(j.seed, j.rules, j.engine) for j in judgements if not j.agree]
    assert apart == []


def test_the_configs_are_worth_judging(judgements):
    """Enough start, enough are refused, for many reasons, and few are left undecided."""
    assert len(judgements) == CONFIGS
    assert sum(j.engine == "" for j in judgements) >= CONFIGS // 5
    assert sum(bool(j.engine) for j in judgements) >= CONFIGS // 5
    assert sum(j.engine is None for j in judgements) <= CONFIGS // 20
    assert len({rule for j in judgements for rule in j.rules}) >= 40


def test_a_wrong_rule_would_be_seen(differential, engine, monkeypatch):
    """Judged by a release that wants key-value heads to be a multiple of TP, verdicts differ."""
    apart = [
        seed
        for seed in range(60)
        if bool(differential.rules_verdict(differential.draw(seed), "0.15"))
        != bool(differential.rules_verdict(differential.draw(seed), "0.16.1"))
    ]
    assert apart
    monkeypatch.setattr(differential.importlib.metadata, "version", lambda _: "0.15")
    judged = differential.judge(engine, range(apart[0], apart[0] + 1))
    assert [judgement.agree for judgement in judged] == [False]
