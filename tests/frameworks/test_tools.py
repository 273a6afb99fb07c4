"""Rescaling, comparing, reading by hand: small files whose answers can be worked out."""

from __future__ import annotations

import ast
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.errors import LayoutError, QuestionError
from meshwright.facts import load_json
from meshwright.frameworks import outputs
from meshwright.frameworks.check import check_reading, check_readings
from meshwright.frameworks.check_files import check_files
from meshwright.frameworks.compare import compare
from meshwright.frameworks.environment import advised
from meshwright.frameworks.gpus import gpu_in
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.read import Given, expand, read_command, read_files, read_text
from meshwright.frameworks.reading import Reading, Value
from meshwright.frameworks.recipes import recipe
from meshwright.frameworks.rescale import rescale
from meshwright.frameworks.spelling import layer_list, layer_list_text, plain_value, table
from meshwright.frameworks.view import Beside
from meshwright.frameworks.write import convert, write
from meshwright.job.precedents import all_recipes

DATA = Path(__file__).parent / "data"


def corpus(name: str) -> Reading:
    return read_files([DATA / name])[0]


# rescale


def test_twice_the_gpus_double_dp_and_hold_the_batch() -> None:
    found = rescale(corpus("02_tern_moe_4nodes.sh"), 64)
    before, after = found.before.layout(), found.after.layout()
    assert (before["dp"], after["dp"]) == (2, 4)
    assert (before["gbs"], after["gbs"]) == (256, 256)
    assert found.changes == {"nodes": (4, 8), "world": (32, 64)}
    assert found.efficiency is not None
    assert 0.5 < found.efficiency < 1


def test_scaling_the_batch_is_a_choice() -> None:
    found = rescale(corpus("02_tern_moe_4nodes.sh"), 64, batch="scale")
    assert found.after.layout()["gbs"] == 512


def test_half_the_gpus_halve_ep() -> None:
    found = rescale(corpus("02_tern_moe_4nodes.sh"), 16)
    assert found.changes["expert_model_parallel_size"] == (8, 4)
    assert found.after.verdict == "ok"


def test_a_batch_that_no_longer_divides_is_moved_to_the_nearest() -> None:
    found = rescale(corpus("04_heron13b_cont.sh"), 8 * 7)
    layout = found.after.layout()
    assert layout["dp"] == 7
    assert layout["gbs"] % (7 * layout["mbs"]) == 0
    assert abs(layout["gbs"] - 256) <= 7 * layout["mbs"] / 2


def test_impossible_scales_are_refused() -> None:
    with pytest.raises(LayoutError, match="8 GPUs"):
        rescale(corpus("03_basalt_671b.sh"), 8)  # 671e9 parameters do not fit eight 80 GB cards


# compare


def test_compare_lists_what_differs() -> None:
    text = (DATA / "02_tern_moe_4nodes.sh").read_text()
    (left,) = read_text(text, "a.sh")
    (right,) = read_text(text.replace("EP=${EP:-8}", "EP=${EP:-4}"), "b.sh")
    found = compare(left, right)
    assert list(found.differs) == ["expert_model_parallel_size"]
    costs = found.costs()
    assert set(costs) == {"step_seconds", "tokens_per_second_per_gpu", "peak_bytes"}
    assert costs["peak_bytes"][1] > costs["peak_bytes"][0]  # half the EP: twice the experts a rank


# supplying what a script leaves open


def test_arguments_settle_a_script_that_needs_them() -> None:
    values = ["cluster", "70B", "1", "64", "1e-4", "4096", "4", "2", "1", "yes", "yes"]
    given = Given(
        arguments=dict(enumerate(values, 1)),
        environment={"WORLD_SIZE": "2", "RANK": "0", "GPUS_ON_MACHINE": "8"},
    )
    (reading,) = read_text((DATA / "15_service_pretrain.sh").read_text(), "15.sh", given)
    assert (reading.get("num_layers"), reading.get("hidden_size")) == (80, 8192)
    assert reading.get("sequence_parallel") is True
    assert reading.launcher.world is not None
    assert reading.launcher.world.value == 16
    assert str(reading.options["num_query_groups"].source) == "15.sh:25"


