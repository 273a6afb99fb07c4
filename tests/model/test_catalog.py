"""The catalog: every total as published or measured elsewhere, and names as people type them."""

from __future__ import annotations

import time

import pytest

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.parameters import count_parameters

ENTRIES = catalog.entries()
DESCRIBED = [entry for entry in ENTRIES if entry.described]


def test_it_holds_128_models_each_with_a_source():
    assert len(ENTRIES) == 128
    assert all(entry.source for entry in ENTRIES)


@pytest.mark.parametrize("entry", DESCRIBED, ids=lambda entry: entry.name)
def test_counts_equal_the_stated_ones_to_the_digit(entry):
    counted = count_parameters(catalog.find(entry.name))
    fields = (
        "total",
        "active",
        "active_without_embeddings",
        "active_with_head",
        "embedding",
        "head",
        "by_part",
        "mtp",
    )
    stated = {name: entry.stated[name] for name in fields if name in entry.stated}
    assert {name: getattr(counted, name) for name in stated} == stated


@pytest.mark.parametrize("entry", DESCRIBED, ids=lambda entry: entry.name)
def test_totals_lie_near_what_the_makers_print(entry):
    printed = entry.stated["official_total"]
    assert count_parameters(catalog.find(entry.name)).total == pytest.approx(printed, rel=0.03)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama3-70b", "llama-3-70b"),
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("llama31_405b", "llama-3.1-405b"),
        ("qwen3_30b_a3b", "qwen3-30b-a3b"),
        ("Qwen3 30B-A3B", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("qwen25_1p5b", "qwen2.5-1.5b"),
        ("qwen25_500m", "qwen2.5-0.5b"),
        ("Mixtral 8x7B", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseekv3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("gpt3 175b", "gpt3-175b"),
        ("gpt-3-175b", "gpt3-175b"),
        ("llama_3_1_70b", "llama-3.1-70b"),
        ("GPT-22B", "gpt-22b-(2205.05198)"),
        ("GPT_OSS_120B", "gpt-oss-120b"),
        ("GLM-4.5-Air", "glm-4.5-air-106b-a12b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
    ],
)  # fmt: skip
def test_names_are_forgiving(typed, name):
    assert catalog.find(typed).name == name


@pytest.mark.parametrize("name", catalog.names())
def test_every_name_and_hub_id_leads_to_its_own_model(name):
    entry = next(entry for entry in ENTRIES if entry.name == name)
    assert catalog.resolve(name) == name
    assert catalog.resolve(entry.hugging_face_id or name) == name


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("lama3-70b", "did you mean llama-3-70b"),
        ("mixtral", "could be mixtral-8x7b or mixtral-8x22b"),
        ("kimi-k3", "figures but no layer description for kimi-k3 .unverified"),
        ("GPT2-2B", "no model 'GPT2-2B'"),  # 2 billion, not the 22 billion of gpt-22b
        ("", "no model ''"),
        ("z" * 100_000, r"no model 'zzz.*\.\.\.' in the catalog\. `meshwright models` lists all 128"),
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_says_where_to_look(typed, says):
    with pytest.raises(QuestionError, match=says) as error:
        catalog.find(typed)
    assert len(str(error.value)) < 500


def test_finding_a_model_is_quick():
    catalog.find("llama-3-70b")
    start = time.perf_counter()
    catalog.find("deepseek-v4-pro")
    assert time.perf_counter() - start < 0.02
