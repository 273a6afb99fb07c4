"""What a file or command says, with where each value came from.

A `Reading` is one training run as some framework's own words describe it. Options carry Megatron's
argument names (`tensor_model_parallel_size`, `global_batch_size`, ...), whatever the framework calls
them; words that have no Megatron name stay in `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Plain = str | int | float | bool | tuple[object, ...] | None
Kind = Literal["stated", "environment", "argument", "recipe", "model", "default", "derived", "given"]
"""stated: written in a file; environment, argument: a variable or positional argument of the script,
with or without its default; recipe, model: known from a name; default: the framework's own;
derived: computed from other values; given: said beside the file (--gpus, --framework)."""

FrameworkName = Literal[
    "megatron-lm",
    "megatron-core",
    "megatron-bridge",
    "nemo",
    "nemo-rl",
    "verl",
    "ms-swift",
    "slime",
    "primus",
    "torchtitan",
    "megatron-deepspeed",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value came from."""

    kind: Kind = "stated"
    file: str = ""
    line: int | None = None
    name: str = ""
    """The variable, argument, recipe or rule that supplied it."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        say = {
            "stated": place or "stated",
            "environment": f"environment variable {self.name}" + (f", default at {place}" if place else ""),
            "argument": f"script argument {self.name}" + (f", default at {place}" if place else ""),
            "recipe": f"recipe {self.name}",
            "model": f"model {self.name}",
            "default": f"default of {self.name}",
            "derived": f"derived: {self.name}" if self.name else "derived",
            "given": self.name or "given",
        }
        return say[self.kind]


@dataclass(frozen=True, slots=True)
class Value:
    """One value and its source."""

    value: Plain
    source: Source = field(default_factory=Source)

    @property
    def line(self) -> int | None:
        return self.source.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something the files do not settle."""

    option: str
    """The option (or part of the launcher) whose value is open."""
    needs: tuple[str, ...]
    """Names of the inputs it depends on."""
    how: str
    """How to supply it, as words for a person."""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How many processes start, and by what."""

    nodes: Value | None = None
    gpus_per_node: Value | None = None
    world: Value | None = None
    programs: tuple[str, ...] = ()
    """Launchers on the way to the training script, outermost first (srun, torchrun, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something seen while reading that a person should hear of."""

    id: str
    severity: Literal["error", "warn", "advice"]
    message: str
    fix: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run as its files describe it."""

    framework: FrameworkName
    sources: tuple[str, ...] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, Value] = field(default_factory=dict)
    launcher: Launcher = field(default_factory=Launcher)
    unknowns: tuple[Unknown, ...] = ()
    other: Mapping[str, Value] = field(default_factory=dict)
    """Words that are not Megatron's, by the framework's own name."""
    model: Value | None = None
    """Name, path or Hugging Face id of the model, or of the recipe that fixes it."""
    recipe: str | None = None
    gpu: Value | None = None
    """Kind of GPU, where the file says it (directives, comments, recipe names)."""
    label: str = ""
    """Which run of several this is ("run 2: cfg=8 2 4 1 4 264"); empty for a single one."""
    notes: tuple[Note, ...] = ()
    complete: bool = True
    """False for a fragment that another file or command completes (a YAML of overrides)."""

    def get(self, option: str) -> Plain:
        """The value of an option, None when it is not stated."""
        found = self.options.get(option)
        return found.value if found else None

    def with_options(self, more: Mapping[str, Value]) -> Reading:
        """The same reading with `more` filled in where nothing is stated yet."""
        return replace(self, options={**more, **self.options})
