"""Every example of the guide: reproduced where it is right, flagged where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.errors import LayoutError
from meshwright.layout.layout import Layout
from meshwright.planner.guide import GuideQuestion, advise
from meshwright.planner.guide.grids import growth
from meshwright.planner.guide.memory import example_values, guide_estimate
from meshwright.planner.guide.rows import dense_rows, moe_row, moe_rows, sequence_rows, topology_row
from meshwright.planner.guide.spec import guide
from meshwright.planner.guide.words import verification_command

FACTS = json.loads((Path(__file__).parent / "data" / "guide_examples.json").read_text(encoding="utf-8"))
DEGREES = ("TP", "PP", "CP", "EP", "ETP")


def layout_of(vector):
    return Layout(**{name.lower(): vector.get(name, 1) for name in DEGREES})


def pair(value):
    return list(value) if isinstance(value, list) else [value, value]


@pytest.mark.parametrize("vector", FACTS["dense_table"], ids=lambda row: f"{row['params_B']}")
def test_dense_table(vector):
    low, high = vector["params_B"]
    (row,) = dense_rows((low + high) / 2 * 1e9)
    assert (row["billions"], row["gpus"]) == ([low, high], vector["gpus"])
    for name in ("TP", "PP", "CP"):
        assert row[name.lower()] == pair(vector.get(name, 1))


@pytest.mark.parametrize("size", [1, 10, 70, 175])
def test_a_boundary_shows_both_rows(size):
    below, above = dense_rows(size * 1e9)
    assert (below["billions"][1], above["billions"][0]) == (size, size)
    answer = advise(GuideQuestion(total_params=size * 1e9), ["size"]).text()
    assert "boundary of these rows: both apply" in answer


def test_dense_models_above_500_billion_are_not_in_the_guide():
    assert dense_rows(600e9) == ()
    answer = advise(GuideQuestion(total_params=600e9), ["size"]).section("size")
    assert "silent on dense models above 500B" in answer.lines[0]
    assert answer.guide_says == ""


@pytest.mark.parametrize("vector", FACTS["moe_table"], ids=lambda row: row["model"])
def test_moe_table(vector):
    row = moe_row([vector["model"]])
    assert row is not None
    layout = Layout(**{name: row[name] for name in ("tp", "pp", "cp", "ep")})
    assert layout == layout_of(vector)
    assert layout.min_gpus == vector["min_gpus"]
    assert row["status"] == vector["status"]


def test_the_moe_table_has_no_other_rows():
    assert len(moe_rows()) == len(FACTS["moe_table"])


def test_recipes_quoted_beside_the_moe_table_can_start():
    for row in moe_rows():
        for current in row["current"]:
            layout = Layout(**{name: current.get(name, 1) for name in ("tp", "pp", "cp", "ep")})
            layout.check_world(current["gpus"])


@pytest.mark.parametrize("index", range(4))
def test_combined_examples(index):
    vector = FACTS["code_examples"][index]
    example = advise(GuideQuestion(), ["combinations"]).section("combinations").values["examples"][index]
    ours = guide()["combinations"][index]
    assert {name: ours.get(name.lower(), 1) for name in DEGREES} == {
        name: vector.get(name, 1) for name in DEGREES
    }
    assert ours["sp"] == vector["SP"]
    if "min_gpus" in vector:
        assert example["min_gpus"] == vector["min_gpus"]
        assert (example["gpus"], example["valid"]) == (vector["claimed_gpus"], vector["valid"])


def test_deepseek_v3_on_256_is_said_to_be_impossible():
    lines = advise(GuideQuestion(), ["combinations"]).section("combinations").lines
    assert "needs 1,024 GPUs and cannot start on 256" in lines[3]
    with pytest.raises(LayoutError, match="1024"):
        Layout(tp=2, pp=16, ep=64).check_world(256)


@pytest.mark.parametrize("vector", FACTS["min_gpu_examples"])
def test_minimum_where_the_guide_is_right(vector):
    layout = layout_of(vector)
    assert layout.min_gpus == vector["guide_correct"] == vector["lcm_formula"] == layout.guide_min_gpus
    assert layout.wrong_product == vector["guide_wrong"]
    section = advise(GuideQuestion(degrees=degrees(vector)), ["minimum"]).section("minimum")
    assert section.agrees
    assert f"= {vector['guide_wrong']:,} is not usable" in "\n".join(section.lines)


@pytest.mark.parametrize("vector", FACTS["min_gpu_counterexamples"])
def test_minimum_where_the_guide_is_wrong(vector):
    section = advise(GuideQuestion(degrees=degrees(vector)), ["minimum"]).section("minimum")
    assert section.values["min_gpus"] == vector["true_min"]
    assert section.values["guide_min_gpus"] == vector["max_formula"]
    assert not section.agrees
    assert f"the guide's formula gives {vector['max_formula']}, on which it cannot start" in section.holds[0]


@pytest.mark.parametrize("vector", FACTS["scaling"])
def test_growth(vector):
    rows = growth(layout_of(vector))
    row = next(row for row in rows if row["gpus"] == vector["world"])
    assert (row["dp"], row["edp"]) == (vector["DP"], vector["EDP"])
    assert row["batch"] == vector["world"] // 8


@pytest.mark.parametrize("vector", FACTS["sequence_table"])
def test_sequence_table(vector):
    low, high = vector["S"]
    (row,) = sequence_rows((low + (high or 4 * low)) // 2)
    assert row["tokens"] == [low, high]
    assert row["cp"] == pair(vector.get("CP", 1))
    assert row["sp"] == (low >= 2048)


@pytest.mark.parametrize("length", [2048, 8192, 32768])
def test_a_boundary_of_sequence_length_shows_both_rows(length):
    assert len(sequence_rows(length)) == 2


@pytest.mark.parametrize(("network", "index"), [("nvlink", 0), ("infiniband", 1), ("ethernet", 2)])
def test_topology(network, index):
    vector, row = FACTS["topology_examples"][index], topology_row(network)
    assert (row["tp"], row["pp"]) == (vector["TP"], vector.get("PP"))


def test_memory_as_the_guide_counts_it():
    vector, values = FACTS["memory_example"], example_values()
    assert values["guide_unsharded_gb"] == pytest.approx(vector["guide_unsharded_GB"])
    sharded = {
        name: vector["guide_sharded"][name]
        for name in ("parameters", "gradients", "optimizer", "activations")
    }
    assert values["guide_sharded_gb"] == pytest.approx({**sharded, "total": vector["sharded_sum"]})
    assert guide_estimate(70e9, Layout(tp=4, pp=4), 48)["total"] == 38


def test_memory_as_it_is():
    real, values = FACTS["memory_example"]["megatron_real"], example_values()
    shape = real["tp4_pp4_dp4"]
    assert values["unsharded_gb"] == pytest.approx(real["unsharded_GB"]["total_state"])
    assert values["plain_gb"] == pytest.approx(shape["no_distopt_GB"])
    assert values["distributed_optimizer_gb"] == pytest.approx(shape["distopt_GB"])
    assert values["distributed_optimizer_bf16_gradients_gb"] == pytest.approx(shape["distopt_bf16grad_GB"])
    assert values["guide_state_gb"] == pytest.approx(shape["guide_state_GB"])
    total = values["distributed_optimizer_gb"] + values["activations_gb"]
    assert total == pytest.approx(real["with_activation_12"]["distopt_total_GB"])


def test_both_memory_counts_are_on_the_screen():
    text = advise(GuideQuestion(), ["memory"]).text(1000)
    for number in ("608 GB", "38 GB", "39.4 GB", "30.6 GB", "78.8 GB", "1,260 GB", "51.4 GB"):
        assert number in text


STATUS = {
    1: "holds",
    2: "holds",
    3: "too-strict",
    4: "holds",
    5: "refined",
    6: "holds",
    7: "refined",
    8: "refined",
}


@pytest.mark.parametrize("vector", [row for row in FACTS["pitfalls_vs_code"] if isinstance(row["n"], int)])
def test_the_eight_cautions_say_what_holds(vector):
    caution = guide()["cautions"][vector["n"] - 1]
    words = {"CONTRADICTED": "too-strict", "REFINED": "refined", "holds": "holds", "advice": "holds"}
    assert caution["status"] == words[vector["status"].split(":")[0].split(";")[0].split(" ")[0]]
    assert caution["holds"]
    assert (
        advise(GuideQuestion(), ["cautions"])
        .section("cautions")
        .lines[vector["n"] - 1]
        .startswith(f"{vector['n']}.")
    )


def test_what_the_guide_lacks_is_added():
    text = advise(GuideQuestion(), ["cautions"]).text(1000)
    assert "MoE model with TP>1 needs SP" in text
    assert "multiple of MBS*DP" in text


def test_verification_command():
    vector = FACTS["verification_command"]
    command = "\n".join(verification_command())
    assert f"--nproc_per_node={vector['world']} " in command
    assert f"--recipe {vector['recipe']} " in command
    for option, value in (
        ("model.tensor_model_parallel_size", vector["TP"]),
        ("model.pipeline_model_parallel_size", vector["PP"]),
        ("model.sequence_parallel", vector["SP"]),
        ("train.global_batch_size", vector["GBS"]),
        ("train.micro_batch_size", vector["MBS"]),
    ):
        assert f"{option}={value}" in command
    lines = advise(GuideQuestion(), ["verification"]).section("verification").lines
    assert f"(16 layers, 8 a stage; DP {vector['DP']}; {vector['M']} micro-batches)" in lines
    assert (
        sum("exit status 0" in line or "finite loss" in line or "TP=2, PP=2, DP=1" in line for line in lines)
        == 3
    )


def degrees(vector):
    return {name.lower(): vector[name] for name in DEGREES}