def test_an_unknown_script_says_what_it_needs() -> None:
    result = check_reading(corpus("15_service_pretrain.sh"))
    said = " ".join(result.needs)
    for input_ in (
        "--arg 2=VALUE (size)",
        "--arg 7=VALUE (tp)",
        "--arg 4=VALUE (gbs)",
        "--env WORLD_SIZE=VALUE",
    ):
        assert input_ in said


def test_gpus_settle_a_batch_script_without_nodes() -> None:
    reading = corpus("16_plover_any_nodes.sbatch")
    assert check_reading(reading).verdict == "unknown"
    assert check_reading(reading, Beside(world=64)).verdict == "ok"
    assert check_reading(reading, Beside(world=48)).verdict == "invalid"


def test_environment_variables_win_over_defaults() -> None:
    given = Given(environment={"EP": "3", "NNODES": "3"})
    (reading,) = read_text((DATA / "02_tern_moe_4nodes.sh").read_text(), "x.sh", given)
    assert reading.get("expert_model_parallel_size") == 3
    assert str(reading.options["expert_model_parallel_size"].source) == "--env EP"
    assert check_reading(reading).verdict == "invalid"


# sources


def test_every_value_says_where_it_came_from() -> None:
    resolved = check_reading(corpus("07_bridge_30b_moe.sh")).resolved
    file = DATA / "07_bridge_30b_moe.sh"
    assert str(resolved["tensor_model_parallel_size"].source) == f"script argument $2, default at {file}:5"
    assert str(resolved["sequence_parallel"].source) == f"{file}:14"
    assert "recipe qwen3_30b_a3b" in str(resolved["seq_length"].source)
    assert resolved["num_moe_experts"].value == 128
    assert "model" in str(resolved["num_moe_experts"].source)


# documents


def test_placeholders_are_resolved() -> None:
    text = (
        "trainer:\n  devices: 8\n  num_nodes: ${oc.env:NODES,4}\n"
        "model:\n  tensor_model_parallel_size: ${trainer.devices}\n  hidden_size: 1024\n"
        "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n  micro_batch_size: 1\n"
    )
    (reading,) = read_text(text, "x.yaml")
    assert (reading.get("tensor_model_parallel_size"), reading.get("ffn_hidden_size")) == (8, 4096)
    assert reading.launcher.world is not None
    assert reading.launcher.world.value == 32
    (reading,) = read_text(text, "x.yaml", Given(environment={"NODES": "2"}))
    assert reading.launcher.world is not None
    assert reading.launcher.world.value == 16


def test_python_providers_and_group_calls_are_read() -> None:
    text = (
        "TP = 2\nprovider = GPTModelProvider(num_layers=8, hidden_size=512, num_attention_heads=8,\n"
        "    tensor_model_parallel_size=TP, context_parallel_size=4,\n"
        "    hierarchical_context_parallel_sizes=[2, 2], moe_layer_freq=[0] * 2 + [1] * 6)\n"
        "initialize_model_parallel(tensor_model_parallel_size=TP, pipeline_model_parallel_size=2 * TP)\n"
    )
    (reading,) = read_text(text, "x.py")
    assert reading.get("tensor_model_parallel_size") == 2
    assert reading.get("pipeline_model_parallel_size") == 4
    assert reading.get("hierarchical_context_parallel_sizes") == (2, 2)
    assert reading.get("moe_layer_freq") == (0, 0, 1, 1, 1, 1, 1, 1)


def test_hierarchical_sizes_are_read_from_a_command() -> None:
    command = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --context-parallel-size 4 "
    (reading,) = read_command([*command.split(), "--hierarchical-context-parallel-sizes", "2", "2", "--bf16"])
    assert reading.get("hierarchical_context_parallel_sizes") == (2, 2)
    assert reading.get("bf16") is True


def test_layer_lists_are_written_out_without_python() -> None:
    assert layer_list("([0]*3+[1]*2)") == (0, 0, 0, 1, 1)
    assert layer_list("__import__('os')") is None
    assert layer_list_text((0, 0, 0, 1, 1)) == "([0]*3+[1]*2)"


def test_words_become_values() -> None:
    words = {"8": 8, "1e-4": 1e-4, "True": True, "off": False, "null": None, "[2,2]": (2, 2), "bf16": "bf16"}
    assert {word: plain_value(word) for word in words} == words


