"""What a framework has no word for is said: in the file, and as data."""

from __future__ import annotations

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.write import compose, writers
from meshwright.frameworks.written import Written
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find

RICH = Execution(
    recompute=Recompute(granularity="selective", modules=("mlp", "layernorm")),
    dispatcher="deepep",
    cuda_graphs="attn",
    optimizer_offload=0.5,
)
LAYOUT = Layout(tp=2, pp=2, vpp=2, cp=2, ep=8, sp=True)


def plan(execution: Execution = RICH, layout: Layout = LAYOUT, precision: str = "fp8-current") -> Plan:
    job = Job(seq_length=8192, global_batch=512, precision=precision)  # type: ignore[arg-type]
    return plan_of(find("qwen3-30b-a3b"), parse_cluster("64xH100"), job, layout, execution)


def left(done: Written) -> set[str]:
    return {item.option for item in done.not_expressed}


@pytest.mark.parametrize(("framework", "lost"), [
    # torchtitan has no interleaving by a number, no Megatron dispatchers, graphs or optimizer offload
    ("torchtitan", {"virtual_pipeline_model_parallel_size", "recompute_modules", "moe_token_dispatcher_type",
                    "moe_flex_dispatcher_backend", "cuda_graph_impl", "optimizer_cpu_offload", "precision"}),
    ("nemo-rl", {"virtual_pipeline_model_parallel_size", "recompute_modules", "moe_flex_dispatcher_backend",
                 "cuda_graph_impl", "precision"}),
    ("megatron-deepspeed", {"recompute_modules", "moe_flex_dispatcher_backend", "optimizer_cpu_offload",
                            "cuda_graph_impl"}),
    ("nemo", {"optimizer_cpu_offload", "precision"}),
    ("verl", {"global_batch_size", "seq_length", "precision", "cuda_graph_impl"}),
])  # fmt: skip
def test_what_is_lost_is_listed(framework: str, lost: set[str]) -> None:
    done = compose(framework, plan())
    assert lost <= left(done)
    for item in done.not_expressed:
        for file in item.files:
            assert item.text in done.files[file], (item, file)


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-bridge", "slurm", "kubernetes", "slime"])
def test_frameworks_with_megatrons_words_lose_nothing(framework: str) -> None:
    done = compose(framework, plan())
    assert done.not_expressed == ()
    assert not any("left out" in text for text in done.files.values())


@pytest.mark.parametrize("framework", writers())
def test_a_plain_plan_says_nothing_of_its_defaults(framework: str) -> None:
    done = compose(framework, plan(Execution(distributed_optimizer=True), Layout(), "bf16"))
    assert "cp_comm_type" not in left(done)
    assert "tensor_model_parallel_size" not in left(done)
    assert "precision" not in left(done)


def test_the_data_names_option_value_and_files() -> None:
    (found,) = [
        entry for entry in compose("torchtitan", plan()).as_dict()["not_expressed"]
        if entry["option"] == "recompute_modules"
    ]  # fmt: skip
    files = ["train.sh", "train.toml"]
    assert found == {"option": "recompute_modules", "value": ("mlp", "layernorm"), "files": files}
