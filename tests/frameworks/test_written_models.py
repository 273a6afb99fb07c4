"""What is written describes the model so that weights that exist can be loaded into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.read import read_text
from meshwright.frameworks.write import write
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.model.load import load_model
from meshwright.model.rows import model_from_row, model_to_row
from meshwright.model.spec import Model


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


def test_an_offloaded_optimizer_is_precision_aware_for_megatron_lm() -> None:
    execution = Execution(optimizer_offload=0.5)
    job = Job(seq_length=8192, global_batch=128)
    one = plan_of(find("llama-3-8b"), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), execution)
    assert said("megatron-lm", "train.sh", one)["use_precision_aware_optimizer"] is True
