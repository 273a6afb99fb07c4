"""The REST API answers as the library does, and tells people what is wrong."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import meshwright as mw

pytestmark = pytest.mark.xdist_group("web")

JOB = {"model": "llama-3-8b", "gpus": "8xH100"}


def plain(value: Any) -> Any:
    """As JSON has it, without the time that the search took."""
    import json

    row = json.loads(json.dumps(value, default=str))
    if isinstance(row, dict):
        row.pop("seconds", None)
        row.pop("pictures", None)
    return row


def test_plan_is_the_json_of_the_library(api: httpx.Client) -> None:
    found = api.post("/api/plan", json={**JOB, "top": 3}).json()
    assert plain(found) == plain(mw.plan("llama-3-8b", "8xH100", top=3).as_dict())


def test_estimate_is_the_json_of_the_library(api: httpx.Client) -> None:
    found = api.post("/api/estimate", json={**JOB, "tp": 2, "pp": 2}).json()
    assert plain(found) == plain(mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=2, pp=2)).as_dict())


def test_a_plan_asked_for_again_as_a_layout_has_the_same_numbers(api: httpx.Client) -> None:
    plan = api.post("/api/plan", json={"model": "deepseek-v3", "gpus": "1024xH100", "top": 1}).json()[
        "plans"
    ][0]
    execution = dict(plan["execution"])
    pipeline, recompute = execution.pop("pipeline_layout"), execution.pop("recompute")
    layout = {name: plan["layout"][name] for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "sp")}
    asked = {
        "model": "deepseek-v3",
        "gpus": "1024xH100",
        **layout,
        "recompute": recompute,
        "execution": execution,
    }
    again = api.post("/api/estimate", json={**asked, "pipeline_layout": pipeline}).json()
    assert again["memory"] == plan["memory"]
    assert again["time"] == plan["time"]


def test_fit_finds_the_fewest(api: httpx.Client) -> None:
    found = api.post("/api/fit", json={"model": "llama-3-8b", "gpu": "H100", "top": 1}).json()
    assert found["min_gpus_fitting"] == mw.fit("llama-3-8b", "H100", top=1).min_gpus_fitting


def test_ranks_and_catalogs(api: httpx.Client) -> None:
    grid = api.post("/api/ranks", json={"world_size": 16, "tp": 4, "pp": 2}).json()
    assert grid["groups"]["tp"][1] == [4, 5, 6, 7]
    assert any(row["name"] == "llama-3-8b" for row in api.get("/api/models?pattern=LLAMA").json())
    assert all("H100" in row["name"] for row in api.get("/api/gpus?pattern=h100").json())


def test_pictures_come_with_an_answer_that_asks_for_a_width(api: httpx.Client) -> None:
    found = api.post("/api/estimate", json={**JOB, "tp": 2, "width": 400, "pictures": ["memory"]}).json()
    assert [one["name"] for one in found["pictures"]] == ["memory"]
    assert 'viewBox="0 0 400 ' in found["pictures"][0]["svg"]


def test_scaling_goes_through_several_sizes(api: httpx.Client) -> None:
    found = api.post("/api/scaling", json=JOB).json()
    assert [row["gpus"] for row in found["sizes"]] == sorted({row["gpus"] for row in found["sizes"]})
    assert len(found["sizes"]) >= 3
    assert found["pictures"][0]["name"] == "scaling"


def test_report_is_one_file(api: httpx.Client) -> None:
    found = api.post("/api/report", json={**JOB, "top": 2})
    assert found.headers["content-type"].startswith("text/html")
    assert "attachment" in found.headers["content-disposition"]
    assert "--tensor-model-parallel-size" in found.text or "tensor_model_parallel_size" in found.text


def test_a_layout_is_written_for_every_framework_that_is_offered(api: httpx.Client) -> None:
    targets = api.get("/api/limits").json()["targets"]
    assert {"megatron-lm", "megatron-bridge"} <= set(targets)
    for target in targets:
        found = api.post("/api/write", json={**JOB, "tp": 2, "target": target})
        assert found.status_code == 200, found.text
        assert found.json()["files"]


def test_check_reads_a_script(api: httpx.Client) -> None:
    script = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --tensor-model-parallel-size 3 --seq-length 4096 "
        "--micro-batch-size 1 --global-batch-size 8\n"
    )
    found = api.post("/api/check", json={"text": script}).json()
    assert found["verdict"] == "invalid"
    assert any("cannot be shared evenly by tp=3" in one["message"] for one in found["findings"])


def test_offloaded_modules_are_taken(api: httpx.Client) -> None:
    asked = {**JOB, "tp": 2, "recompute": {"granularity": "none"}}
    more = {"execution": {"offload_modules": ["core_attn", "attn_proj"]}}
    kept, sent = (api.post("/api/estimate", json={**asked, **one}).json() for one in ({}, more))
    assert sent["execution"]["offload_modules"] == ["core_attn", "attn_proj"]
    assert sent["memory"]["peak_bytes"] < kept["memory"]["peak_bytes"]
    wrong = api.post("/api/estimate", json={**asked, "execution": {"offload_modules": ["attention"]}})
    assert wrong.status_code == 422
    assert "core_attn" in wrong.json()["error"]


SCRIPT = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 8 "
    "--tensor-model-parallel-size {tp}\n"
)


def test_two_scripts_are_compared_by_their_text(api: httpx.Client) -> None:
    found = api.post("/api/compare", json={"left": SCRIPT.format(tp=2), "right": SCRIPT.format(tp=4)}).json()
    tp = found["differs"]["tensor_model_parallel_size"]
    assert (tp["left"]["value"], tp["right"]["value"]) == (2, 4)
    nothing = api.post("/api/compare", json={"left": "echo", "right": SCRIPT.format(tp=4)})
    assert nothing.status_code == 422


def test_advice_is_the_json_of_the_library(api: httpx.Client) -> None:
    found = api.post("/api/advise", json={"model": "deepseek-v3", "gpus": "256xH100", "tp": 2}).json()
    assert plain(found) == plain(mw.advise("deepseek-v3", gpus="256xH100", degrees={"tp": 2}).as_dict())


def test_verification_is_told_as_a_command_where_the_server_runs_none(api: httpx.Client) -> None:
    found = api.post("/api/verify", json={**JOB, "tp": 2, "pp": 2, "levels": [0]}).json()
    assert found["command"].startswith("meshwright verify llama-3-8b --gpus 8xH100 --tp 2 --pp 2 --mbs 1 ")
    assert found["command"].endswith(" --level 0")
    assert found["job"] is None
    assert api.get("/api/verify/nothing").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("plan", {"model": "lama-3-8b", "gpus": "8xH100"}, 422, "did you mean llama-3-8b"),
        ("plan", {"model": "llama-3-8b", "gpus": "8xH1000"}, 422, "H100"),
        ("plan", {"gpus": "8xH100"}, 422, "give a model of the catalog"),
        ("plan", {"config": "no json", "gpus": "8xH100"}, 422, "config.json is not JSON"),
        ("plan", {"config": "[1]", "gpus": "8xH100"}, 422, "holds a JSON list"),
        ("plan", {"config": "[" * 100_000, "gpus": "8xH100"}, 422, "nested too deep"),
        ("plan", {"config": '{"model_type": "x"}', "gpus": "8xH100"}, 422, "unknown architecture 'x'"),
        ("plan", {**JOB, "tpp": 2}, 422, "tpp: Extra inputs are not permitted"),
        ("plan", {**JOB, "tp": 0}, 422, "greater than or equal to 1"),
        ("plan", {"model": "llama-3-8b", "gpus": "9000000xH100"}, 422, "more than this server plans for"),
        ("estimate", {**JOB, "recompute": {"granularity": "some"}}, 422, "granularity"),
        ("ranks", {"world_size": 10, "tp": 3}, 409, "not a multiple of 3"),
        ("check", {"text": ""}, 422, ""),
        ("write", {**JOB, "tp": 2, "target": "cobol"}, 422, "unknown framework 'cobol'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    api: httpx.Client, path: str, body: dict[str, Any], status: int, says: str
) -> None:
    found = api.post(f"/api/{path}", json=body)
    assert found.status_code == status, found.text
    assert says in found.json()["error"]


def test_a_layout_that_cannot_start_is_an_answer(api: httpx.Client) -> None:
    found = api.post("/api/estimate", json={**JOB, "tp": 3})
    assert found.status_code == 200
    assert found.json()["valid"] is False
    assert found.json()["memory"] is None
