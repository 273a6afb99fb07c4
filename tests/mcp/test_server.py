"""What an agent gets: the same over standard input and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from meshwright.mcp.server import create_server
from meshwright.service.pool import Limits

pytestmark = pytest.mark.xdist_group("mcp")

TOOLS = ["plan", "fit", "estimate", "check", "ranks", "advise", "write", "explain"]
BROKEN = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --tensor-model-parallel-size 3 --seq-length 4096 "
    "--micro-batch-size 1 --global-batch-size 8"
)
QUESTIONS: dict[str, dict[str, Any]] = {
    "plan": {"model": "qwen3-30b-a3b", "gpus": "16xH100"},
    "fit": {"model": "llama-3.2-1b", "gpu": "H100"},
    "estimate": {"model": "deepseek-v3", "gpus": "256xH100", "tp": 2, "pp": 16, "ep": 64},
    "check": {"text": BROKEN},
    "ranks": {"world_size": 16, "tp": 2, "cp": 2, "pp": 2, "ep": 4, "rank": 5},
    "advise": {"pp": 2, "tp": 2, "cp": 1, "ep": 8, "etp": 1},
    "write": {"model": "llama3-70b", "gpus": "64xH100", "tp": 4, "pp": 4, "to": "megatron-lm"},
    "explain": {"rule": "moe-tp-needs-sp"},
}


@pytest.fixture(scope="module")
def answers(ask: Any) -> dict[str, Any]:
    """Every tool once."""

    async def each(client: Client) -> dict[str, Any]:
        return {name: await client.call_tool(name, given) for name, given in QUESTIONS.items()}

    return ask(each)


def test_every_tool_answers_small_and_structured(answers: dict[str, Any]) -> None:
    for name, answer in answers.items():
        assert not answer.is_error, answer.content
        assert json.loads(answer.content[0].text) == answer.structured_content
        assert len(answer.content[0].text) < 4096, name


def test_the_guides_evaluation_question_is_answered_by_one_call(answers: dict[str, Any]) -> None:
    row = answers["advise"].structured_content
    assert (row["min_gpus"], row["guide_min_gpus"], row["wrong_product"]) == (16, 16, 32)
    text = " ".join(row["sections"]["checklist"]["lines"])
    for element in (
        "2 * max(2, 8) = 16", "32 is not usable", "world_size / (TP * PP * CP) = 16 / (2 * 2 * 1) = 4",
        "world_size / (PP * EP * ETP) = 16 / (2 * 8 * 1) = 1", "NVLink", "sequence_parallel=True",
        "seq_length % (2 * CP) == 0", "from 8K add CP=2, from 32K CP=4-8",
    ):  # fmt: skip
        assert element in text


def test_a_layout_that_cannot_start_is_told_with_what_can(answers: dict[str, Any]) -> None:
    row = answers["estimate"].structured_content
    assert (row["valid"], row["min_gpus"]) == (False, 1024)
    assert row["findings"][0]["rule"] == "world-divides-expert-grid"
    assert "1024" in row["findings"][0]["fix"]


def test_groups_are_those_of_megatron_core(answers: dict[str, Any]) -> None:
    """Rank 5 of 16 with TP2 CP2 PP2 EP4 in the order tp-cp-ep-dp-pp, as RankGenerator lists them."""
    groups = answers["ranks"].structured_content["rank"]["groups"]
    wanted = {
        "tp": "4,5",
        "cp": "5,7",
        "dp": "1,5",
        "pp": "5,13",
        "ep": "4-7",
        "edp": "1,5",
        "dp-cp": "1,3,5,7",
    }
    assert {name: groups[name] for name in wanted} == wanted


def test_a_script_is_judged(answers: dict[str, Any]) -> None:
    row = answers["check"].structured_content
    assert row["verdict"] == "invalid"
    assert {"world-divides-dense-grid", "tp-divides-heads"} <= {one["rule"] for one in row["findings"]}


def test_a_config_is_written(answers: dict[str, Any]) -> None:
    text = "\n".join(answers["write"].structured_content["files"].values())
    assert "--tensor-model-parallel-size 4" in text
    assert "--pipeline-model-parallel-size 4" in text


WRONG = [
    ("plan", {"model": "lama3-70b", "gpus": "64xH100"}, "did you mean llama-3-70b"),
    ("plan", {"model": "llama3-70b", "gpus": "64xH1000"}, "did you mean H100"),
    ("plan", {"model": "llama3-70b", "gpus": "64"}, "of which kind"),
    ("plan", {"model": "llama3-70b"}, "gpus is missing"),
    ("plan", {"model": "llama3-70b", "gpus": "64xH100", "tpp": 4}, "unknown argument 'tpp'; did you mean tp"),
    ("plan", {"model": "llama3-70b", "gpus": "64xH100", "tp": 0}, "greater than or equal to 1, not '0'"),
    ("plan", {"model": "llama3-70b", "gpus": "64xH100", "precision": "fp7"}, "'mxfp8'"),
    ("plan", {"model": "llama3-70b", "gpus": "cluster.yaml"}, "files are not read here"),
    ("advise", {"gpus": "cluster.yaml"}, "files are not read here"),
    ("plan", {"gpus": "8xH100"}, "config.json"),
    ("plan", {"config": "{}", "gpus": "8xH100"}, "model_type"),
    ("ranks", {"world_size": 10, "tp": 4}, "8 or 12"),
    ("ranks", {"world_size": 16, "group": "tq"}, "did you mean tp"),
    ("write", {"model": "llama3-70b", "gpus": "64xH100", "tp": 4, "to": "megatronlm"}, "megatron-lm"),
    ("write", {"model": "llama3-70b", "gpus": "64xH100", "tp": 3}, "cannot start"),
    ("explain", {"rule": "tp-divides-head"}, "did you mean tp-divides-heads"),
    ("explain", {}, "rule (an id) or search (a word)"),
    ("advise", {"topics": ["memry"]}, "did you mean memory"),
    ("planner", {}, "tools are plan, fit"),
]


def test_errors_say_what_to_change(ask: Any) -> None:
    async def each(client: Client) -> list[Any]:
        return [await client.call_tool(tool, given) for tool, given, _ in WRONG]

    for answer, (tool, given, says) in zip(ask(each), WRONG, strict=True):
        assert answer.is_error, (tool, given)
        assert says in answer.content[0].text, (tool, given, answer.content[0].text)


def test_tools_are_described_with_the_names_of_the_field(ask: Any) -> None:
    async def listed(client: Client) -> Any:
        return await client.list_tools()

    tools = {tool.name: tool for tool in ask(listed).tools}
    assert list(tools) == TOOLS
    for tool in tools.values():
        assert tool.description
        assert tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False
    for name in ("plan", "estimate", "fit", "write", "advise"):
        said = tools[name].input_schema["properties"]
        assert said["tp"]["description"].startswith("tensor_model_parallel_size")
        assert said["etp"]["description"].startswith("expert_tensor_parallel_size")
    assert "gbs" in tools["plan"].input_schema["properties"]
    assert len("".join(tool.model_dump_json(exclude_none=True) for tool in tools.values())) < 20_000


def test_megatrons_spelling_is_taken_too(ask: Any) -> None:
    async def both(client: Client) -> list[Any]:
        long = {
            "pipeline_model_parallel_size": 2,
            "tensor_model_parallel_size": 2,
            "context_parallel_size": 1,
            "expert_model_parallel_size": 8,
            "expert_tensor_parallel_size": 1,
        }
        return [await client.call_tool("advise", one) for one in (QUESTIONS["advise"], long)]

    short, long = ask(both)
    assert short.structured_content == long.structured_content


def test_resources_are_read_by_name(ask: Any) -> None:
    async def read(client: Client) -> Any:
        lists = [one.uri for one in (await client.list_resources()).resources]
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        pages = {
            uri: (await client.read_resource(uri)).contents[0].text
            for uri in (*lists, "meshwright://models/deepseek-v3", "meshwright://gpus/H100",
                        "meshwright://rules/ep-divides-experts")
        }  # fmt: skip
        try:
            await client.read_resource("meshwright://gpus/H10")
        except MCPError as error:
            return lists, templates, pages, str(error)
        raise AssertionError("a GPU that does not exist was found")

    lists, templates, pages, error = ask(read)
    assert lists == ["meshwright://models", "meshwright://gpus", "meshwright://rules"]
    assert templates == [f"{one}/{{{key}}}" for one, key in zip(lists, ("name", "name", "rule"), strict=True)]
    assert json.loads(pages["meshwright://models/deepseek-v3"])["parameters"] > 670e9
    assert json.loads(pages["meshwright://gpus/H100"])["nvlink_domain"] == 8
    assert "EP" in pages["meshwright://rules/ep-divides-experts"]
    assert "did you mean H100" in error


def test_nothing_of_this_machine_is_read_or_run(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.sh").write_text("TP=2\n")
    mark = tmp_path / "ran"
    run = f"touch {mark}\ntorchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $TP\n"

    async def each(client: Client) -> list[Any]:
        scripts = [f"source {tmp_path}/secret.sh\n{run}", f"TP=$(cat {tmp_path}/secret.sh)\n{run}"]
        checks = [await client.call_tool("check", {"text": text}) for text in scripts]
        return [*checks, await client.call_tool("plan", {"model": str(tmp_path), "gpus": "8xH100"})]

    first, second, path = ask(each)
    for answer in (first, second):
        assert answer.structured_content["layout"].get("tp") != 2
    assert path.is_error
    assert not mark.exists()


def test_a_long_search_ends_and_the_next_question_is_answered(run: Any) -> None:
    async def impatient() -> tuple[Any, Any]:
        limits = Limits(searchers=1, seconds=2.5)
        async with Client(create_server(limits)) as client:
            await client.call_tool("plan", {"model": "llama-3.2-1b", "gpus": "1xH100"})
            object.__setattr__(limits, "seconds", 0.02)
            slow = await client.call_tool("plan", {"model": "deepseek-v3", "gpus": "8192xH100"})
            object.__setattr__(limits, "seconds", 60.0)
            return slow, await client.call_tool("plan", {"model": "llama-3.2-1b", "gpus": "2xH100"})

    slow, fine = run(impatient())
    assert slow.is_error
    assert "narrow the question" in slow.content[0].text
    assert not fine.is_error


def test_start_and_help_do_not_load_the_sdk() -> None:
    code = (
        "import sys, meshwright; from typer.testing import CliRunner; from meshwright.cli.main import app; "
        "assert CliRunner().invoke(app, ['mcp', '--help']).exit_code == 0; "
        "print(sorted({'mcp', 'uvicorn', 'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
