"""What is written describes the model so that weights that exist can be loaded into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.read import read_text
from meshwright.frameworks.write import compose, write
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.model import serial
from meshwright.model.catalog import find
from meshwright.model.load import load_model
from meshwright.model.rows import model_from_row, model_to_row
from meshwright.model.spec import Model, RopeScaling


def plan(model: Model, length: int = 8192) -> Plan:
    job = Job(seq_length=length, global_batch=128)
    return plan_of(model, parse_cluster("8xH100"), job, Layout(tp=2, sp=True), Execution())


def said(framework: str, file: str, one: Plan) -> dict[str, object]:
    (reading,) = read_text(write(framework, one)[file], file)
    return {name: value.value for name, value in reading.options.items()}


@pytest.mark.parametrize(("name", "base", "epsilon"), [
    # rope_theta and rms_norm_eps of the models' own config.json
    ("llama-3-8b", 500_000, 1e-5), ("qwen3-8b", 1_000_000, 1e-6), ("qwen2.5-14b", 1_000_000, 1e-5),
    ("mixtral-8x7b", 1_000_000, 1e-5), ("deepseek-v3", 10_000, 1e-6), ("kimi-k2", 50_000, 1e-6),
])  # fmt: skip
def test_the_catalog_knows_rotary_base_and_epsilon(name: str, base: float, epsilon: float) -> None:
    model = find(name)
    assert (model.rope_base, model.norm_epsilon) == (base, epsilon)
    assert model_from_row(model_to_row(model)) == model


@pytest.mark.parametrize("framework", ["megatron-lm", "slurm", "slime", "primus"])
def test_both_are_written(framework: str) -> None:
    files = write(framework, plan(find("llama-3-8b")))
    (name,) = files
    options = said(framework, name, plan(find("llama-3-8b")))
    assert options["rotary_base"] == 500_000
    assert options["layernorm_epsilon"] == 1e-5


def test_bridge_is_told_where_no_recipe_knows_them() -> None:
    model = find("llama-3-8b")
    options = said("megatron-bridge", "overrides.yaml", plan(load_with(model, hugging_face_id="me/mine")))
    assert (options["rotary_base"], options["layernorm_epsilon"]) == (500_000, 1e-5)


def load_with(model: Model, **changes: object) -> Model:
    from dataclasses import replace

    return replace(model, name="mine", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [
    {"rope_theta": 250_000.0, "rms_norm_eps": 2e-6},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 250_000.0}, "rms_norm_eps": 2e-6},
])  # fmt: skip
def test_a_config_json_says_them(tmp_path: Path, fields: dict[str, object]) -> None:
    config = {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000, **fields,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_model(str(tmp_path / "config.json"))
    assert (model.rope_base, model.norm_epsilon) == (250_000, 2e-6)


def test_positions_reach_as_far_as_the_sequence() -> None:
    """Megatron-LM refuses max_position_embeddings below seq_length (arguments.py, validate_args)."""
    text = write("megatron-lm", plan(find("llama-3-8b"), 32768))["train.sh"]
    (reading,) = read_text(text, "train.sh")
    assert reading.get("max_position_embeddings") == 32768
    assert "max_position_embeddings raised from 8,192 to the sequence length" in text
    assert "raised" not in write("megatron-lm", plan(find("llama-3-8b")))["train.sh"]


def test_an_unknown_base_is_said() -> None:
    text = write("megatron-lm", plan(load_with(find("llama-3-8b"), rope_base=None)))["train.sh"]
    assert "the base of the rotary positions is not known here" in text


def test_a_precision_aware_optimizer_has_the_moments_that_were_priced() -> None:
    """The switch alone leaves them in fp32 (optimizer_config.py, exp_avg_dtype)."""
    job = Job(seq_length=8192, global_batch=128, optimizer="adam-precision-aware")
    one = plan_of(find("llama-3-8b"), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), Execution())
    options = said("megatron-lm", "train.sh", one)
    assert (options["exp_avg_dtype"], options["exp_avg_sq_dtype"]) == ("bf16", "bf16")


@pytest.mark.parametrize(("framework", "file"), [
    ("megatron-bridge", "recipe.py"), ("megatron-bridge", "overrides.yaml"), ("nemo", "recipe.py"),
    ("ms-swift", "train.sh"), ("slime", "run.sh"), ("primus", "exp.yaml"),
])  # fmt: skip
def test_the_moments_are_said_wherever_there_are_words(framework: str, file: str) -> None:
    job = Job(seq_length=8192, global_batch=128, optimizer="adam-precision-aware")
    one = plan_of(find("llama-3-8b"), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), Execution())
    options = said(framework, file, one)
    assert (options["exp_avg_dtype"], options["exp_avg_sq_dtype"]) == ("bf16", "bf16")
    if file == "recipe.py":  # an object takes torch's type; only Bridge's overrides turn words into one
        text = write(framework, one)[file]
        assert "exp_avg_dtype = torch.bfloat16" in text
        compile(text, file, "exec")
        assert text.index("import torch") < text.index("def ")


def test_an_offloaded_optimizer_is_precision_aware_for_megatron_lm() -> None:
    execution = Execution(optimizer_offload=0.5)
    job = Job(seq_length=8192, global_batch=128)
    one = plan_of(find("llama-3-8b"), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), execution)
    assert said("megatron-lm", "train.sh", one)["use_precision_aware_optimizer"] is True


@pytest.mark.parametrize(("name", "words"), [
    # Llama31Config8B of nemo-toolkit 2.5
    ("llama-3.1-8b", {"use_rope_scaling": True, "rope_scaling_factor": 8.0}),
    ("llama-3.2-1b", {"use_rope_scaling": True, "rope_scaling_factor": 32.0}),
    # config.json of DeepSeek-V3: rope_scaling, n_group, topk_group, routed_scaling_factor, scoring_func
    ("deepseek-v3", {
        "rotary_scaling_factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0, "moe_router_num_groups": 8,
        "moe_router_group_topk": 4, "moe_router_topk_scaling_factor": 2.5, "mtp_num_layers": 1,
        "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True,
        "moe_shared_expert_intermediate_size": 2048, "position_embedding_type": "rope",
    }),
    # KimiK2Provider of megatron-bridge 0.3.1
    ("kimi-k2", {"rotary_scaling_factor": 32.0, "moe_router_topk_scaling_factor": 2.827}),
    # DeepSeekV2LiteConfig of nemo-toolkit 2.5
    ("deepseek-v2-lite", {"moe_router_pre_softmax": True, "mscale": 0.707, "mscale_all_dim": 0.707}),
    # GPTOSSBridge of megatron-bridge 0.6.2, provider_bridge
    ("gpt-oss-20b", {
        "position_embedding_type": "yarn", "rotary_scaling_factor": 32.0, "yarn_beta_fast": 32.0,
        "yarn_original_max_position_embeddings": 4096, "yarn_beta_slow": 1.0,
        "yarn_correction_range_round_to_int": False, "softmax_type": "learnable", "window_size": (127, 0),
        "window_attn_skip_freq": 2, "quick_geglu": True, "glu_linear_offset": 1.0,
        "activation_func_clamp_value": 7.0, "moe_router_score_function": "softmax",
    }),
    # GLM45AirModelProvider106B of megatron-bridge 0.3.1
    ("glm-4.5-air", {"rotary_percent": 0.5, "moe_router_score_function": "sigmoid", "mtp_num_layers": 1}),
    # Gemma2Config9B of nemo-toolkit 2.5
    ("gemma-2-9b", {"layernorm_zero_centered_gamma": True, "window_attn_skip_freq": 2}),
    # Gemma3Config27B of nemo-toolkit 2.5: five layers with a window, then one without
    ("gemma-3-27b", {"window_size": (1023, 0), "window_attn_skip_freq": 6}),
])  # fmt: skip
def test_megatron_lm_is_told_what_weights_want(name: str, words: dict[str, object]) -> None:
    options = said("megatron-lm", "train.sh", plan(find(name), 4096))
    assert {word: options.get(word) for word in words} == words


@pytest.mark.parametrize(("name", "lost"), [
    ("kimi-k2", {"beta_fast"}),  # no argument; MLATransformerConfig takes 32
    ("gemma-2-9b", {
        "attn_logit_softcapping", "final_logit_softcapping", "scale_embeddings", "post_block_norms",
        "activation_func",
    }),
    ("nemotron-h-8b", {"model_parts"}), ("deepseek-v3.2", {"model_parts"}),
    ("gpt-oss-20b", set()), ("deepseek-v3", set()), ("glm-4.5-air", set()), ("qwen3-30b-a3b", set()),
    ("llama-3.1-8b", set()),
])  # fmt: skip
def test_what_megatron_lm_cannot_be_told_is_listed(name: str, lost: set[str]) -> None:
    done = compose("megatron-lm", plan(find(name), 4096))
    assert {item.option for item in done.not_expressed} == lost


@pytest.mark.parametrize(("name", "lost"), [
    ("llama-3.1-8b", set()), ("gpt-oss-20b", set()), ("deepseek-v3", set()), ("kimi-k2", set()),
    ("gemma-2-9b", {
        "attn_logit_softcapping", "final_logit_softcapping", "scale_embeddings", "post_block_norms",
    }),
])  # fmt: skip
def test_bridge_lists_what_it_cannot_be_told_of_a_model_without_a_recipe(name: str, lost: set[str]) -> None:
    done = compose("megatron-bridge", plan(load_with(find(name), hugging_face_id="me/mine"), 4096))
    assert {item.option for item in done.not_expressed} == lost


def test_bridge_names_yarn_by_its_own_fields() -> None:
    """YARN_ROPE_SCALING_MAPPING of megatron-bridge 0.6.2."""
    mine = load_with(find("gpt-oss-20b"), hugging_face_id="me/mine")
    text = " ".join(write("megatron-bridge", plan(mine, 4096))["overrides.yaml"].split())
    for line in (
        "yarn_rotary_scaling_factor: 32.0", "yarn_original_max_position_embeddings: 4096",
        "position_embedding_type: yarn", "activation_func: quick_gelu", "window_size: [127, 0]",
    ):  # fmt: skip
        assert line in text, line
    files = write("megatron-bridge", plan(load_with(find("llama-3.1-8b"), hugging_face_id="me/mine")))
    assert "rope_scaling: true" in files["overrides.yaml"]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v3", "llama-3.1-8b", "gemma-3-27b"])
def test_a_model_keeps_them_in_json(name: str) -> None:
    model = find(name)
    assert model_from_row(model_to_row(model)) == model
    assert serial.from_dict(json.loads(json.dumps(serial.to_dict(model)))) == model


LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
}  # fmt: skip
STRETCHED = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), [
    ({"rope_scaling": STRETCHED}, RopeScaling(kind="llama3", factor=8.0, original=8192)),
    ({"rope_parameters": {**STRETCHED, "rope_theta": 5e5}},
     RopeScaling(kind="llama3", factor=8.0, original=8192)),
    ({"rope_scaling": {"type": "linear", "factor": 4.0}},
     RopeScaling(kind="linear", factor=4.0, original=131072)),
    ({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0,
                       "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}},
     RopeScaling(kind="yarn", factor=40.0, original=4096, mscale=1.0, mscale_all_dim=1.0)),
    ({"rope_scaling": None}, None), ({"rope_scaling": {"rope_type": "default"}}, None),
    ({"rope_scaling": "much"}, None), ({"rope_scaling": {"type": "yarn", "factor": -3}}, None),
])  # fmt: skip
def test_a_config_json_says_how_positions_are_stretched(
    tmp_path: Path, fields: dict[str, object], expected: RopeScaling | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | fields))
    assert load_model(str(tmp_path / "config.json")).rope_scaling == expected


def test_a_config_json_says_how_experts_are_weighed(tmp_path: Path) -> None:
    """config.json of DeepSeek-V3."""
    config = {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
        "num_attention_heads": 128, "vocab_size": 129280, "n_group": 8, "topk_group": 4,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(str(tmp_path / "config.json")).router == find("deepseek-v3").router


def test_stretching_megatron_does_not_have_is_listed(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "factor": 32.0, "original_max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_scaling": scaling}))
    done = compose("megatron-lm", plan(load_model(str(tmp_path / "config.json"))))
    (left,) = done.not_expressed
    assert left.text == "rope_scaling_type=longrope 32"
    scaling = {**STRETCHED, "low_freq_factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_scaling": scaling}))
    done = compose("megatron-lm", plan(load_model(str(tmp_path / "config.json"))))
    assert [left.text for left in done.not_expressed] == ["low_freq_factor=2.0"]
