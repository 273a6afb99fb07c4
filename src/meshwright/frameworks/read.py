"""Reading what people have: files of any known style, or a live command."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from meshwright.errors import QuestionError
from meshwright.frameworks import documents, kubernetes, launchers, megatron_bridge, nemo, world
from meshwright.frameworks.adapters import ADAPTERS, Adapter, adapter, names
from meshwright.frameworks.commands import Command, source_of
from meshwright.frameworks.defaults import with_defaults
from meshwright.frameworks.gpus import gpu_in
from meshwright.frameworks.reading import Note, Reading, Unknown, Value
from meshwright.frameworks.shell import builtins
from meshwright.frameworks.shell.evaluate import Shell
from meshwright.frameworks.shell.files import Files, read_plain
from meshwright.frameworks.shell.problems import Problem
from meshwright.frameworks.shell.script import MAX_SOURCE, text_of_file
from meshwright.frameworks.shell.signals import Signal
from meshwright.frameworks.shell.state import OutOfBudget, State
from meshwright.frameworks.shell.text import Mark, Text
from meshwright.frameworks.starting import command_of, distinct, numbered

SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".toml", ".py", ".json")
MAX_FILES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person says beside the files."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[int, str] = field(default_factory=dict)
    """Positional arguments of scripts, by number."""
    framework: str | None = None


def read_files(
    paths: Iterable[str | Path],
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
    framework: str | None = None,
) -> list[Reading]:
    """Every run that the files describe, in order; raises QuestionError for files that say nothing."""
    given = Given(environment=environment or {}, arguments=arguments or {}, framework=framework)
    _check_framework(framework)
    return [reading for path in paths for reading in read_file(Path(path), given)]


def _check_framework(framework: str | None) -> None:
    if framework is not None and adapter(framework) is None:
        raise QuestionError(f"unknown framework {framework!r}; known: {', '.join(names())}")


def expand(paths: Iterable[str | Path]) -> list[Path]:
    """Files, with directories and glob patterns replaced by the config files in them; each file once.

    Hidden files and directories inside a directory are passed over; links are not followed.
    """
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside: Iterable[Path] = _in_directory(path)
        elif any(char in str(given) for char in "*?[") and not path.exists():
            inside = _matching(str(given))
        else:
            inside = (path,)
        for file in inside:
            found[file] = None
            if len(found) > MAX_FILES:
                raise QuestionError(f"more than {MAX_FILES:,} files; name a smaller directory")
    return list(found)


def _in_directory(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and name.endswith(SUFFIXES):
                yield Path(here, name)


def _matching(pattern: str) -> Iterator[Path]:
    """Files that a pattern names (`configs/*.yaml`, `**/*.sh`); no directories."""
    try:
        names = glob.iglob(pattern, recursive=True)
        yield from (Path(name) for name in names if os.path.isfile(name))
    except (re.error, RecursionError, ValueError):
        return


def read_file(path: Path, given: Given | None = None) -> list[Reading]:
    """The runs of one file."""
    given = given or Given()
    content = read_plain(path, MAX_SOURCE)
    if content is None:
        raise QuestionError(why_unreadable(path))
    return read_text(content, str(path), given, path.parent)


def why_unreadable(path: Path) -> str:
    """A sentence on why a file cannot be read."""
    try:
        size = path.stat().st_size
    except OSError as problem:
        return f"{path}: {problem.strerror or problem}"
    if not path.is_file():
        return f"{path} is no plain file"
    if size > MAX_SOURCE:
        return f"{path} has {size:,} bytes; a launch script or config of more than {MAX_SOURCE:,} is not read"
    return f"{path} is no text file"


def read_text(content: str, name: str, given: Given | None = None, root: Path | None = None) -> list[Reading]:
    """The runs that a text describes; `name` tells its kind and is shown in findings."""
    given = given or Given()
    suffix = os.path.splitext(name)[1].lower()
    if suffix in (".yaml", ".yml", ".json"):
        readings = _read_yaml(content, name, given, root)
    elif suffix == ".toml":
        readings = _read_documents([documents.toml_document(content, name)], name, given)
    elif suffix == ".py":
        readings = _read_python(content, name, given)
    else:
        readings = read_script(content, name, given, root)
    gpu = gpu_in(content, name)
    return [
        replace(
            reading,
            sources=reading.sources or (name,),
            gpu=reading.gpu or gpu,
        )
        for reading in readings
    ]


def _read_yaml(content: str, name: str, given: Given, root: Path | None) -> list[Reading]:
    docs = (
        [documents.json_document(content, name)]
        if name.endswith(".json")
        else documents.yaml_documents(content, name)
    )
    if any(kubernetes.matches_document(flat) for flat in docs):
        return _read_manifests(docs, content, name, given, root)
    return _read_documents(docs, name, given)


def _read_documents(docs: Sequence[documents.Flat], name: str, given: Given) -> list[Reading]:
    """Config documents by the first adapter that knows them."""
    readings: list[Reading] = []
    for flat in docs:
        chosen = _document_adapter(flat, given.framework)
        if chosen is not None and chosen.read_document is not None:
            readings.append(with_defaults(chosen.read_document(flat, given.environment)))
    if not readings:
        known = ", ".join(one.title for one in ADAPTERS if one.matches_document is not None)
        raise QuestionError(f"{name} is no config of a framework that is known here ({known}, Kubernetes)")
    return readings


def _document_adapter(flat: documents.Flat, framework: str | None) -> Adapter | None:
    if framework is not None:
        return adapter(framework)
    return next((a for a in ADAPTERS if a.matches_document is not None and a.matches_document(flat)), None)


def _read_python(content: str, name: str, given: Given) -> list[Reading]:
    is_nemo = given.framework == "nemo" or (given.framework is None and nemo.matches_python(content))
    read = nemo.read_python if is_nemo else megatron_bridge.read_python
    readings = read(content, name, given.environment)
    if not readings:
        raise QuestionError(f"{name} sets nothing of a Megatron training (no cfg.model.x = N, no provider)")
    return readings


def _read_manifests(
    docs: Sequence[documents.Flat], content: str, name: str, given: Given, root: Path | None
) -> list[Reading]:
    readings: list[Reading] = []
    for job in kubernetes.jobs(list(docs), name, content):
        files = Files.of(job.files, root or Path())
        shell = Shell(files, State(variables=dict(job.environment), exported=set(job.environment)))
        _give(shell.state, given)
        if job.words:
            _guarded(shell, partial(builtins.external, shell, list(job.words), {}))
        for reading in _readings_of(shell, given):
            launcher = world.from_counts(
                job.nodes or reading.launcher.nodes,
                reading.launcher.gpus_per_node or job.gpus_per_node,
                ("kubernetes", *reading.launcher.programs),
            )
            if reading.launcher.world is not None and "mpirun" in reading.launcher.programs:
                launcher = replace(launcher, world=reading.launcher.world)
            readings.append(replace(reading, launcher=launcher, gpu=reading.gpu or job.gpu))
    if not readings:
        raise QuestionError(f"{name} holds no job whose container starts a training that is known here")
    return readings


def _guarded(shell: Shell, work: Callable[[], object]) -> None:
    try:
        work()
    except Signal:
        return
    except (OutOfBudget, RecursionError):
        shell.problems.append(Problem("the script does more than a launch script can; reading stopped"))


def _give(state: State, given: Given) -> None:
    """Environment variables and arguments that the person gave."""
    for name, value in given.environment.items():
        state.variables[name] = Text.of(value, Mark(f"--env {name}", 0, "given", f"--env {name}")) or Text()
        state.exported.add(name)
    if given.arguments:
        last = min(max(given.arguments), 200)
        texts = [given.arguments.get(number, "") for number in range(1, last + 1)]
        state.positional = [
            Text.of(t, Mark(f"--arg {n}", 0, "given", f"--arg {n}")) for n, t in enumerate(texts, 1)
        ]
        state.arguments_given = True


def read_script(content: str, name: str, given: Given, root: Path | None = None) -> list[Reading]:
    """The runs that a shell script starts."""
    text = text_of_file(content, name)
    state = State()
    state.variables.update(launchers.slurm_variables(text))
    _give(state, given)
    shell = Shell(_files(root, name), state)
    shell.directives = launchers.slurm_directives(text)
    shell.run_file(os.path.basename(name), text)
    readings = _readings_of(shell, given)
    if not readings:
        for path, script in list(shell.files.virtual.items()):
            if script.plain.lstrip().startswith("#!") or path.endswith((".sh", ".sbatch")):
                shell.directives = launchers.slurm_directives(script)
                shell.state.variables.update(launchers.slurm_variables(script))
                shell.run_file(path, script)
        readings = _readings_of(shell, given)
    if not readings:
        raise QuestionError(_nothing_started(shell, name))
    return readings


def _files(root: Path | None, name: str) -> Files:
    """Files near a script; shown with the directory as the person wrote it."""
    folder = os.path.dirname(name)
    return Files(root or Path(), shown_root=f"{folder}/" if folder else "")


def _nothing_started(shell: Shell, name: str) -> str:
    started = sorted({launch.words[0].plain[:30] for launch in shell.launches if launch.words})[:6]
    said = f"; it starts {', '.join(started)}" if started else ""
    problems = "; ".join(problem.text for problem in shell.problems[:3])
    return f"{name} starts no training that is known here{said}" + (f" ({problems})" if problems else "")


def _readings_of(shell: Shell, given: Given) -> list[Reading]:
    """Launches as readings, through the adapter that knows each."""
    commands = [command for launch in shell.launches if (command := command_of(launch, shell)) is not None]
    pairs = [(command, _command_adapter(command, given.framework)) for command in distinct(commands)]
    known = [(command, chosen) for command, chosen in pairs if chosen is not None]
    labelled = numbered([command for command, _ in known])
    return [_finished(command, chosen, shell) for command, (_, chosen) in zip(labelled, known, strict=True)]


def _command_adapter(command: Command, framework: str | None) -> Adapter | None:
    """Who reads this command; with a framework named, only commands that look like a training at all."""
    found = next((a for a in ADAPTERS if a.matches_command is not None and a.matches_command(command)), None)
    if found is not None and framework is not None:
        named = adapter(framework)
        return named if named is not None and named.read_command is not None else found
    return found


def _finished(command: Command, chosen: Adapter, shell: Shell) -> Reading:
    """A reading with environment, notes on what could not be read, and settled labels."""
    assert chosen.read_command is not None
    reading = with_defaults(chosen.read_command(command))
    environment: dict[str, Value] = {}
    unknowns: list[Unknown] = []
    for name, text in command.environment.items():
        if text.is_known:
            environment[name] = Value(text.plain, source_of(text.mark))
        else:
            environment[name] = Value(shell.unknowns.shown(text), source_of(text.mark))
    notes = [
        Note(id="not-read", severity="advice", message=problem.text, line=problem.line)
        for problem in shell.problems
        if not re.search(r"activate|bashrc|conda|profile|modules", problem.text)
    ]
    gpu = _gpu_of(command)
    return replace(
        reading,
        environment={**environment, **reading.environment},
        unknowns=(*reading.unknowns, *unknowns),
        notes=(*reading.notes, *notes),
        gpu=reading.gpu or gpu,
    )


def _gpu_of(command: Command) -> Value | None:
    """Kind of GPU that #SBATCH or srun options name."""
    _, kind = launchers.gpus_of_slurm(command.directives)
    if kind is None:
        return None
    return gpu_in(kind.plain, kind.mark.file, kind.mark.line)


