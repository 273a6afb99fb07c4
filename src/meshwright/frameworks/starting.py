"""From the launches of an evaluated script to commands that adapters read."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterable
from dataclasses import replace

from meshwright.frameworks import launchers
from meshwright.frameworks.commands import Command
from meshwright.frameworks.shell.evaluate import Launch, Shell
from meshwright.frameworks.shell.script import text_of_file
from meshwright.frameworks.shell.text import Text


def command_of(launch: Launch, shell: Shell) -> Command | None:
    """A launch without its launchers, None when nothing is left."""
    layers: list[tuple[launchers.Peeled, tuple[Text, ...]]] = []
    environment = dict(launch.environment)
    for words in launch.wrappers:
        peeled, _ = launchers.peel_all([word.plain for word in words])
        layers += [(layer, words) for layer in peeled]
    plain = [word.plain for word in launch.words]
    peeled, at = launchers.peel_all(plain)
    layers += [(layer, launch.words) for layer in peeled]
    if at >= len(plain):
        return None
    for layer, words in layers:
        environment |= _environment(layer, words)

    def read_file(path: str) -> tuple[str, Text] | None:
        found = shell.files.read(path, ".")
        if found is None:
            return None
        return found[0], found[1] if isinstance(found[1], Text) else text_of_file(found[1], found[0])

    return Command(
        program=plain[at],
        arguments=launch.words[at + 1 :],
        unknowns=shell.unknowns,
        module=bool(peeled and peeled[-1].module),
        layers=tuple(layers),
        environment=environment,
        directives=launch.directives,
        read_file=read_file,
        label=launch.label,
        maybe=launch.maybe,
    )


def _environment(layer: launchers.Peeled, words: tuple[Text, ...]) -> dict[str, Text]:
    """Variables that a launcher sets: `env A=1`, Ray's runtime_env, mpirun -x."""
    found: dict[str, Text] = {}
    for index in layer.assignments:
        name, _, value = words[index].partition("=")
        found[name.plain] = value
    if layer.name == "ray" and "runtime_env_json" in layer.options:
        index, text = layer.options["runtime_env_json"]
        try:
            variables = json.loads(text).get("env_vars", {}) if len(text) < 100_000 else {}
        except (ValueError, AttributeError, RecursionError):
            variables = {}
        if isinstance(variables, dict):
            found |= {str(k): Text.of(str(v), words[index].mark) for k, v in variables.items()}
    if layer.name == "mpirun":
        for index, word in enumerate(words[:-1]):
            if word.plain == "-x" and "=" in words[index + 1].plain:
                name, _, value = words[index + 1].partition("=")
                found[name.plain] = value
    return found


def distinct(commands: Iterable[Command]) -> list[Command]:
    """Commands without repetitions (retry loops start the same thing again)."""
    seen: set[tuple[str, ...]] = set()
    kept: list[Command] = []
    for command in commands:
        key = (command.program, *command.words, *_machines(command))
        if key not in seen:
            seen.add(key)
            kept.append(command)
    return kept


SIZES = (
    "nnodes",
    "nproc_per_node",
    "nodes",
    "N",
    "ntasks",
    "n",
    "np",
    "gpus_per_node",
    "num_nodes",
    "num_gpus",
)
"""Options of launchers that make another run of the same command; ranks and addresses do not."""


def _machines(command: Command) -> list[str]:
    """Launchers with their sizes."""
    found: list[str] = []
    for layer, _ in command.layers:
        found.append(layer.name)
        found += [f"{name} {layer.options[name][1]}" for name in SIZES if name in layer.options]
    return found


def numbered(commands: list[Command]) -> list[Command]:
    """Labels that tell several runs apart."""
    if len(commands) < 2:
        return [replace(command, label="") for command in commands]
    return [
        replace(command, label=f"run {number}" + (f": {command.label}" if command.label else ""))
        for number, command in enumerate(commands, 1)
    ]


def program_name(command: Command) -> str:
    return os.path.basename(command.program)