def test_gpus_are_found_in_comments_only() -> None:
    assert gpu_in("# 8 x A100-80G boxes\n", "x").value == "A100-80GB"  # type: ignore[union-attr]
    assert gpu_in("NAME=h100_run\n", "x") is None
    assert gpu_in("# H100 or B200\n", "x") is None


def test_converting_from_bridge_says_the_precision_and_the_shape() -> None:
    written = convert(corpus("07_bridge_30b_moe.sh"), "megatron-lm")["train.sh"]
    (reading,) = read_text(written, "train.sh")
    assert reading.get("bf16") is True
    assert (reading.get("num_layers"), reading.get("num_moe_experts")) == (48, 128)
    assert reading.get("expert_tensor_parallel_size") == 1  # unset in Bridge, where that means 1


def test_converting_to_bridge_says_what_it_has_no_word_for() -> None:
    written = convert(corpus("02_tern_moe_4nodes.sh"), "megatron-bridge")["train.sh"]
    assert "optimizer.lr=0.0002" in written
    assert "model.lr" not in written
    assert "left out, for Megatron Bridge has no word: " in written
    assert "mock_data" in written.split("set -euo")[0]


def test_shipped_recipes_are_refused_only_where_they_cannot_run() -> None:
    """Every recipe of Megatron Bridge on the GPUs that its name says; 14 of them are known not to start."""
    wrong = []
    for one in all_recipes():
        per_node = 4 if one.gpu.startswith("GB") else 8
        machines = f"--nproc_per_node {min(one.gpus, per_node)} --nnodes {max(one.gpus // per_node, 1)}"
        command = f"torchrun {machines} run_recipe.py --recipe {one.recipe}"
        (reading,) = read_command(command.split())
        result = check_reading(replace(reading, gpu=Value(one.gpu)))
        if (result.verdict == "invalid") != bool(one.cannot_run):
            wrong.append(
                (one.recipe, one.cannot_run, [f.rule for f in result.findings if f.severity == "error"])
            )
    assert wrong == []


def test_recipes_are_found_by_their_generic_name() -> None:
    found = recipe("llama3_70b_pretrain_config")
    assert found is not None
    assert found.options["virtual_pipeline_model_parallel_size"] == 5
    assert recipe("no_such_recipe") is None


# environment


@pytest.mark.parametrize(
    ("gpu", "options", "wanted"),
    [
        ("H100", {"tensor_model_parallel_size": 2}, "1"),
        ("B200", {"tensor_model_parallel_size": 2}, "32"),
        ("H100", {"tensor_model_parallel_size": 2, "overlap_moe_expert_parallel_comm": True}, "32"),
        ("H100", {"use_megatron_fsdp": True}, "32"),
        ("H100", {"tensor_model_parallel_size": 1}, None),
    ],
)
def test_connections_follow_gpu_and_overlap(
    gpu: str, options: dict[str, int | bool], wanted: str | None
) -> None:
    found = advised("megatron-lm", Plan(options=options, gpu=gpu)).get("CUDA_DEVICE_MAX_CONNECTIONS")
    assert (found[0] if found else None) == wanted


def test_hybridep_on_a_rack() -> None:
    options = {"moe_flex_dispatcher_backend": "hybridep", "expert_model_parallel_size": 32}
    found = advised("megatron-lm", Plan(options=options, gpu="GB200", gpus_per_node=4))
    assert found["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"][0] == "32"
    assert found["NVLINK_DOMAIN_SIZE"][0] == "72"


# output


