"""Short answers say the same as the whole ones, whatever the model."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.mcp.answers import KINDS
from meshwright.mcp.questions import read_question


def ask(tool: str, **given: object) -> dict[str, object]:
    return dict(KINDS[tool](read_question(tool, given)))


@pytest.mark.parametrize(
    ("model", "gpus"),
    [
        ("deepseek-v3", "1024xH100"),
        ("deepseek-v3", "64xH100"),
        ("qwen3-next-80b-a3b", "64xGB200"),
        ("llama-3.1-405b", "512xB200"),
    ],
)
def test_plans_stay_below_four_kilobytes(model: str, gpus: str) -> None:
    assert len(json.dumps(ask("plan", model=model, gpus=gpus))) < 4096


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("plan", {"model": "qwen3-30b-a3b", "gpus": "16xH100", "ep": 8, "gbs": 512, "sp": False}),
        ("estimate", {"model": "llama3-70b", "gpus": "64xH100", "tp": 4, "pp": 4, "recompute": "full"}),
        ("fit", {"model": "llama-3.2-1b", "gpu": "H100", "seq_length": 4096}),
    ],
)
def test_the_command_beside_an_answer_gives_the_same_layout(tool: str, given: dict[str, object]) -> None:
    answer = ask(tool, **given)
    words = shlex.split(str(answer["command"]))
    assert words[:2] == ["meshwright", tool]
    whole = json.loads(CliRunner().invoke(app, [*words[1:], "--json"]).stdout)
    best, mine = (whole, answer) if tool == "estimate" else (whole["plans"][0], answer["plans"][0])
    for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "mbs"):
        assert mine[name] == best["layout"][name]
    assert mine["peak_gib"] == round(best["memory"]["peak_bytes"] / 1024**3, 1)
    assert mine["step_seconds"] == pytest.approx(best["time"]["step_seconds"], rel=0.005)


def test_groups_of_one_kind_are_listed_whole_where_they_are_few() -> None:
    """The worked example of RankGenerator: 16 ranks, TP2 CP2 PP2, order tp-cp-ep-dp-pp."""
    row = ask("ranks", world_size=16, tp=2, cp=2, pp=2, ep=4, group="cp")
    assert row["groups"]["cp"] == ["0,2", "1,3", "4,6", "5,7", "8,10", "9,11", "12,14", "13,15"]
    assert len(json.dumps(ask("ranks", world_size=16384, tp=8, group="tp"))) < 4096


def test_rules_are_found_by_words() -> None:
    row = ask("explain", search="sequence parallelism experts")
    assert "moe-tp-needs-sp" in {one["rule"] for one in row["rules"]}
