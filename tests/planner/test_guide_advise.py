"""The guide's answer to whole questions, in words and as JSON."""

from __future__ import annotations

import json

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.errors import QuestionError
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.model.parameters import count_parameters
from meshwright.planner.guide import GuideQuestion, advise
from meshwright.planner.guide.advise import TOPICS
from meshwright.planner.guide.words import code_lines


def about(name, **question):
    model = find(name)
    count = count_parameters(model)
    return GuideQuestion(model=model, total_params=count.total, active_params=count.active, **question)


def test_deepseek_v3_on_256_gpus():
    answer = advise(about("deepseek-v3", gpus=256, degrees={"tp": 2, "pp": 16, "ep": 64}))
    assert (answer.starts, answer.asked) == ("no", True)
    assert (answer.layout.min_gpus, answer.nearest_gpus) == (1024, (1024,))
    assert {Layout(tp=2, pp=8, ep=32, sp=True), Layout(pp=4, ep=64)} <= set(answer.nearest_layouts)
    for layout in answer.nearest_layouts:
        layout.check_world(256)
    text = answer.section("start").text()
    for words in (
        "TP2 PP16 EP64 cannot start on 256 GPUs",
        "fewer than the 1,024 it needs",
        "TP2 PP8 EP32 (ships as a recipe)",
        "TP1 PP4 EP64 (ships as a recipe)",
    ):
        assert words in text


def test_the_guides_own_start_is_held_against_the_gpus():
    answer = advise(about("deepseek-v3", gpus=256))
    assert (answer.starts, answer.asked, answer.layout_source) == (
        "no",
        False,
        "the guide's MoE table, DeepSeek-V3",
    )


def test_on_1024_it_can_start():
    answer = advise(about("deepseek-v3", gpus=1024, degrees={"tp": 2, "pp": 16, "ep": 64}))
    assert (answer.starts, answer.nearest_layouts, answer.nearest_gpus) == ("yes", (), ())
    assert "DP 32, EDP 1" in answer.section("start").lines[0]


@pytest.mark.parametrize(
    ("name", "question", "says"),
    [
        ("llama-3-70b", {"degrees": {"ep": 8}, "gpus": 64}, "EP 8 on a dense model"),
        ("qwen3-30b-a3b", {"degrees": {"tp": 4, "ep": 4}, "sp": False}, "need SP in training"),
        (
            "qwen3-30b-a3b",
            {"degrees": {"ep": 48}},
            "128 experts cannot be shared evenly by EP 48; nearest: 32 or 64",
        ),
        ("llama-3-8b", {"degrees": {"tp": 3}}, "do not divide over TP 3"),
        (
            "llama-3-8b",
            {"degrees": {"cp": 3}, "seq_length": 8192},
            "not a multiple of 2 x CP 3 = 6; nearest: 8,190 or 8,196",
        ),
        ("llama-3-8b", {"degrees": {"pp": 64}}, "32 layers cannot fill"),
        ("llama-3-8b", {"degrees": {"tp": 8}, "gpus": 12}, "12 GPUs are not a multiple of the 8"),
    ],
)
def test_why_a_layout_cannot_start(name, question, says):
    answer = advise(about(name, **question), ["start"])
    assert answer.starts == "no"
    assert says in answer.text(1000)


def test_unset_etp_is_explained_with_numbers():
    text = advise(about("deepseek-v3", degrees={"tp": 2, "pp": 16, "ep": 64}), ["start"]).text(1000)
    assert "unset, Megatron-LM makes it TP: 2, which needs 2,048 GPUs" in text


def test_sp_without_tp_starts_and_is_explained():
    answer = advise(about("llama-3-8b", degrees={"tp": 1}, sp=True), ["start"])
    assert answer.starts == "yes"
    assert "switch it off, raw Megatron Core raises" in answer.text(1000)


def test_llama_3_70b_stands_on_the_boundary():
    text = advise(about("llama-3-70b", gpus=64)).section("size").text(1000)
    assert "10-70B, 16-64 GPUs: TP=4-8 + PP=2-4 + DP" in text
    assert "70-175B, 64-256 GPUs: TP=8 + PP=4-8 + DP" in text
    assert "64 H100 bf16: TP4 PP4 VPP5 CP2" in text


