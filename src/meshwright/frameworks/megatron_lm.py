"""Megatron-LM: the arguments of `pretrain_gpt.py`, on a command line or in its YAML."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import Said, read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Note, Plain, Reading, Value
from meshwright.frameworks.spelling import arguments, canonical, layer_list_text
from meshwright.frameworks.world import launcher_of

PIPELINE = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
}
"""Options that Megatron-LM has no argument for, and the argument that says the same."""


def read(command: Command) -> Reading:
    """One run from a command line."""
    said = read_arguments(command.arguments, command.unknowns)
    reading = reading_of(command, said)
    return replace(reading, notes=tuple(misspelled(said)))


def misspelled(said: Said) -> Iterator[Note]:
    """Arguments that are none, but nearly one; what is far from all of them may be a script's own."""
    for name, value in said.other.items():
        flag = name.replace("_", "-")
        if flag in arguments():
            yield Note(
                id="argument-without-value",
                severity="error",
                message=f"--{flag} is given no value",
                fix=f"a value behind --{flag}, or leave it out",
                line=value.line,
            )
            continue
        near = difflib.get_close_matches(flag, arguments(), n=1, cutoff=0.88)
        if near and len(flag) > 5:
            yield Note(
                id="unknown-argument",
                severity="warn",
                message=f"--{flag[:80]} is no argument of Megatron-LM",
                fix=f"--{near[0]}?",
                line=value.line,
            )


def reading_of(command: Command, said: Said) -> Reading:
    """A reading from arguments that are already sorted."""
    launcher, open_ = launcher_of(command)
    options = dict(said.options)
    if (tuned := options.get("sft")) is not None and tuned.value is True:
        options["task"] = Value("sft", tuned.source)
    return Reading(
        framework="megatron-lm",
        options=options,
        other=said.other,
        launcher=launcher,
        unknowns=(*said.unknowns, *open_),
        label=command.label,
    )


def words_of(options: Mapping[str, Plain]) -> list[str]:
    """Command-line words for options in canonical names; options it has no argument for are left out."""
    words: list[str] = []
    for name, value in {**options, **_demanded(options)}.items():
        words += _words(PIPELINE.get(name, name), value)
    return words


def _demanded(options: Mapping[str, Plain]) -> dict[str, Plain]:
    """What validate_args asks for beside other options."""
    if options.get("optimizer_cpu_offload") is True:
        return {"use_precision_aware_optimizer": True}
    return {}


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
    if name in ("moe_layer_freq", "window_attn_skip_freq") and isinstance(value, tuple):
        value = layer_list_text(value)
    if name == "window_size" and isinstance(value, tuple):
        value = ",".join(str(item) for item in value)
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