def test_sarif_names_rule_file_and_line() -> None:
    log = json.loads(outputs.sarif(check_readings([corpus("19_wren_moe.sh")])))
    assert log["version"] == "2.1.0"
    run = log["runs"][0]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    worst = run["results"][0]
    assert (worst["level"], worst["ruleId"]) == ("error", "world-divides-expert-grid")
    assert ids[worst["ruleIndex"]] == worst["ruleId"]
    place = worst["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == str(DATA / "19_wren_moe.sh")
    assert place["region"]["startLine"] > 0


def test_github_annotations_stay_on_one_line() -> None:
    text = outputs.github(check_readings([corpus("25_dunlin3b.sbatch")]))
    lines = text.splitlines()
    file = DATA / "25_dunlin3b.sbatch"
    assert lines[0].startswith(f"::error file={file},line=14,title=max-connections-1::tp=2")
    assert all(line.startswith("::") for line in lines)


def test_the_report_of_several_runs_takes_the_worst() -> None:
    report = check_readings(read_files([DATA / "22_sweep_70b.sh"]))
    assert [result.verdict for result in report.results] == ["ok", "invalid", "invalid"]
    assert report.verdict == "invalid"
    labels = [result.reading.label for result in report.results]
    assert labels[1] == "run 2: cfg=8 2  4 1 4 264"
    json.dumps(report.as_dict())


def test_directories_hold_their_config_files() -> None:
    names = {path.name for path in expand([DATA])}
    assert {"01_osprey7b_pretrain.sh", "12_titan_8b.toml", "kite-20b-a3b.sh"} <= names
    assert "truth.csv" not in names


def test_checking_a_directory_passes_over_files_that_say_nothing(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = check_files([DATA], progress=lambda done, total: seen.append((done, total)))
    assert len(report.results) == 42  # 40 files, one of which starts three runs
    assert not report.unread  # the two sourced model files start nothing, and nobody named them
    assert seen[-1] == (42, 42)
    assert report.verdict == "invalid"
    (tmp_path / "notes.sh").write_text("echo hello\n")
    with pytest.raises(QuestionError, match="starts no training"):
        check_files([tmp_path / "notes.sh"])
    report = check_files([DATA / "01_osprey7b_pretrain.sh", tmp_path / "notes.sh"])
    assert report.verdict == "unknown"
    assert list(report.unread) == [str(tmp_path / "notes.sh")]


def test_sourced_values_name_the_file_they_stand_in() -> None:
    reading = corpus("10_slime_kite_grpo.sh")
    assert str(reading.options["hidden_size"].source) == f"{DATA}/models/kite-20b-a3b.sh:8"


def test_misspelled_arguments_are_named() -> None:
    command = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --tensor-model-paralel-size 2 --own 3"
    )
    (reading,) = read_command(command.split())
    found = [f for f in check_reading(reading).findings if f.rule == "unknown-argument"]
    assert [f.fix for f in found] == ["--tensor-model-parallel-size?"]


def test_unknown_frameworks_are_named() -> None:
    with pytest.raises(QuestionError, match="megatron-lm"):
        write("megatron-ml", Plan(options={}))
    with pytest.raises(QuestionError, match="starts no training"):
        read_command(["ls", "-l"])


# words that frameworks have


def fields_in(module: str, name: str) -> set[str]:
    """Annotated names of a class, read from the installed package's source (importing it takes long)."""
    spec = importlib.util.find_spec("megatron.core") if importlib.util.find_spec("megatron") else None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("megatron-core is not installed")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / module).read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        n.target.id for n in found.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


@pytest.mark.engine
def test_words_written_for_bridge_are_fields_of_megatron_core() -> None:
    """Group by group: what is written under `ddp` is a field of the distributed data-parallel config, ..."""
    groups = load_json("meshwright.frameworks", "bridge_fields.json")["groups"]
    ddp = {"overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer", "grad_reduce_in_fp32"}
    assert ddp <= fields_in(
        "distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig"
    )
    assert ddp <= set(groups["ddp"])
    optimizer = {"lr", "min_lr", "optimizer", "use_precision_aware_optimizer", "optimizer_offload_fraction"}
    assert optimizer <= fields_in("optimizer/optimizer_config.py", "OptimizerConfig")
    assert optimizer <= set(groups["optimizer"])
    core = fields_in("transformer/transformer_config.py", "TransformerConfig")
    core |= fields_in("model_parallel_config.py", "ModelParallelConfig")
    degrees = {name for name in table()["short"].values() if name.endswith("parallel_size")}
    assert degrees | {"sequence_parallel", "num_layers", "hidden_size", "moe_router_topk"} <= core
    verl = table()["frameworks"]["verl"]["write"]
    assert set(verl["actor_rollout_ref.actor.megatron.override_transformer_config"]) <= core
