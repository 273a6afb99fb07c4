"""FLOPs a token: as Megatron itself computes them, and as published runs print them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.flops import flops_by_part, flops_per_token

DATA = Path(__file__).parent / "data"
MEGATRON = json.loads((DATA / "megatron_flops.json").read_text())["values"]
PUBLISHED = list(csv.DictReader((DATA / "published_flops.csv").open()))


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row['model']}-{row['seq_length']}")
def test_they_equal_megatron_s_own_count(row):
    model = catalog.find(row["model"])
    if row.get("without_mtp"):
        model = replace(model, mtp=())
    assert flops_per_token(model, row["seq_length"]) == pytest.approx(row["flops_per_token"], rel=2e-6)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["id"])
def test_they_equal_what_published_runs_divide_by(row):
    """Left out: LoRA and packed fine-tuning (other token counts), rows whose tokens/s are printed
    rounded, and GPT-OSS before release 26.06, which was printed with another formula."""
    counted = flops_per_token(catalog.find(row["model"]), int(row["seq_length"])) / 1e9
    assert counted == pytest.approx(float(row["gflops_per_token"]), rel=0.005)


def test_the_causal_mask_halves_the_attention_core_and_nothing_else():
    """By hand: 6 * 8192 tokens * 64 heads * 128 * 80 layers = 32.2 GFLOP under the mask."""
    model = catalog.find("llama-3-70b")
    half, full = flops_by_part(model, 8192), flops_by_part(model, 8192, causal=False)
    assert half["core"] == 6 * 8192 * 8192 * 80
    assert full == half | {"core": 2 * half["core"]}


def test_a_padded_vocabulary_costs_its_rows():
    model = catalog.find("llama-3-70b")
    more = flops_per_token(model, 8192, vocab=129_280) - flops_per_token(model, 8192)
    assert more == 6 * 8192 * (129_280 - 128_256)


@pytest.mark.parametrize("name", [entry.name for entry in catalog.entries() if entry.described])
def test_without_attention_they_are_near_six_times_the_working_parameters(name):
    """6N, N = active parameters without the input embedding: the rule of thumb must hold within 10 %."""
    from meshwright.model.parameters import count_parameters

    model = replace(catalog.find(name), mtp=())
    parts = flops_by_part(model, 4096)
    matrices = sum(value for part, value in parts.items() if part != "core")
    assert matrices == pytest.approx(6 * count_parameters(model).active_with_head, rel=0.1)


@pytest.mark.parametrize("length", [0, -1])
def test_a_sequence_has_at_least_one_token(length):
    with pytest.raises(QuestionError, match=f"sequence length is {length}"):
        flops_per_token(catalog.find("llama-3-8b"), length)
