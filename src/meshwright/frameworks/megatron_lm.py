"""Megatron-LM: the arguments of `pretrain_gpt.py`, on a command line or in its YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import Said, read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading, Value
from meshwright.frameworks.spelling import arguments, canonical, layer_list_text
from meshwright.frameworks.world import launcher_of

PIPELINE = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
}
"""Options that Megatron-LM has no argument for, and the argument that says the same."""


def read(command: Command) -> Reading:
    """One run from a command line."""
    return reading_of(command, read_arguments(command.arguments, command.unknowns))


def reading_of(command: Command, said: Said) -> Reading:
    """A reading from arguments that are already sorted."""
    launcher, open_ = launcher_of(command)
    return Reading(
        framework="megatron-lm",
        options=said.options,
        other=said.other,
        launcher=launcher,
        unknowns=(*said.unknowns, *open_),
        label=command.label,
    )


def words_of(options: Mapping[str, Plain]) -> list[str]:
    """Command-line words for options in canonical names; options it has no argument for are left out."""
    words: list[str] = []
    for name, value in options.items():
        words += _words(PIPELINE.get(name, name), value)
    return words


@cache
def _spellings() -> dict[tuple[str, bool], str]:
    """(canonical name, the value a switch sets) -> flag; valued flags under True."""
    found: dict[tuple[str, bool], str] = {}
    for flag, row in arguments().items():
        name, turned = canonical(row[0], True)
        sets = turned is True if row[1] in ("on", "off") else True
        if row[1] == "off":
            sets = not sets
        found.setdefault((name, sets), flag)
    return found


def _words(name: str, value: Plain) -> list[str]:
    spellings = _spellings()
    if value is None:
        return []
    if isinstance(value, bool):
        flag = spellings.get((name, value))
        return [f"--{flag}"] if flag and arguments()[flag][1] in ("on", "off") else []
    flag = spellings.get((name, True)) or spellings.get((name, False))
    if flag is None or arguments()[flag][1] in ("on", "off"):
        return []
    if name == "moe_layer_freq" and isinstance(value, tuple):
        value = layer_list_text(value)
    items = value if isinstance(value, tuple) else (value,)
    return [f"--{flag}", *(str(item) for item in items)] if items else []


def stated(reading: Reading) -> dict[str, Value]:
    """Options as stated, the chunk count under its canonical name."""
    options = dict(reading.options)
    chunks = options.pop("num_virtual_stages_per_pipeline_rank", None)
    if chunks is not None:
        options.setdefault("virtual_pipeline_model_parallel_size", chunks)
    return options


def files(plan: Plan) -> dict[str, str]:
    """`train.sh`: torchrun with pretrain_gpt.py's arguments."""
    head = f"{scripts.torchrun(plan)} pretrain_gpt.py"
    return {"train.sh": scripts.script(plan, head, scripts.grouped(words_of(plan.runnable())))}
