"""config.json files: counted as transformers builds them, described as the catalog has them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.huggingface import known_types, read_config
from meshwright.model.parameters import count_parameters

DATA = Path(__file__).parent / "data"
COUNTS = json.loads((DATA / "transformers_counts.json").read_text())["counts"]
HUB = json.loads((DATA / "hub_configs.json").read_text())["configs"]
REMOTE = json.loads((DATA / "remote_configs.json").read_text())["configs"]

LLAMA = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}  # fmt: skip

ASKED = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "glm4",
    "glm4_moe",
    "gpt_oss",
    "gemma2",
    "gemma3",
    "gemma4",
    "olmo",
    "olmo2",
    "olmoe",
    "phi3",
    "phimoe",
    "gpt2",
    "gpt_neox",
    "falcon",
    "bloom",
    "granite",
    "granitemoe",
    "minimax",
    "minimax_m2",
    "nemotron",
    "nemotron_h",
    "llama4",
    "ernie4_5",
    "ernie4_5_moe",
    "hunyuan_v1_moe",
    "dbrx",
    "cohere",
    "starcoder2",
    "internlm2",
    "bailing_moe",
    "step3_vl",
    "seed_oss",
    "smollm3",
    "exaone4",
]


def test_the_families_people_train_are_known():
    assert set(ASKED) <= set(known_types())


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: row["config"]["model_type"])
def test_counts_equal_those_of_the_transformers_module(row):
    counted = count_parameters(read_config(row["config"]))
    assert (counted.total, counted.vision) == (row["total"], row.get("vision", 0))


@pytest.mark.parametrize("row", HUB, ids=lambda row: row["model"])
def test_a_config_from_the_hub_is_the_catalog_model(row):
    read, known = read_config(row["config"]), catalog.find(row["model"])
    fields = ("kinds", "pattern", "mtp", "hidden", "vocab_size", "tied", "normalization", "max_position")
    assert {name: getattr(read, name) for name in fields} == {name: getattr(known, name) for name in fields}


@pytest.mark.parametrize("row", REMOTE, ids=lambda row: row["model"])
def test_types_outside_transformers_reach_the_published_total(row):
    expected = row.get("total") or count_parameters(catalog.find(row["model"])).total
    assert count_parameters(read_config(row["config"])).total == expected


@pytest.mark.parametrize("name", ["minimax-text-01", "hunyuan-large"])
def test_mixers_lie_where_the_catalog_has_them(name):
    config = next(row["config"] for row in REMOTE if row["model"] == name)
    read, known = read_config(config), catalog.find(name)
    assert [read.kinds[k].mixer for k in read.pattern] == [known.kinds[k].mixer for k in known.pattern]


def test_a_default_that_was_taken_is_named_in_the_notes():
    assert read_config(LLAMA).notes == (
        "absent from config.json, class defaults taken: max_position_embeddings 2048",
    )
    assert read_config(LLAMA | {"max_position_embeddings": 8192}).notes == ()


def test_a_vision_tower_that_is_not_described_is_named_in_the_notes():
    model = read_config({"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "odd"}})
    assert model.vision is None
    assert "the vision tower (odd) is not described and left out" in model.notes


def without(*names):
    return {key: value for key, value in LLAMA.items() if key not in names}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "lama"}, "unknown architecture 'lama' .*did you mean llama.* Known: arcee"),
        ({"architectures": ["ThingForCausalLM"]}, "unknown architecture 'ThingForCausalLM'"),
        ({}, "missing model_type; known are arcee"),
        (without("hidden_size"), "missing hidden_size; without it the size is unknown"),
        (without("hidden_size", "vocab_size"), "missing hidden_size, vocab_size; without them"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size is '4096'; it must be a whole number"),
        (LLAMA | {"hidden_size": float("nan")}, "hidden_size is nan; it must be a whole number"),
        (LLAMA | {"hidden_size": True}, "hidden_size is True; it must be a whole number"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        (LLAMA | {"num_hidden_layers": -4}, "num_hidden_layers is -4; it must be at least 1"),
        (LLAMA | {"num_hidden_layers": 10**7}, "beyond 10,000 it cannot be meant"),
        (LLAMA | {"vocab_size": 10**30}, "beyond 1,000,000,000 it cannot be meant"),
        (LLAMA | {"hidden_size": 10**8, "intermediate_size": 10**9}, "more than 10.15 parameters"),
        (LLAMA | {"hidden_size": 4097}, "4097 is not a multiple of 32 attention heads"),
        (LLAMA | {"num_key_value_heads": 5}, "32 attention heads are not a multiple of 5 key-value heads"),
        (LLAMA | {"attention_bias": 3}, "attention_bias is 3; it must be true or false"),
        (LLAMA | {"model_type": "qwen3_moe", "mlp_only_layers": 3}, "is 3; it must be a list"),
        (LLAMA | {"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "knows the blocks M"),
        (LLAMA | {"model_type": "gpt_oss", "layer_types": ["full"]}, "1 items; the model has 32 layers"),
        ({"model_type": "kimi_linear", "attn_res_block_size": 12}, "Kimi K3. is not described"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_read_says_why(config, says):
    with pytest.raises(QuestionError, match=says) as error:
        read_config(config)
    assert str(error.value).startswith("config.json")


JUNK = [None, "x", -1, 10**40, float("inf"), [], [[1]] * 99, {"a": 1}]


@pytest.mark.parametrize("row", HUB, ids=lambda row: row["model"])
def test_whatever_stands_in_a_field_the_answer_is_a_model_or_one_clear_error(row):
    config = row["config"]
    for name in (*config, "layer_types", "mlp_layer_types", "moe_layer_freq", "text_config", "vision_config"):
        for junk in JUNK:
            with contextlib.suppress(QuestionError):
                assert read_config(config | {name: junk}).num_layers > 0
