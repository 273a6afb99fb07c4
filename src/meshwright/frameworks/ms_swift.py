"""ms-swift: `megatron sft|pt|rlhf --tensor_model_parallel_size 4 ...`, switches written as true/false."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import replace

from meshwright.frameworks import megatron_lm, scripts
from meshwright.frameworks.arguments import read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.megatron_lm import reading_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading

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
    reading = replace(reading_of(command, said), framework="ms-swift")
    options = dict(reading.options)
    length = said.other.get("max_length")
    if length is not None and isinstance(length.value, int):
        options.setdefault("seq_length", length)
    model = next((said.other[key] for key in ("model", "load_safetensors") if key in said.other), None)
    return replace(reading, options=options, model=model)


def words_of(options: Mapping[str, Plain]) -> list[list[str]]:
    """`--name value` lines; the sequence length is `--max_length`."""
    lines: list[list[str]] = []
    for line in scripts.grouped(megatron_lm.words_of(options)):
        flag = line[0].replace("-", "_").replace("__", "--", 1)
        lines.append(
            ["--max_length", *line[1:]] if flag == "--seq_length" else [flag, *(line[1:] or ["true"])]
        )
    return lines


def files(plan: Plan) -> dict[str, str]:
    """`train.sh`: `megatron pt` with NNODES and NPROC_PER_NODE."""
    ranks = {"NNODES": str(plan.nodes), "NPROC_PER_NODE": str(plan.gpus_per_node)}
    environment = {**plan.environment, **ranks}
    options = {
        "recompute_granularity": "none",
        **plan.options,
    }  # ms-swift recomputes unless it is told not to
    lines = [["--model", plan.checkpoint], *words_of(options)]
    return {"train.sh": scripts.script(replace(plan, environment=environment), "megatron pt", lines)}
