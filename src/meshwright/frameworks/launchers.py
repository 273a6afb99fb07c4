"""The programs around a training script: srun, torchrun, python -m, uv run, bash -c, ...

Everything here is about plain words; what a launcher takes as options is data (`launchers.json`).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from meshwright.facts import load_json
from meshwright.frameworks.shell.text import Text

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Peeled:
    """One launcher of a command line: its name, its options and where the program it starts begins."""

    name: str
    options: Mapping[str, tuple[int, str]]
    """Option without dashes, `-` as `_` -> (index of the word that holds the value, the value)."""
    start: int
    """Index of the first word of the program that is started."""
    module: bool = False
    """The first word is a Python module, not a file."""
    assignments: tuple[int, ...] = field(default=())
    """Indices of NAME=VALUE words (`env NAME=VALUE program`)."""


@dataclass(frozen=True, slots=True)
class InnerShell:
    """A shell that a command line starts."""

    start: int
    """Index of the word `bash`."""
    script: int
    """Index of the script text (for -c) or path."""
    command: bool
    """It is text given with -c."""
    assignments: tuple[int, ...] = ()


@cache
def _table() -> dict[str, Any]:
    data: dict[str, Any] = load_json("meshwright.frameworks", "launchers.json")
    return data


@cache
def _by_name() -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        name: (kind, entry)
        for kind, entry in _table()["launchers"].items()
        for name in entry.get("names", [kind])
    }


def key_of(option: str) -> str:
    """`--nproc-per-node` and `--nproc_per_node` as one name."""
    return option.lstrip("-").replace("-", "_")


def peel(words: Sequence[str], at: int = 0) -> Peeled | None:
    """The launcher at `words[at]`, or None when it is the program itself."""
    start = at
    assignments: list[int] = []
    while at < len(words) and ASSIGNMENT.match(words[at]):
        assignments.append(at)
        at += 1
    found = _by_name().get(os.path.basename(words[at])) if at < len(words) else None
    if found is None:
        return Peeled("env", {}, at, False, tuple(assignments)) if at > start else None
    kind, entry = found
    at += 1
    if kind == "python" and words[at : at + 1] == ["-c"]:
        return None
    skip = entry.get("skip", ())
    while at < len(words) and words[at] in skip:
        at += 1
    if kind == "ray" and words[at - 1] != "submit":
        return None
    options, at, module, more = _options(words, at, entry)
    at = min(len(words), at + entry.get("operands", 0))
    module_name = words[at] if at < len(words) else ""
    if module and module_name in _modules():
        options_inner, at, module, _ = _options(words, at + 1, _by_name()["torchrun"][1])
        return Peeled("torchrun", {**options, **options_inner}, at, module, tuple(assignments + more))
    return Peeled(kind, options, at, module, tuple(assignments + more))


def _modules() -> list[str]:
    modules: list[str] = _table()["launchers"]["torchrun"]["modules"]
    return modules


def _options(
    words: Sequence[str], at: int, entry: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, str]], int, bool, list[int]]:
    """Options of one launcher, the index behind them, whether a module follows, NAME=VALUE words."""
    options: dict[str, tuple[int, str]] = {}
    flags = set(entry.get("flags", ()))
    module = False
    assignments: list[int] = []
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if ASSIGNMENT.match(word) and not word.startswith("-"):
            assignments.append(at)
            at += 1
            continue
        if not word.startswith("-") or word == "-":
            break
        name, equals, value = word.partition("=")
        if equals:
            options[key_of(name)] = (at, value)
            at += 1
        elif word in flags or key_of(word) in {key_of(flag) for flag in flags if flag.startswith("--")}:
            options[key_of(word)] = (at, "")
            at += 1
            if word in entry.get("module_flags", ()):
                module = True
                if entry.get("names", [""])[0] == "python":
                    break
        elif re.fullmatch(r"-[A-Za-z]\d+", word):
            options[word[1]] = (at, word[2:])
            at += 1
        else:
            count = entry.get("count", {}).get(word, 1)
            options[key_of(word)] = (
                min(at + 1, len(words) - 1),
                words[at + 1] if at + 1 < len(words) else "",
            )
            at += 1 + count
    return options, at, module, assignments


def peel_all(words: Sequence[str], limit: int = 12) -> tuple[list[Peeled], int]:
    """All launchers from the outside in, and the index of the training program."""
    found: list[Peeled] = []
    at = 0
    while len(found) < limit and (layer := peel(words, at)) is not None and layer.start > at:
        found.append(layer)
        at = layer.start
        if layer.module or (layer.name == "python" and at < len(words)):
            break
    return found, at


def inner_shell(words: Sequence[str]) -> InnerShell | None:
    """The shell that this command starts, if it starts one with a script or text."""
    layers, at = peel_all(words)
    assignments = tuple(index for layer in layers for index in layer.assignments)
    submits = bool(layers) and layers[-1].name == "sbatch"
    if at >= len(words):
        return None
    if submits or (re.search(r"\.(sh|sbatch|slurm|bash)$", words[at]) and not (layers and layers[-1].module)):
        return InnerShell(at, at, False, assignments)
    if os.path.basename(words[at]) not in ("bash", "sh", "zsh", "dash"):
        return None
    start, at = at, at + 1
    command = False
    while at < len(words) and words[at].startswith(("-", "+")):
        word = words[at]
        command = command or (word[0] == "-" and word[1:2] != "-" and "c" in word)
        at += 2 if word in _table()["shell_flags"]["with_value"] else 1
        if command:
            break
    return InnerShell(start, at, command, assignments) if at < len(words) else None


def reads_input(words: Sequence[str]) -> int | None:
    """Index of the shell (or sbatch) that takes its script from standard input; None where none does."""
    layers, at = peel_all(words)
    if at >= len(words):
        return len(words) if layers and layers[-1].name == "sbatch" else None
    if os.path.basename(words[at]) not in ("bash", "sh", "zsh", "dash"):
        return None
    rest = [word for word in words[at + 1 :] if word not in ("-", "-s", "--")]
    plain = all(re.fullmatch(r"[-+][a-z]+", word) and "c" not in word for word in rest)
    return at if plain or "-s" in words[at + 1 :] else None


REMOTE = {
    "ssh": "-bceilmopDEFIJLOQRSWw",
    "pdsh": "-wxlfRSugtcM",
    "clush": "-wgxlfo",
    "parallel-ssh": "-hHlptoe",
}
"""Programs that run a command on other machines, with their options that take a value."""


def remote(words: Sequence[str]) -> int | None:
    """Index at which the command for another machine begins (behind ssh, its options and the host)."""
    name = os.path.basename(words[0]) if words else ""
    if name not in REMOTE:
        return None
    at, host = 1, name in ("pdsh", "clush", "parallel-ssh")
    while at < len(words):
        word = words[at]
        if word.startswith("-") and len(word) > 1:
            at += 2 if len(word) == 2 and word[1] in REMOTE[name] else 1
        elif not host:
            host = True
            at += 1
        else:
            return at
    return None


SLURM_OPTIONS = {
    "N": "nodes", "n": "ntasks", "G": "gpus", "J": "job_name", "t": "time", "o": "output", "p": "partition",
    "A": "account", "c": "cpus_per_task", "w": "nodelist", "C": "constraint", "q": "qos", "e": "error",
}  # fmt: skip


def slurm_directives(content: Text) -> dict[str, Text]:
    """Options of the #SBATCH lines, long names with `_` (later lines win, as in sbatch the first does)."""
    found: dict[str, Text] = {}
    for raw in content.fields("\n"):
        line = raw.plain
        if not line.startswith("#SBATCH"):
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        words = list(raw.slice(7, len(raw)).fields())
        at = 0
        while at < len(words) and words[at].plain.startswith("-"):
            name, equals, value = words[at].partition("=")
            plain = name.plain
            if equals:
                found[SLURM_OPTIONS.get(key_of(plain), key_of(plain))] = value
            elif re.fullmatch(r"-[A-Za-z]\w+", plain):
                found[SLURM_OPTIONS.get(plain[1], plain[1])] = name.slice(2, len(name))
            elif at + 1 < len(words) and not words[at + 1].plain.startswith(("-", "#")):
                found[SLURM_OPTIONS.get(key_of(plain), key_of(plain))] = words[at + 1]
                at += 1
            else:
                found[key_of(plain)] = Text.of("", name.mark)
            at += 1
    return found


