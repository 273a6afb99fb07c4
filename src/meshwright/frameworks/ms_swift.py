"""ms-swift: `megatron sft|pt|rlhf --tensor_model_parallel_size 4 ...`, switches written as true/false."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import replace

from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.megatron_lm import PIPELINE, reading_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading
from meshwright.frameworks.spelling import arguments, canonical

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
    known = {canonical(row[0], True)[0]: row[0] for row in arguments().values()}
    lines: list[list[str]] = []
    for name, value in options.items():
        name = PIPELINE.get(name, name)
        if name == "seq_length":
            lines.append(["--max_length", str(value)])
        elif name in known:
            dest, plain = _own(known[name], name, value)
            items = plain if isinstance(plain, tuple) else (plain,)
            lines.append([f"--{dest}", *(str(i).lower() if isinstance(i, bool) else str(i) for i in items)])
    return lines


def _own(dest: str, name: str, value: Plain) -> tuple[str, Plain]:
    """The switch as the table spells it: a flag that means `off` is written by its destination."""
    flag = next(f for f, row in arguments().items() if row[0] == dest)
    if arguments()[flag][1] == "off" and isinstance(value, bool):
        return flag.replace("-", "_"), not value
    return dest, value


def files(plan: Plan) -> dict[str, str]:
    """`train.sh`: `megatron pt` with NNODES and NPROC_PER_NODE."""
    ranks = {"NNODES": str(plan.nodes), "NPROC_PER_NODE": str(plan.gpus_per_node)}
    environment = {**plan.environment, **ranks}
    lines = [["--model", plan.model], *words_of(plan.options)]
    return {"train.sh": scripts.script(replace(plan, environment=environment), "megatron pt", lines)}