def test_degrees_outside_the_row_are_named():
    text = advise(about("llama-3-8b", gpus=512, degrees={"tp": 1}), ["size"]).text(1000)
    assert "outside the row: 512 GPUs (the guide: 8-16)" in text
    assert "outside the row: TP 1 (the guide: 2-4)" in text


def test_the_four_moe_regularities():
    section = advise(about("kimi-k2", degrees={"ep": 32})).section("experts")
    text = section.text(1000)
    for words in (
        "TP follows the active parameters",
        "experts a GPU",
        "PP takes the depth",
        "Llama 4 is the exception",
    ):
        assert words in text
    assert "384 experts over EP 32: 12 a GPU" in text
    assert "0 have ETP above 1" in text
    assert len(section.values["regularities"]) == 4


def test_a_moe_model_without_a_row_gets_the_nearest():
    text = advise(about("mixtral-8x22b"), ["experts"]).text(1000)
    assert "the guide has no row for mixtral-8x22b; the nearest is" in text


def test_the_contradicted_row_is_flagged():
    section = advise(about("qwen3-30b-a3b"), ["experts"]).section("experts")
    assert not section.agrees
    assert "16 H100: TP1 PP1 EP16" in section.text(1000)


def test_the_two_grids_are_cited():
    assert "arXiv:2504.14960" in advise(GuideQuestion(), ["minimum"]).section("minimum").guide_says


@pytest.mark.parametrize(
    ("degrees", "gpus", "line"),
    [
        ({"tp": 2, "ep": 8}, None, "--nodes=1 --ntasks-per-node=8 for the minimum of 8 GPUs"),
        ({"tp": 2, "pp": 16, "ep": 64}, None, "--nodes=128 --ntasks-per-node=8"),
        ({"tp": 2, "pp": 16, "ep": 64}, "1024xGB200", "--nodes=256 --ntasks-per-node=4"),
        ({"tp": 2}, None, "--nodes=1 --ntasks-per-node=2 (part of a node of 8)"),
        (
            {"tp": 6, "ep": 4},
            None,
            "--nodes=3 --ntasks-per-node=8: 12 GPUs do not fill nodes of 8; 24 GPUs do",
        ),
    ],
)
def test_slurm_nodes(degrees, gpus, line):
    cluster = parse_cluster(gpus) if gpus else None
    answer = advise(GuideQuestion(degrees=degrees, gpus=cluster), ["nodes"])
    assert answer.section("nodes").lines[0].startswith(line)


def test_the_moe_checklist_has_every_point():
    lines = (
        advise(about("deepseek-v3", gpus=1024, degrees={"tp": 2, "pp": 16, "ep": 64}, seq_length=4096))
        .section("checklist")
        .lines
    )
    said = (
        ("PP * max(TP*CP, EP*ETP) = 16 * max(2, 64) = 1,024", "(128 nodes of 8)"),
        ("2,048 is not usable",),
        (
            "DP = world_size / (TP * PP * CP) = 1,024 / (2 * 16 * 1) = 32",
            "EDP = world_size / (PP * EP * ETP) = 1,024 / (16 * 64 * 1) = 1",
        ),
        ("TP 2 stays inside one NVLink domain",),
        ("SP: on",),
        ("seq_length % (2 * CP) == 0",),
        ("from 8K add CP=2", "4,096 tokens: add sequence parallelism"),
    )
    for line, words in zip(lines, said, strict=True):
        assert line.startswith("[x] ")
        assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("gpus", "network", "says"),
    [
        ("64xGB200", None, "one node with NVLink"),
        ("64xH100", None, "nodes joined by InfiniBand: TP=8, PP=N"),
        ("64xH100", "ethernet", "TP=4, PP=M"),
    ],
)
def test_the_network_is_taken_from_the_cluster_unless_named(gpus, network, says):
    answer = advise(GuideQuestion(gpus=parse_cluster(gpus), network=network), ["topology"])
    assert says in answer.text(1000)


def test_tp_wider_than_the_nvlink_domain_is_named():
    answer = advise(GuideQuestion(gpus=parse_cluster("64xH100"), degrees={"tp": 16}), ["topology"])
    assert "TP 16 is wider than an NVLink domain of 8" in answer.text(1000)


def test_long_sequences_start_with_cp():
    assert advise(about("llama-3-8b", seq_length=131072)).layout.cp == 4
    text = advise(about("qwen3-235b-a22b", seq_length=131072), ["sequence"]).text(1000)
    assert "about CP 32 by 4,096 tokens a rank" in text


