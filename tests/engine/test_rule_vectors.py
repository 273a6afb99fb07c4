"""57 pairs of configs that were run on the real package: one refused, one accepted, each with its reason.

The reasons in the data are the package's own words, `NotImplementedError: ... yet` among them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.layout.rules import View, examine, rule
from meshwright.verify.process import child_environment, missing_packages

PAIRS = json.loads((Path(__file__).parent / "data" / "rule_vectors.json").read_text())
JUDGE = Path(__file__).with_name("config_judge.py")
BASE = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "bf16": True,
    "add_bias_linear": False,
}
LATER = {
    "flex-needs-expert-group": "token_dispatcher.py",
    "cp-comm-type-list-index": "transformer_layer.py",
}
"""Rules that are raised when the model is built, and where: the pairs stop at the config."""


def errors(fields: dict[str, Any], version: str | None) -> set[str]:
    options = {**BASE, **fields}
    if options.get("pipeline_model_parallel_size", 1) > 1:
        options.setdefault("pipeline_dtype", "bf16")
    found = examine(View.of(options, framework="megatron-core", version=version)).findings
    return {finding.rule for finding in found if finding.severity == "error"} - set(LATER)


def test_there_are_57_pairs():
    assert len(PAIRS) == 57
    assert {pair["passing_result"] for pair in PAIRS} == {"ok"}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["name"])
def test_the_rules_refuse_one_and_accept_the_other(pair):
    assert errors(pair["violating"], None)
    assert errors(pair["passing"], None) == set()


def test_what_is_left_to_later_really_comes_later():
    for name, place in LATER.items():
        assert place in rule(name).source


@pytest.fixture(scope="module")
def judged() -> list[dict[str, str]]:
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    configs = [pair[side] for pair in PAIRS for side in ("violating", "passing")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(JUDGE)],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        timeout=300,
        env=child_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    replies: list[dict[str, str]] = json.loads(done.stdout)
    return replies


@pytest.mark.engine
def test_the_installed_release_judges_the_pairs_as_the_rules_of_its_version_do(judged):
    """Configs with fields of later releases are left out; there must be few of them."""
    version = installed()
    configs = [(pair["name"], side, pair[side]) for pair in PAIRS for side in ("violating", "passing")]
    apart, newer = [], set()
    for (name, side, fields), reply in zip(configs, judged, strict=True):
        if "unknown" in reply:
            newer.add(reply["unknown"])
        elif bool(errors(fields, version)) != ("error" in reply):
            apart.append((name, side, errors(fields, version), reply))
    assert apart == []
    assert len(newer) <= 6, newer


def installed() -> str:
    import importlib.metadata

    return importlib.metadata.version("megatron-core")
