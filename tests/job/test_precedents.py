"""Recipes are found by any name of the model, and the nearest one comes first."""

from __future__ import annotations

import pytest

from meshwright.cluster.catalog import find_gpu
from meshwright.job.defaults import default_job
from meshwright.job.precedents import all_recipes, precedents, recipes_of
from meshwright.layout.layout import Layout

H100 = find_gpu("H100")


def test_every_recipe_has_a_source_and_a_layout():
    for row in all_recipes():
        assert row.source.startswith("Megatron-Bridge@067f987:src/")
        assert (
            min(row.gpus, row.tp, row.pp, row.vpp, row.cp, row.ep, row.etp, row.mbs, row.gbs, row.seq_length)
            >= 1
        )


def test_recipes_divide_their_gpus_unless_marked():
    for row in all_recipes():
        step = Layout(tp=row.tp, pp=row.pp, cp=row.cp, ep=row.ep, etp=row.etp).min_gpus
        assert (row.gpus % step == 0) or "world%" in row.cannot_run, row.recipe


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama-3-70b", "llama3_70b"),
        ("meta-llama/Meta-Llama-3-70B", "llama3_70b"),
        ("meta-llama/Llama-3.1-405B-Instruct", "llama31_405b"),
        ("qwen2.5-1.5b", "qwen25_1p5b"),
        ("qwen3-0.6b", "qwen3_600m"),
        ("Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b"),
        ("olmoe-1b-7b", "olmoe_7b"),
        ("GLM-4.6", "glm45_355b"),
        ("gpt3-175b", "gpt3_175b"),
        ("llama-3.3-70b", "llama3_70b"),
    ],
)
def test_names_of_a_model(name, model):
    assert model in {row.model for row in recipes_of([name])}


@pytest.mark.parametrize("name", ["deepseek-v3", "", "/", "llama", "x" * 100_000])
def test_a_model_without_a_recipe_has_none(name):
    assert recipes_of([name]) == ()


@pytest.mark.parametrize(
    ("name", "gpu", "gpus", "layout"),
    [  # what the current recipes use
        ("llama-3-70b", "H100", 64, "64 H100 bf16: TP4 PP4 VPP5 CP2"),
        ("qwen3-30b-a3b", "H100", 16, "16 H100 bf16: EP16"),
        ("llama-3.1-405b", "H100", 1024, "1024 H100 bf16: TP8 PP8 VPP8 CP2"),
        ("olmoe-1b-7b", "H100", 8, "8 H100 bf16: EP8"),
        ("qwen3-235b-a22b", "H100", 256, "256 H100 bf16: TP2 PP8 VPP4 EP32"),
        ("llama-3-70b", "GB300", 32, "32 GB300 bf16: DP only FSDP"),
    ],
)
def test_the_nearest_recipe(name, gpu, gpus, layout):
    assert str(precedents([name], find_gpu(gpu), "pretrain", gpus)[0]) == layout


def test_another_task_has_other_recipes():
    assert {row.task for row in precedents(["llama3-70b"], H100, "lora", 8)} == {"lora"}


def test_recipes_that_cannot_run_are_left_out():
    near = precedents(["qwen3-235b-a22b"], find_gpu("GB200"), "pretrain", 64, count=1000)
    assert near
    assert not any(row.cannot_run for row in near)


def test_a_job_takes_its_recipe_and_says_so():
    job, assumed = default_job(["llama-3-70b"], H100, 64)
    assert (job.seq_length, job.global_batch) == (8192, 256)
    assert [item.option for item in assumed] == ["--seq-length", "--global-batch-size"]
    assert all("llama3_70b_pretrain_64gpu_h100_bf16_config" in item.source for item in assumed)


def test_a_model_without_a_recipe_takes_4_mi_tokens():
    job, assumed = default_job(["deepseek-v3"], H100, 256, max_position=163840)
    assert (job.seq_length, job.tokens_per_step) == (4096, 4 * 1024**2)
    assert all("our list of recipes has none" in item.source for item in assumed)


def test_a_short_model_bounds_the_sequence():
    assert default_job(["gpt2"], H100, 8, max_position=1024)[0].seq_length == 1024


def test_what_is_given_is_kept_and_not_listed():
    job, assumed = default_job(["llama-3-70b"], H100, 64, seq_length=4096, global_batch=96, task="sft")
    assert (job.seq_length, job.global_batch, job.task, assumed) == (4096, 96, "sft", ())


def test_a_sequence_of_ones_own_keeps_the_tokens_of_a_step():
    job, _ = default_job(["llama-3-70b"], H100, 64, seq_length=32768)
    assert job.tokens_per_step == 8192 * 256


def test_a_recipe_for_few_gpus_grows_with_the_cluster():
    job, assumed = default_job(["llama-3-8b"], H100, 2048)
    assert job.global_batch >= 2048
    assert "grown from" in assumed[1].source


def test_fine_tuning_keeps_the_batch_of_its_recipe_on_more_gpus():
    row = precedents(["llama3-70b"], H100, "sft", 32)[0]
    job, _ = default_job(["llama3-70b"], H100, 2 * row.gpus, task="sft")
    assert job.global_batch == max(row.gbs, 2 * row.gpus)


@pytest.mark.parametrize(
    ("model", "gpus", "batch"),
    [  # in proportion as the recipes of one model do, up to 4 Mi tokens on 512 GPUs and 16 Mi on 2,048
        ("llama-3-70b", 128, 512),
        ("llama-3-70b", 512, 512),
        ("llama-3-70b", 2048, 2048),
        ("deepseek-v3", 2048, 4096),
        ("deepseek-v3", 100_000, 3125),
    ],
)
def test_the_batch_of_many_gpus(model, gpus, batch):
    assert default_job([model], H100, gpus)[0].global_batch == batch


@pytest.mark.parametrize(("gpus", "batch"), [(96, 288), (120, 480), (1000, 1000), (7, 224), (104, 312)])
def test_a_batch_takes_over_the_odd_factor_of_the_gpus_and_says_so(gpus, batch):
    job, assumed = default_job(["llama-3-70b"], H100, gpus)
    odd = gpus // (gpus & -gpus)
    assert job.global_batch == batch
    assert batch % odd == 0
    assert f"divisible by {odd}" in assumed[-1].source


def test_the_json_form():
    _, assumed = default_job(["llama-3-70b"], H100, 64)
    assert assumed[0].as_dict() == {"option": "--seq-length", "value": 8192, "from": assumed[0].source}
