"""The skill's questions: every answer has every element of a ground truth that others settled."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "meshwright-parallelism"
SPEC = importlib.util.spec_from_file_location("evals_run", SKILL / "evals" / "run.py")
assert SPEC is not None
assert SPEC.loader is not None
evals = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(evals)
EVALS = evals.load()
BY_MCP = [one for one in EVALS if "mcp" in one]
FACTS = json.loads((ROOT / "tests" / "planner" / "data" / "guide_examples.json").read_text(encoding="utf-8"))
KINDS = {
    "minimum-gpus", "data-parallel", "start", "size", "moe-size", "topology", "nvl72", "sequence",
    "divisibility", "memory", "cautions", "fsdp", "slurm", "verification", "ranks", "code",
}  # fmt: skip


@pytest.mark.parametrize("one", EVALS, ids=lambda one: one["id"])
def test_the_command_line_answers_whole(one: Any) -> None:
    assert evals.missing(one) == []


@pytest.mark.parametrize("one", BY_MCP, ids=lambda one: one["id"])
def test_a_tool_call_answers_whole(one: Any) -> None:
    """What an agent gets for the same question; a value at the top of the JSON is the same there."""
    from meshwright.mcp.answers import KINDS as TOOLS
    from meshwright.mcp.questions import read_question

    call = one["mcp"]
    row = TOOLS[call["tool"]](read_question(call["tool"], call["arguments"]))
    text = json.dumps(row, ensure_ascii=False).replace("\\n", " ")
    assert evals.lacking(text, call.get("elements", one.get("elements", ()))) == []
    same = {path: value for path, value in one.get("values", {}).items() if path in row}
    assert evals.wrong_values(row, call.get("values", same)) == []


def test_an_answer_that_lacks_something_is_caught() -> None:
    one = next(one for one in EVALS if one["id"] == "guide-evaluation")
    wrong = {**one, "elements": [*one["elements"], "33 GPUs"], "values": {"min_gpus": 32}, "exit_status": 1}
    assert evals.missing(wrong) == [
        "exit status 1 (it is 0)", "33 GPUs", "min_gpus = 32 (it is 16)",
    ]  # fmt: skip


def test_every_kind_of_question_is_there() -> None:
    assert len(EVALS) >= 50
    assert len({one["id"] for one in EVALS}) == len(EVALS)
    assert {one["kind"] for one in EVALS} == KINDS
    assert sum("folk_rule" in one for one in EVALS) >= 10
    for one in EVALS:
        assert one["question"]
        assert one["ground_truth"]
        assert one["source"]
        assert one.get("elements") or one.get("values")
        assert shlex.split(one["command"])[0] == "meshwright"


def degrees(one: Any) -> dict[str, int]:
    names = ("pp", "tp", "cp", "ep", "etp")
    return {name: one["mcp"]["arguments"].get(name, 1) for name in names}


def minimums() -> list[tuple[Any, dict[str, int]]]:
    return [(one, degrees(one)) for one in BY_MCP if one["kind"] == "minimum-gpus"]


def test_the_guides_minimums_are_the_ground_truths() -> None:
    truths = {tuple(found.values()): one["values"] for one, found in minimums()}
    for row in FACTS["min_gpu_examples"]:
        values = truths[tuple(row[name] for name in ("PP", "TP", "CP", "EP", "ETP"))]
        assert (values["min_gpus"], values["wrong_product"]) == (row["guide_correct"], row["guide_wrong"])


def test_the_guides_examples_of_growth_are_the_ground_truths() -> None:
    for row in FACTS["scaling"]:
        one = next(one for one in EVALS if one["id"] == f"dp-{row['world']}")
        assert list(one["values"].values()) == [row["DP"], row["EDP"]]


@pytest.mark.engine
def test_the_minimums_are_those_of_megatron_core() -> None:
    """The smallest world that initialize_model_parallel takes."""
    from meshwright.verify.process import EngineError, EngineProcess

    long = {
        "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size", "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
    }  # fmt: skip
    with EngineProcess() as engine:

        def takes(world: int, mesh: dict[str, int]) -> bool:
            try:
                engine.ask("groups", world=world, mesh=mesh)
            except EngineError:
                return False
            return True

        for one, found in minimums():
            mesh = {long[name]: value for name, value in found.items()}
            wanted = one["values"]["min_gpus"]
            smaller = range(found["pp"], wanted, found["pp"])
            assert takes(wanted, mesh), one["id"]
            assert not any(takes(world, mesh) for world in smaller), one["id"]
