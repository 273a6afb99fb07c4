"""Shapes and splits of weights; what each rank then holds is held against Megatron Core elsewhere."""

from __future__ import annotations

import pytest

from meshwright.model import catalog
from meshwright.model.huggingface import read_config
from meshwright.model.weights import (
    embedding_weights,
    head_weights,
    layer_weights,
    mtp_weights,
    padded_vocab,
    vision_weights,
)


@pytest.mark.parametrize(
    ("vocab", "tp", "padded"),
    [
        (50257, 8, 51200),  # GPT-3 in the MLPerf and Megatron papers
        (32000, 1, 32000),
        (128256, 8, 129024),
        (151936, 4, 152064),
    ],
)
def test_the_vocabulary_is_padded_to_a_multiple_of_128_tp(vocab, tp, padded):
    assert padded_vocab(vocab, tp) == padded


def by_name(weights):
    return {weight.name: weight for weight in weights}


def test_query_key_value_and_gate_up_are_one_matrix_each():
    """Llama-3-70B: 64 + 2 * 8 heads of 128; two times 28,672."""
    model = catalog.find("llama-3-70b")
    weights = by_name(layer_weights(model, model.kinds[0]))
    assert (weights["linear_qkv"].shape, weights["linear_qkv"].split) == ((10240, 8192), "n")
    assert (weights["linear_proj"].shape, weights["linear_proj"].split) == ((8192, 8192), "k")
    assert (weights["linear_fc1"].shape, weights["linear_fc1"].split) == ((57344, 8192), "n")
    assert (weights["linear_fc2"].shape, weights["linear_fc2"].split) == ((8192, 28672), "k")
    assert (weights["layer_norms"].count, weights["layer_norms"].split) == (2 * 8192, None)


def test_latent_attention_keeps_its_down_projections_whole():
    model = catalog.find("deepseek-v3")
    weights = by_name(layer_weights(model, model.kinds[1]))
    matrices = {
        name: weight.split for name, weight in weights.items() if weight.gemm and weight.part == "attn"
    }
    assert matrices == {
        "linear_q_down_proj": None, "linear_q_up_proj": "n", "linear_kv_down_proj": None,
        "linear_kv_up_proj": "n", "linear_proj": "k",
    }  # fmt: skip


def test_experts_lie_on_the_expert_grid_and_shared_ones_on_the_dense():
    model = catalog.find("deepseek-v3")
    weights = by_name(layer_weights(model, model.kinds[1]))
    routed, shared, bias = (
        weights[name] for name in ("experts.linear_fc1", "shared_experts.linear_fc1", "router.expert_bias")
    )
    assert (routed.grid, routed.copies, routed.active, routed.shape) == ("expert", 256, 8, (4096, 7168))
    assert (shared.grid, shared.copies, shared.split) == ("dense", 1, "n")
    assert weights["router"].split is None
    assert not bias.trained


def test_biases_follow_their_matrix_only_on_the_column_side():
    model = catalog.find("gpt3-175b")
    weights = by_name(layer_weights(model, model.kinds[0]))
    splits = {name: weights[name].split for name in weights if name.endswith(".bias")}
    assert splits == {
        "linear_qkv.bias": "n",
        "linear_proj.bias": None,
        "linear_fc1.bias": "n",
        "linear_fc2.bias": None,
    }


def test_a_tied_head_is_not_listed_twice():
    tied, untied = catalog.find("llama-3.2-1b"), catalog.find("llama-3-8b")
    assert "output_layer" not in by_name(head_weights(tied))
    assert by_name(head_weights(untied, vocab=129_024))["output_layer"].shape == (129_024, 4096)
    assert by_name(embedding_weights(tied, vocab=129_024))["word_embeddings"].shape == (129_024, 2048)


def test_an_mtp_module_has_projection_norms_and_a_layer():
    model = catalog.find("deepseek-v3")
    weights = by_name(mtp_weights(model, 0))
    assert weights["mtp.eh_proj"].shape == (7168, 14336)
    assert {"mtp.enorm", "mtp.hnorm", "mtp.final_norm", "experts.linear_fc2"} <= set(weights)


def test_a_vision_tower_adds_up_to_its_stated_total():
    """Qwen3-VL-8B: 576,388,336 parameters in tower and mergers (transformers, meta device)."""
    config = {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 4096, "num_hidden_layers": 36},
        "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
                          "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
    }  # fmt: skip
    model = read_config(config)
    assert sum(weight.count for weight in vision_weights(model)) == 576_388_336
    assert all(weight.part == "vision" for weight in vision_weights(model))
    assert vision_weights(catalog.find("llama-3-8b")) == ()
