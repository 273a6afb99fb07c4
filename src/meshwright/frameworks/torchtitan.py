"""torchtitan: TOML, and the same options on the command line (`--parallelism.tensor_parallel_degree 4`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import is_flag
from meshwright.frameworks.commands import Command, source_of, value_of
from meshwright.frameworks.documents import Flat, toml_document
from meshwright.frameworks.dotted import megatron_name, nested, sort_options, write_paths
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading, Unknown, Value
from meshwright.frameworks.spelling import spelled, table
from meshwright.frameworks.world import derived, launcher_of

CONFIG_FLAGS = ("--job.config_file", "--job.config-file")


def matches_command(command: Command) -> bool:
    return "torchtitan" in command.program or any(word.startswith(CONFIG_FLAGS) for word in command.words)


def matches_document(flat: Flat) -> bool:
    return any(name.startswith("parallelism.") for name in flat) or (
        "training.seq_len" in flat and "model.flavor" in flat
    )


def read_command(command: Command) -> Reading:
    """The TOML beside the script, overridden by the words of the command."""
    said: Flat = {}
    unknowns: list[Unknown] = []
    base: Flat = {}
    configured: Value | None = None
    words = list(command.arguments)
    at = 0
    while at < len(words):
        flag, equals, inline = words[at].partition("=")
        at += 1
        if not is_flag(flag.plain):
            continue
        value = inline if equals else None
        if value is None and at < len(words) and not (is_flag(words[at].plain) and words[at].plain != "-1"):
            value = words[at]
            at += 1
        name = flag.plain.lstrip("-").replace("-", "_")
        if flag.plain == "--config" and value is not None:
            model = model_of_config(value.plain)
            configured = Value(model, source_of(value.mark)) if model else None
            continue
        if flag.plain in CONFIG_FLAGS and value is not None:
            found = command.read_file(value.plain)
            base = toml_document(found[1].plain, found[0]) if found is not None else {}
            continue
        read = (
            value_of(name, value, command.unknowns)
            if value is not None
            else Value(True, source_of(flag.mark))
        )
        if isinstance(read, Unknown):
            unknowns.append(replace(read, option=megatron_name("torchtitan", name) or name))
        else:
            said[name] = read
    reading = read_document({**base, **said}, {})
    launcher, open_ = launcher_of(command)
    return replace(
        reading,
        launcher=launcher,
        unknowns=(*reading.unknowns, *unknowns, *open_),
        label=command.label,
        model=reading.model or configured,
    )


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """The world is the product of the degrees, when no degree is left to the launcher (-1)."""
    done = sort_options("torchtitan", flat, environment)
    flavor = done.other.get("model.flavor")
    model = done.model
    if model is not None and flavor is not None:
        model = Value(f"{model.value} {flavor.value}", model.source)
    reading = Reading(
        framework="torchtitan",
        options=done.options,
        other=done.other,
        unknowns=tuple(done.unknowns),
        model=model,
    )
    product = world_of(reading)
    if product is None:
        return reading
    said = "the product of the degrees"
    return replace(reading, launcher=replace(reading.launcher, world=derived(product, said)))


DEGREES = {
    "data_parallel_replicate_degree": 1,
    "data_parallel_shard_degree": -1,
    "context_parallel_size": 1,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
}
"""The factors of torchtitan's mesh, with its defaults (shard -1: whatever is left)."""


def degrees(reading: Reading) -> dict[str, int]:
    """Every factor of the mesh."""
    found: dict[str, int] = {}
    for name, default in DEGREES.items():
        value = reading.get(name)
        found[name] = value if isinstance(value, int) and not isinstance(value, bool) else default
    return found


def world_of(reading: Reading) -> int | None:
    """Product of the degrees, None when one is left open."""
    product = 1
    for value in degrees(reading).values():
        if value < 1:
            return None
        product *= value
    return product


def files(plan: Plan) -> dict[str, str]:
    """`train.sh` for torchtitan 0.3, `train.toml` for releases up to 0.2; data as one sharded dimension."""
    options: dict[str, Plain] = dict(plan.options)
    if options.get("expert_tensor_parallel_size") == 1:  # later releases have no such degree
        del options["expert_tensor_parallel_size"]
    grid = 1
    for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
        size = options.get(name)
        grid *= size if isinstance(size, int) else 1
    options.setdefault("data_parallel_replicate_degree", 1)
    options.setdefault("data_parallel_shard_degree", plan.world // grid if plan.world % grid == 0 else -1)
    flat = write_paths("torchtitan", options)
    tree = nested(flat)
    lines = [f"# {line}" for line in plan.heading.splitlines()]
    model, _, flavor = plan.model.partition(" ")
    lines += ["", "[model]", f'name = "{model}"', *([f'flavor = "{flavor}"'] if flavor else [])]
    for section, entries in tree.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in entries.items())]
    module, config = named(plan.name)
    words = [["--module", module, "--config", config], *([f"--{n}", spelled(v)] for n, v in flat.items())]
    head = f"{scripts.torchrun(plan)} -m torchtitan.train"
    return {"train.sh": scripts.script(plan, head, words), "train.toml": "\n".join([*lines, ""])}


def named(model: str) -> tuple[str, str]:
    """(--module, --config) of a model; words to be replaced where torchtitan has none."""
    found = table()["torchtitan_configs"].get(model)
    return (str(found[0]), str(found[1])) if found is not None else ("MODULE", "CONFIG")


def model_of_config(config: str) -> str | None:
    """The model that a --config of torchtitan stands for."""
    rows = table()["torchtitan_configs"].items()
    return next((n for n, row in rows if isinstance(row, list) and row[1] == config), None)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'