def test_code_lines_spell_etp_out_where_there_are_experts():
    assert code_lines(Layout(tp=2, pp=16, ep=64, sp=True)) == (
        "cfg.model.tensor_model_parallel_size = 2",
        "cfg.model.pipeline_model_parallel_size = 16",
        "cfg.model.expert_model_parallel_size = 64",
        "cfg.model.expert_tensor_parallel_size = 1",
        "cfg.model.sequence_parallel = True",
    )
    assert "cfg.model.expert_tensor_parallel_size" not in " ".join(code_lines(Layout(tp=2, sp=True)))


@pytest.mark.parametrize(
    "question",
    [GuideQuestion(), GuideQuestion(gpus=256), about("llama-3-70b"), about("deepseek-v3", gpus=256)],
    ids=["nothing", "gpus", "dense", "moe"],
)
def test_every_answer_is_plain_json_and_lists_the_corrections(question):
    answer = advise(question)
    plain = json.loads(json.dumps(answer.as_dict()))
    assert plain["min_gpus"] == answer.layout.min_gpus
    ids = [section["id"] for section in plain["sections"]]
    assert ids == [topic for topic in TOPICS if topic in ids]
    assert {"minimum", "cautions", "verification", "memory"} <= set(ids)
    assert len(answer.section("corrections").values["corrections"]) == 9
    assert all(section.source for section in answer.sections)


def test_an_open_question_shows_both_size_tables_whole():
    answer = advise(GuideQuestion())
    assert len(answer.section("size").values["rows"]) == 5
    assert len(answer.section("experts").values["rows"]) == 9


def test_a_dense_model_is_not_asked_about_experts():
    ids = {section.id for section in advise(about("llama-3-70b")).sections}
    assert not {"experts", "checklist"} & ids


@pytest.mark.parametrize(
    "question",
    [
        {"gpus": 0},
        {"gpus": -8},
        {"gpus": 10**30},
        {"degrees": {"tp": 0}},
        {"degrees": {"tp": -2}},
        {"degrees": {"tp": 10**5000}},
        {"degrees": {"zp": 2}},
        {"seq_length": 0},
        {"seq_length": 10**5000},
        {"total_params": -1.0},
        {"total_params": float("nan")},
        {"total_params": 1e9, "active_params": 2e9},
        {"network": "carrier pigeon"},
    ],
)
def test_bad_questions_are_refused(question):
    with pytest.raises(QuestionError):
        GuideQuestion(**question)


def test_an_unknown_topic_is_refused():
    with pytest.raises(QuestionError, match="did you mean memory"):
        advise(GuideQuestion(), ["memry"])


def test_no_line_is_wider_than_asked_except_commands():
    for line in advise(about("deepseek-v3", gpus=256)).text(80).splitlines():
        assert len(line) <= 80 or line.endswith("\\"), line


def test_the_guides_own_evaluation_question_is_answered_first_and_whole():
    degrees = {"pp": 2, "tp": 2, "cp": 1, "ep": 8, "etp": 1}
    answer = advise(GuideQuestion(degrees=degrees))
    assert [section.id for section in answer.sections][:2] == ["start", "checklist"]
    text = answer.section("checklist").text(1000)
    for element in (
        "2 * max(2, 8) = 16", "32 is not usable", "world_size / (TP * PP * CP)",
        "world_size / (PP * EP * ETP)",
        "NVLink domain", "SP: on", "seq_length % (2 * CP) == 0", "from 32K CP=4-8",
    ):  # fmt: skip
        assert element in text


@pytest.mark.parametrize(
    ("degrees", "seq_length", "says"),
    [
        ({"tp": 2, "cp": 4, "ep": 8}, 4100, "4,100 % 8 = 4, not legal"),
        ({"tp": 2, "cp": 4, "ep": 8}, None, "with CP 4 a multiple of 8"),
        ({"tp": 16, "ep": 16}, None, "TP 16 does not stay inside one NVLink domain (of 8 GPUs)"),
        ({"tp": 1, "ep": 8}, None, "SP: off; it needs TP > 1"),
    ],
)
def test_the_checklist_speaks_of_the_asked_degrees(degrees, seq_length, says):
    answer = advise(GuideQuestion(degrees=degrees, seq_length=seq_length), ["checklist"])
    assert says in answer.text(1000)
