"""ms-swift: `megatron sft|pt|rlhf --tensor_model_parallel_size 4 ...`, switches written as true/false."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from meshwright.facts import load_json
from meshwright.frameworks import megatron_lm, scripts
from meshwright.frameworks.arguments import Said, read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.megatron_lm import reading_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading, Source, Value
from meshwright.frameworks.world import from_counts

TASKS = ("sft", "pt", "rlhf", "dpo", "grpo", "export")


def matches_command(command: Command) -> bool:
    """The `megatron` program of ms-swift, its modules, or `swift sft` with Megatron's sizes."""
    name = os.path.basename(command.program)
    task = bool(command.words) and command.words[0] in TASKS
    sizes = any("tensor_model_parallel_size" in word for word in command.words)
    return (
        (name == "megatron" and task)
        or "swift/cli" in command.program
        or (name == "swift" and task and sizes)
    )


def read_command(command: Command) -> Reading:
    said = read_arguments(command.arguments, command.unknowns, flags_take_values=True)
    reading = _on_one_node(replace(reading_of(command, said), framework="ms-swift"), command)
    options = dict(reading.options)
    for name in ("virtual_pipeline_model_parallel_size", "microbatch_group_size_per_vp_stage"):
        if name in said.other:
            options.setdefault(name, said.other[name])
    if (sharded := options.get("use_megatron_fsdp")) is not None and sharded.value is True:
        # megatron/utils/megatron_lm_utils.py saves fsdp_dtensor then; there is no option for the format
        options.setdefault("ckpt_format", Value("fsdp_dtensor", Source(kind="default", name="ms-swift")))
    length = said.other.get("max_length")
    if length is not None and isinstance(length.value, int):
        options.setdefault("seq_length", length)
    options |= _task(command, said)
    model = next((said.other[key] for key in ("model", "load_safetensors") if key in said.other), None)
    return replace(reading, options=options, model=model)


def _on_one_node(reading: Reading, command: Command) -> Reading:
    """NPROC_PER_NODE alone: swift/cli hands torchrun the variables that are set, so it starts one node."""
    launcher = reading.launcher
    if launcher.nodes is not None or launcher.gpus_per_node is None or "NNODES" in command.environment:
        return reading
    one = Value(1, Source(kind="default", name="torchrun"))
    return replace(reading, launcher=from_counts(one, launcher.gpus_per_node, launcher.programs))


def _task(command: Command, said: Said) -> dict[str, Value]:
    """`megatron sft`, and whether adapters are trained: tuner_type, of releases before 4 train_type."""
    tuner = next((said.other[key] for key in ("tuner_type", "train_type") if key in said.other), None)
    rank = said.other.get("lora_rank")
    if tuner is not None and str(tuner.value).startswith("lora"):
        found = {"task": Value("lora", tuner.source)}
        return found | {"lora_rank": rank or Value(8, Source(kind="default", name="ms-swift"))}
    if command.words and command.words[0] == "sft":
        return {"task": Value("sft", Source(kind="default", name="megatron sft"))}
    return {}


def words_of(options: Mapping[str, Plain]) -> list[list[str]]:
    """`--name value` lines; the sequence length is `--max_length`."""
    lines: list[list[str]] = []
    for line in scripts.grouped(megatron_lm.words_of(_backend(options))):
        name = line[0].removeprefix("--").replace("-", "_")
        name = RENAMED.get(name, name)
        if name in known():
            lines.append([f"--{name}", *(line[1:] or ["true"])])
    return lines


RENAMED = {
    "seq_length": "max_length",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
}


@cache
def known() -> frozenset[str]:
    """Arguments that `megatron pt|sft|rlhf` takes; it refuses others."""
    return frozenset(load_json("meshwright.frameworks", "ms_swift_args.json")["arguments"])


def _backend(options: Mapping[str, Plain]) -> dict[str, Plain]:
    """DeepEP by its own switch: there is no argument for the backend of the flex dispatcher."""
    deepep = options.get("moe_flex_dispatcher_backend") == "deepep"
    return {**options, "moe_enable_deepep": True} if deepep else dict(options)


def files(plan: Plan) -> dict[str, str]:
    """`train.sh`: `megatron pt|sft` with NNODES and NPROC_PER_NODE."""
    ranks = {"NNODES": str(plan.nodes), "NPROC_PER_NODE": str(plan.gpus_per_node)}
    environment = {**plan.environment, **ranks}
    options = {
        "recompute_granularity": "none",
        **plan.options,
    }  # ms-swift recomputes unless it is told not to
    lines = [["--model", plan.checkpoint], *words_of(options)]
    if plan.task == "lora":
        lines[1:1] = [["--tuner_type", "lora"], ["--lora_rank", str(plan.lora_rank)]]
    head = "megatron pt" if plan.task == "pretrain" else "megatron sft"
    return {"train.sh": scripts.script(replace(plan, environment=environment), head, lines)}