def read_command(words: Sequence[str], given: Given | None = None, root: Path | None = None) -> list[Reading]:
    """The run that a live command starts (`check -- torchrun ... pretrain_gpt.py ...`)."""
    given = given or Given()
    state = State()
    _give(state, given)
    shell = Shell(Files(root or Path(), {}), state)
    texts = [
        Text.of(word, Mark("command", 0)) if word else Text((("", Mark("command", 0)),)) for word in words
    ]
    prefix: dict[str, Text] = {}
    while texts and launchers.ASSIGNMENT.match(texts[0].plain):
        name, _, value = texts.pop(0).partition("=")
        prefix[name.plain] = value
    if texts:
        _guarded(shell, lambda: builtins.external(shell, texts, prefix))
    readings = _readings_of(shell, given)
    if not readings:
        raise QuestionError(
            f"the command {' '.join(words)[:80]!r} starts no training that is known here; "
            f"known: {', '.join(one.title for one in ADAPTERS if one.matches_command)}"
        )
    return [replace(reading, sources=("command",)) for reading in readings]


def iter_readings(
    paths: Iterable[Path], given: Given
) -> Iterator[tuple[Path, list[Reading] | QuestionError]]:
    """Files one by one, with what they say or why they say nothing (for thousands of files)."""
    for path in paths:
        try:
            yield path, read_file(path, given)
        except QuestionError as problem:
            yield path, problem
