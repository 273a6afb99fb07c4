"""Saved activations against the engine's, and what recompute, offloading and dropout change."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.cost.accounts import accounts
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model.catalog import find, names

MIB = 2**20
RECORDED = json.loads((Path(__file__).parents[1] / "engine" / "data" / "activations.json").read_text())


def _execution(entry: dict[str, object]) -> Execution:
    text = str(entry["recompute"])
    recompute = Recompute()
    if text == "full":
        recompute = Recompute(granularity="full", num_layers=1)
    elif text != "none":
        recompute = Recompute(granularity="selective", modules=tuple(text.split(",")))
    return Execution(recompute=recompute, cross_entropy_impl="te", **entry["flags"])


@pytest.mark.parametrize(
    "entry", RECORDED["configurations"], ids=lambda e: f"{e['model']}-{e['layout']}-{e['recompute']}"
)
def test_what_the_engine_saves_is_met_within_one_per_cent(ask, entry):
    """Whole ranks run on Megatron Core: 1F1B and interleaved, first, middle and last stages."""
    degrees = dict(entry["layout"])
    layout = Layout(sp=bool(degrees.pop("sp", 0)), **degrees)
    world, text = layout.min_gpus, entry["pipeline_layout"]
    asked = ask(
        entry["model"], f"{world}xH100", layout, seq=entry["seq_length"],
        batch=entry["num_microbatches"] * layout.mbs * layout.dp(world), execution=_execution(entry),
        pipeline=PipelineLayout.parse(text, layout.pp) if text else None,
    )  # fmt: skip
    predicted = asked.memory.terms["activations"][0]
    for stage in entry["stages"]:
        assert predicted[stage["stage"]] == pytest.approx(stage["peak_bytes"], rel=0.01)


@pytest.mark.parametrize(
    ("execution", "saved"),
    [
        (Execution(), 19413123120),
        (Execution(activation_fusion=False), 26207895552),
        (Execution(recompute=Recompute(granularity="selective", modules=("moe_act",))), 12618350592),
    ],
    ids=["fused", "unfused", "moe_act recomputed"],
)
def test_a_clamped_activation_keeps_copies_of_what_it_clamps(ask, execution, saved):
    """GPT-OSS-20B, EP 8, 4,096 tokens, run on Megatron Core 0.16.1: bytes saved by one micro-batch."""
    execution = replace(execution, cross_entropy_impl="te")
    found = ask("gpt-oss-20b", "8xH100", Layout(ep=8), batch=8, execution=execution)
    assert found.memory.terms["activations"][0, 0] == pytest.approx(saved, rel=0.01)


def activations(ask, layout=None, *, model="llama-3-8b", gpus="8xH100", **more):
    asked = ask(model, gpus, layout or Layout(), **more)
    return float(asked.memory.terms["activations"][0, 0])


def test_unfused_attention_keeps_scores_of_heads_and_the_square_of_the_sequence(ask):
    """32 heads, 4,096 tokens: 1 GiB of bf16 a layer (and as much twice over, with a mask, for dropout)."""
    layers, score = 32, 32 * 4096**2
    fused = activations(ask, model="phi-3-mini-3.8b")
    unfused = Execution(attention_backend="unfused")
    plain = activations(ask, model="phi-3-mini-3.8b", execution=unfused)
    dropped = activations(ask, model="phi-3-mini-3.8b", execution=unfused, attention_dropout=0.1)
    statistics = layers * 4 * 32 * 4096
    assert plain - fused == layers * 2 * score - statistics
    assert dropped - plain == layers * 3 * score
    assert 2 * score == 1024 * MIB


def test_fp32_logits_of_gpt_oss_are_8_2_gb_for_a_pair_of_5120_tokens(ask):
    """vocab 201,088 x 10,240 tokens x 4 bytes, where cross entropy is not fused."""
    fused = activations(ask, model="gpt-oss-120b", seq=5120, layout=Layout(mbs=2, ep=8))
    plain = Execution(cross_entropy_fusion=False)
    unfused = activations(ask, model="gpt-oss-120b", seq=5120, layout=Layout(mbs=2, ep=8), execution=plain)
    assert unfused - fused == 2 * 201088 * 10240
    assert pytest.approx(8.2e9, rel=0.01) == 4 * 201088 * 10240


def test_hidden_dropout_keeps_a_byte_for_each_element_of_the_residual_stream(ask):
    """Two masks a layer and one for the embeddings."""
    more = activations(ask, hidden_dropout=0.1) - activations(ask)
    assert more == (2 * 32 + 1) * 4096 * 4096


def test_full_recompute_keeps_the_input_of_each_group_of_layers(ask):
    def kept(number: int) -> float:
        return activations(
            ask, execution=Execution(recompute=Recompute(granularity="full", num_layers=number))
        )

    layer_input = 2 * 4096 * 4096
    assert kept(1) - kept(4) == (32 - 8) * layer_input


def test_block_recompute_covers_the_first_layers_of_a_stage(ask):
    plain = activations(ask)
    block = Recompute(granularity="full", method="block", num_layers=8)
    some = activations(ask, execution=Execution(recompute=block))
    all_of_them = activations(ask, execution=Execution(recompute=Recompute(granularity="full", num_layers=1)))
    assert plain - some == pytest.approx((plain - all_of_them) / 4, rel=1e-9)


def test_offloaded_modules_move_to_the_host_and_not_away(ask):
    layout = Layout(ep=8)
    modules = ("expert_fc1", "moe_act", "attn_norm", "mlp_norm", "core_attn")
    asked = ask("qwen3-30b-a3b", "8xH100", layout, execution=Execution(offload_modules=modules))
    plain = ask("qwen3-30b-a3b", "8xH100", layout)
    parts = accounts(asked.question, asked.table, asked.view)
    hosted = parts.flying.total(parts.flying.passes, parts.blocks.hosted, parts.sizes.keys)
    moved = plain.memory.terms["activations"] - asked.memory.terms["activations"]
    assert moved[0, 0] == pytest.approx(hosted[0, 0])
    assert asked.memory.peak[0] < plain.memory.peak[0]


def test_flash_attention_with_several_samples_keeps_its_output_twice(ask):
    """Its own output is [batch, seq]; the projection takes [seq, batch]."""
    flash, layout = Execution(attention_backend="flash"), Layout(mbs=2)
    more = activations(ask, layout=layout, execution=flash) - activations(ask, layout=layout)
    assert more == 32 * 2 * 4096 * 2 * 4096
    assert activations(ask, execution=flash) == activations(ask)


def test_uneven_routing_adds_to_the_experts_part_alone(ask):
    """1.5 times the balanced share: half as many more tokens in experts of 768, top 8."""
    layout = Layout(ep=8)
    balanced = activations(ask, model="qwen3-30b-a3b", layout=layout)
    uneven = activations(ask, model="qwen3-30b-a3b", layout=layout, execution=Execution(expert_imbalance=1.5))
    row = 2 * 2048 + 2 * 2 * 768 + 2 * 768
    assert uneven - balanced == 48 * 0.5 * 8 * 4096 * row


def test_sequence_parallelism_splits_what_lies_between_the_regions(ask):
    with_sp = activations(ask, layout=Layout(tp=8, sp=True))
    without = activations(ask, layout=Layout(tp=8))
    norms = 32 * (2 * (2 * 2 * 4096 + 4)) * 4096  # input, output and 1/sigma of two norms a layer
    final = 2 * 2 * 4096 * 4096
    assert without - with_sp == pytest.approx((norms + final) * 7 / 8)


def test_sizes_stay_finite_for_every_model_of_the_catalog(ask):
    for name in names():
        try:
            find(name)
        except QuestionError:  # in the catalog with its totals only
            continue
        used = ask(name, "1xH100", Layout(), batch=1).memory
        assert np.isfinite(used.total).all(), name
        assert (used.total > 0).all(), name


@pytest.mark.parametrize(
    ("model", "layout", "seq", "measured_gb"),
    [
        ("qwen3-8b", Layout(tp=2, sp=True), 8192, 47.545 - 42.814),
        ("qwen3-30b-a3b", Layout(tp=4, ep=4, sp=True), 8192, 29.890 - 28.321),
        ("gpt-oss-120b", Layout(tp=2, ep=8, sp=True), 4096, 52.185 - 51.371),
    ],
)
def test_lora_adapters_keep_gathered_inputs(ask, model, layout, seq, measured_gb):
    """What Megatron Bridge measured that gathering them again in backward saves (its memory skill)."""
    job = {"model": model, "layout": layout, "seq": seq}
    more = activations(ask, **job, task="lora") - activations(ask, **job, task="sft")
    assert more / 1e9 == pytest.approx(measured_gb, rel=0.06)


def test_reinforcement_learning_keeps_fp32_log_probabilities(ask):
    """verl and NeMo RL use Megatron's own cross entropy: an fp32 softmax, 2 bytes a logit more."""
    more = activations(ask, task="rl") - activations(ask, task="sft")
    assert more == 2 * 4096 * 128256
