"""What is written for NeMo 1 and 2 are NeMo's own names (nemo-toolkit 2.4.0 and 2.5.3)."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.engine.written_plans import PLANS, plan

from meshwright.cluster.parse import parse_cluster
from meshwright.facts import load_json
from meshwright.frameworks.plan import plan_of
from meshwright.frameworks.read import read_text
from meshwright.frameworks.write import compose, write
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.model import catalog

ASKED = {
    # self.cfg.get(...) of megatron_gpt_model.py and megatron_base_model.py, nemo-toolkit 2.4.0
    "bias", "qkv_bias", "activation", "openai_gelu", "override_vocab_size", "rotary_percentage",
    "seq_len_interpolation_factor", "scale_positional_embedding", "scale_factor", "apply_embedding_scaling",
    "share_embeddings_and_output_weights", "encoder_seq_length", "activations_checkpoint_granularity",
    "activations_checkpoint_method", "activations_checkpoint_num_layers", "ub_tp_comm_overlap", "mcore_gpt",
    "megatron_amp_O2", "optim",
}  # fmt: skip
STRATEGY = {
    # MegatronStrategy.__init__, nemo-toolkit 2.5.3
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
    "pipeline_model_parallel_layout", "microbatch_group_size_per_vp_stage",
    "num_distributed_optimizer_instances", "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
}  # fmt: skip
OVERRULED = {"add_bias_linear", "add_qkv_bias", "gated_linear_unit", "activation_func", "fp8", "bf16"}
"""What build_transformer_config sets itself, whatever `model` says."""


def config(name: str) -> dict[str, object]:
    job = Job(seq_length=4096, global_batch=128)
    one = plan_of(catalog.find(name), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), Execution())
    found: dict[str, object] = yaml.safe_load(write("nemo", one)["config.yaml"])["model"]
    return found


@pytest.mark.parametrize("case", PLANS)
def test_nemo_1_asks_for_every_name(case: str) -> None:
    model = yaml.safe_load(write("nemo", plan(case))["config.yaml"])["model"]
    core = set(load_json("meshwright.frameworks", "nemo1_fields.json")["groups"]["model"])
    assert set(model) <= core | ASKED
    assert not set(model) & OVERRULED


def test_nemo_1_is_told_bias_activation_and_embeddings_in_its_own_words() -> None:
    llama, gemma = config("llama-3.1-8b"), config("gemma-2-9b")
    assert (llama["bias"], llama["activation"]) == (False, "swiglu")
    assert llama["share_embeddings_and_output_weights"] is False
    assert (llama["scale_positional_embedding"], llama["scale_factor"]) == (True, 8.0)
    assert (gemma["activation"], gemma["openai_gelu"], gemma["apply_embedding_scaling"]) == (
        "geglu", True, True,
    )  # fmt: skip
    assert gemma["share_embeddings_and_output_weights"] is True


@pytest.mark.parametrize("case", PLANS)
def test_nemo_2_has_every_object_and_name(case: str) -> None:
    text = write("nemo", plan(case))["recipe.py"]
    for group, name in re.findall(r"^    recipe\.([\w.]+)\.(\w+) = ", text, re.MULTILINE):
        if (group, name) == ("trainer", "plugins"):
            continue
        assert name in load_json("meshwright.frameworks", "nemo2.json")["groups"][group]
        if group == "trainer.strategy":
            assert name in STRATEGY


def test_nemo_2_recipes_are_of_models_here() -> None:
    recipes = load_json("meshwright.frameworks", "nemo2.json")["recipes"]
    assert set(recipes) <= set(catalog.names())
    assert all(re.fullmatch(r"[a-z0-9_]+", module) for module in recipes.values())


@pytest.mark.parametrize(("name", "module"), [
    # modules of nemo/collections/llm/recipes, nemo-toolkit 2.5.3
    ("llama-3.1-8b", "llama31_8b"), ("qwen2.5-14b", "qwen25_14b"), ("gemma-2-9b", "gemma2_9b"),
    ("mixtral-8x7b", "mixtral_8x7b"), ("llama-3-70b", "llama3_70b"), ("qwen3-30b-a3b", "qwen3_30b_a3b"),
])  # fmt: skip
def test_nemo_2s_recipe_of_the_model_is_named(name: str, module: str) -> None:
    job = Job(seq_length=4096, global_batch=128)
    one = plan_of(catalog.find(name), parse_cluster("8xH100"), job, Layout(tp=2, sp=True), Execution())
    text = write("nemo", one)["recipe.py"]
    assert f"llm.{module}.pretrain_recipe(" in text
    (reading,) = read_text(text, "recipe.py")
    assert reading.get("tensor_model_parallel_size") == 2


def test_a_model_without_a_recipe_is_said_and_stages_of_a_recipe_are_unset() -> None:
    job = Job(seq_length=4096, global_batch=128)
    one = plan_of(catalog.find("gpt-oss-20b"), parse_cluster("8xH100"), job, Layout(ep=8), Execution())
    text = write("nemo", one)["recipe.py"]
    assert "NeMo 2.5 has no recipe of this model" in text
    assert "recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None" in text
    assert "recipe.trainer.strategy.sequence_parallel = False" in text


@pytest.mark.parametrize(("precision", "recipe"), [
    # nemo/collections/llm/recipes/precision/mixed_precision.py, nemo-toolkit 2.5.3
    ("fp8", "bf16_with_fp8_mixed"), ("fp8-current", "bf16_with_fp8_current_scaling_mixed"),
    ("mxfp8", "bf16_with_mxfp8_mixed"),
])  # fmt: skip
def test_nemo_2_is_told_the_number_format(precision: str, recipe: str) -> None:
    job = Job(seq_length=4096, global_batch=128, precision=precision)  # type: ignore[arg-type]
    one = plan_of(
        catalog.find("llama-3-8b"), parse_cluster("8xB200"), job, Layout(tp=2, sp=True), Execution()
    )
    done = compose("nemo", one)
    assert f"recipe.trainer.plugins = {recipe}()" in done.files["recipe.py"]
    (left,) = [item for item in done.not_expressed if item.option == "precision"]
    assert left.files == ("config.yaml",)