def gpus_of_slurm(directives: Mapping[str, Text]) -> tuple[Text | None, Text | None]:
    """(GPUs a node, kind of GPU) from --gpus-per-node, --gres, --ntasks-per-node.

    The value forms are `8`, `h100:8`, `gpu:8` and `gpu:h100:8`.
    """
    for key in ("gpus_per_node", "gres", "gpus_per_task"):
        value = directives.get(key)
        if value is None:
            continue
        parts = list(value.fields(":"))
        if key == "gres":
            if not parts or parts[0].plain != "gpu":
                continue
            parts = parts[1:]
        number = next((part for part in parts if re.fullmatch(r"\d+(\(.*)?", part.plain)), None)
        if key == "gpus_per_task" and number is not None:
            number = _times(number, directives.get("ntasks_per_node"))
        kind = next((part for part in parts if not part.plain[:1].isdigit()), None)
        if number is not None and number.plain.isdigit():
            return number, kind
    return None, None


def _times(number: Text, tasks: Text | None) -> Text | None:
    """GPUs a task times tasks a node."""
    if tasks is None or not tasks.plain.isdigit() or not number.plain.isdigit():
        return None
    return Text.of(str(int(number.plain[:6]) * int(tasks.plain[:6])), number.mark)


def slurm_variables(content: Text) -> dict[str, Text]:
    """SLURM_* variables that follow from the #SBATCH lines."""
    directives = slurm_directives(content)
    names: dict[str, Text] = {}
    nodes = directives.get("nodes")
    if nodes is not None and nodes.plain.isdigit():
        for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
            names[name] = nodes
    per_node, _ = gpus_of_slurm(directives)
    if per_node is not None:
        names["SLURM_GPUS_ON_NODE"] = per_node
        names["SLURM_GPUS_PER_NODE"] = per_node
    for option, name in (
        ("ntasks_per_node", "SLURM_NTASKS_PER_NODE"),
        ("ntasks", "SLURM_NTASKS"),
        ("cpus_per_task", "SLURM_CPUS_PER_TASK"),
        ("job_name", "SLURM_JOB_NAME"),
    ):
        if option in directives and directives[option].plain:
            names[name] = directives[option]
    return names
