"""Megatron Bridge's performance launcher: `setup_experiment.py -m llama3 -s 70b -g h100 -ng 64 -tp 4 ...`.

The recipe is named by model, task, number and kind of GPUs and number format; arguments override it.
Short options and programs are recalled: Megatron Bridge's packages (0.6.2) carry the recipes and no scripts.
"""

from __future__ import annotations

import os.path
from dataclasses import replace

from meshwright.frameworks.arguments import Said, read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.reading import Reading, Value
from meshwright.frameworks.recipes import recipe, with_recipe
from meshwright.frameworks.shell.text import Text
from meshwright.frameworks.world import from_counts

PROGRAMS = ("setup_experiment.py", "run_performance_workload.py")
SHORT = {
    "-m": "--model_family_name", "--model_name": "--model_family_name", "-mr": "--model_recipe_name",
    "-s": "--model_size", "-g": "--gpu", "-ng": "--num_gpus", "-gn": "--gpus_per_node", "-t": "--task",
    "-c": "--compute_dtype", "-fr": "--fp8_recipe", "-tp": "--tensor_model_parallel_size",
    "-pp": "--pipeline_model_parallel_size", "-cp": "--context_parallel_size",
    "-vp": "--virtual_pipeline_model_parallel_size", "-ep": "--expert_model_parallel_size",
    "-et": "--expert_tensor_parallel_size", "-mb": "--micro_batch_size", "-gb": "--global_batch_size",
    "-ms": "--max_steps", "-cg": "--cuda_graphs",
}  # fmt: skip
"""Short options of scripts/performance/argument_parser.py (recalled)."""
VPP = "virtual_pipeline_model_parallel_size"
FORMATS = {"fp8_cs": "fp8cs", "fp8_mx": "fp8mx", "fp8": "fp8cs", "fp8_sc": "fp8sc"}


def matches_command(command: Command) -> bool:
    return os.path.basename(command.program) in PROGRAMS or "scripts/performance/" in command.program


def read_command(command: Command) -> Reading:
    """The recipe of model, task, GPUs and number format, with what the command overrides."""
    words = [_long(word) for word in command.arguments]
    said = read_arguments(words, command.unknowns)
    options = dict(said.options)
    if VPP in said.other:
        options[VPP] = said.other[VPP]
    gpus, per_node = _count(said, "num_gpus"), _count(said, "gpus_per_node")
    kind = said.other.get("gpu")
    if per_node is None and kind is not None:
        per_node = Value(4 if str(kind.value).lower().startswith("gb") else 8, kind.source)
    launcher = from_counts(None, per_node)
    reading = Reading(
        framework="megatron-bridge",
        options=options,
        other=said.other,
        unknowns=tuple(said.unknowns),
        launcher=replace(launcher, world=gpus),
        gpu=Value(str(kind.value).upper(), kind.source) if kind is not None else None,
        label=command.label,
    )
    return with_recipe(reading, _recipe(said))


def _long(word: Text) -> Text:
    name = SHORT.get(word.plain)
    return Text.of(name, word.mark) if name is not None else word


def _count(said: Said, name: str) -> Value | None:
    value = said.other.get(name)
    return value if value is not None and isinstance(value.value, int) else None


def _recipe(said: Said) -> Value | None:
    """Name of the performance recipe; the nearest that exists by leaving out what is not known."""

    def word(name: str, default: str = "") -> str:
        return str(said.other[name].value) if name in said.other else default

    family, size = word("model_family_name"), word("model_size")
    model = word("model_recipe_name") or "_".join(part for part in (family, size) if part)
    if not model:
        return None
    dtype = word("compute_dtype", "bf16")
    where = f"{word('num_gpus')}gpu_{word('gpu', 'h100').lower()}_{FORMATS.get(dtype, dtype)}"
    name = f"{model}_{word('task', 'pretrain')}_{where}_config"
    source = next(said.other[n].source for n in ("model_recipe_name", "model_family_name") if n in said.other)
    if recipe(name) is None:
        # No recipe for these GPUs: the model is known all the same.
        name = f"{model}_{word('task', 'pretrain')}_config"
    return Value(name, source)
