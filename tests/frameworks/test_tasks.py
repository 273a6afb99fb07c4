"""What is trained is written, read back, or refused: never dropped in silence."""

from __future__ import annotations

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.errors import LayoutError
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.read import read_text
from meshwright.frameworks.write import compose, writers
from meshwright.job.spec import Execution, Job, Task
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find


def plan(task: Task, model: str = "llama3-70b") -> Plan:
    job = Job(seq_length=4096, global_batch=32, task=task, lora_rank=16)
    return plan_of(find(model), parse_cluster("8xH100"), job, Layout(tp=8, sp=True), Execution())


@pytest.mark.parametrize("task", ["sft", "lora"])
@pytest.mark.parametrize("framework", writers())
def test_a_task_is_read_back_or_refused(framework: str, task: Task) -> None:
    try:
        done = compose(framework, plan(task))
    except LayoutError as refusal:
        assert task in str(refusal)  # noqa: PT017
        assert "megatron-bridge" in str(refusal)  # noqa: PT017
        return
    first, text = next(iter(done.files.items()))
    (reading,) = read_text(text, first)
    assert reading.get("task") == task
    if task == "lora":
        assert reading.get("lora_rank") == 16


@pytest.mark.parametrize(("framework", "task", "words"), [
    # recipes/llama/h100/llama3.py of Megatron Bridge 0.6.2
    ("megatron-bridge", "lora", ["--recipe llama3_70b_peft_config", "peft.dim=16"]),
    ("megatron-bridge", "sft", ["--recipe llama3_70b_sft_config"]),
    # swift/megatron/arguments/megatron_args.py of ms-swift 4.6.0
    ("ms-swift", "lora", ["megatron sft", "--tuner_type lora", "--lora_rank 16"]),
    ("ms-swift", "sft", ["megatron sft"]),
    # collections/llm/recipes/llama3_70b.py of NeMo 2
    ("nemo", "lora", ["llama3_70b.finetune_recipe(", 'peft_scheme="lora"', "recipe.peft.dim = 16"]),
    ("nemo", "sft", ["llama3_70b.finetune_recipe(", 'peft_scheme="none"']),
    # megatron/training/arguments.py
    ("megatron-lm", "sft", ["--sft", "SFTTokenizer"]),
])  # fmt: skip
def test_in_the_words_of_its_framework(framework: str, task: Task, words: list[str]) -> None:
    text = "\n".join(compose(framework, plan(task)).files.values())
    assert [word for word in words if word not in text] == []
    assert "--mock-data" not in text


def test_a_model_without_a_recipe_of_the_task_is_refused() -> None:
    with pytest.raises(LayoutError, match="no recipe for --task lora of"):
        compose("megatron-bridge", plan("lora", "llama-2-13b"))


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ('dir=os.path.join("a", "b"), peft_scheme="none"', "sft"),
        ("dir=name(), peft_scheme=None", "sft"),
        ("dir=name()", "lora"),
        ('peft_scheme="lora"', "lora"),
        ("peft_scheme=scheme", None),
        ("**common", None),
    ],
)
def test_nemo_2_trains_what_the_scheme_of_its_call_says(words: str, task: str | None) -> None:
    lines = (
        "from nemo.collections import llm",
        "def configure(scheme, common):",
        f"    recipe = llm.llama3_8b.finetune_recipe({words})",
        "    recipe.trainer.strategy.tensor_model_parallel_size = 2  # no pretrain_recipe( here",
        "    return recipe",
    )
    (found,) = read_text("\n".join(lines), "recipe.py")
    assert found.get("task") == task
