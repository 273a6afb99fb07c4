"""Precedents: layouts that ship in the recipes of Megatron Bridge, and the ones nearest to a question."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from meshwright.facts import load_json
from meshwright.job.spec import Precision, Task
from meshwright.job.stacks import GpuKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One shipped recipe: a model, some GPUs, a job and the layout that its authors chose.

    kind        "perf" (tuned for throughput) or "library" (meant to work)
    cannot_run  why the layout cannot start on the GPU count in its name; "" where it can
    """

    recipe: str
    kind: str
    model: str
    hugging_face_id: str
    task: Task
    gpus: int
    gpu: str
    precision: Precision
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    sp: bool
    mbs: int
    gbs: int
    seq_length: int
    pipeline_layout: str
    recompute: str
    recompute_modules: str
    dispatcher: str
    cuda_graphs: str
    tp_overlap: bool
    ep_overlap: bool
    dp_overlap: bool
    fsdp: bool
    cannot_run: str
    source: str

    @property
    def tokens_per_step(self) -> int:
        return self.seq_length * self.gbs

    def __str__(self) -> str:
        degrees = {name.upper(): getattr(self, name) for name in ("tp", "pp", "vpp", "cp", "ep")}
        layout = " ".join(f"{name}{value}" for name, value in degrees.items() if value > 1) or "DP only"
        return f"{self.gpus} {self.gpu} {self.precision}: {layout}" + (" FSDP" if self.fsdp else "")


_COUNTS = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "gbs", "seq_length")
_FLAGS = ("sp", "tp_overlap", "ep_overlap", "dp_overlap", "fsdp")


@cache
def all_recipes() -> tuple[Recipe, ...]:
    """Every shipped recipe, in the order of the data file."""
    text = resources.files("meshwright.job").joinpath("data", "recipes.csv").read_text(encoding="utf-8")
    return tuple(_recipe(row) for row in csv.DictReader(text.splitlines()))


def recipes_of(names: Iterable[str]) -> tuple[Recipe, ...]:
    """The recipes of a model by any of its names (catalog name, Hugging Face id, aliases), or of its twins.

    Twins are models of the same shape, such as Llama-3-70B and Llama-3.1-70B.
    """
    wanted = {key for name in names for key in _keys_of(name)}
    return tuple(
        row for row in all_recipes() if wanted & {model_key(row.model), model_key(row.hugging_face_id)} - {""}
    )


def precedents(
    names: Iterable[str],
    gpu: GpuKind,
    task: Task = "pretrain",
    gpus: int = 1,
    *,
    precision: Precision = "bf16",
    count: int = 3,
) -> tuple[Recipe, ...]:
    """At most `count` recipes of the model for that task, nearest first.

    Near is: the same kind of GPU, then a tuned recipe, then a like number of GPUs, then the same
    precision. Recipes that cannot run on their own GPU count are left out. Empty when there is none.
    """
    candidates = [row for row in recipes_of(names) if row.task == task and not row.cannot_run]

    def distance(row: Recipe) -> tuple[float, bool, float, bool]:
        size = abs(math.log2(row.gpus / max(gpus, 1)))
        return _gpu_distance(gpu, row.gpu), row.kind != "perf", size, row.precision != precision

    return tuple(sorted(candidates, key=distance)[:count])


def _recipe(row: dict[str, str]) -> Recipe:
    values: dict[str, Any] = dict(row)
    values.update({name: int(row[name]) for name in _COUNTS})
    values.update({name: row[name] == "1" for name in _FLAGS})
    return Recipe(**values)


def _gpu_distance(gpu: GpuKind, recipe_gpu: str) -> float:
    """0 the same kind, 0.5 the same architecture, else 1 and more with generations apart."""
    if gpu.name.split("-")[0] == recipe_gpu:
        return 0.0
    facts = _facts()
    architecture = facts["recipe_gpus"].get(recipe_gpu, "")
    if architecture == gpu.architecture:
        return 0.5
    generations = facts["generations"]
    return float(1 + abs(generations.get(architecture, 1) - generations.get(gpu.architecture, 1)))


def model_key(name: str) -> str:
    """A model name without owner, case, separators and training stage; "1p5b" is "1.5b".

    >>> model_key("meta-llama/Meta-Llama-3.1-70B-Instruct") == model_key("llama31_70b")
    True
    """
    short = name.rsplit("/", 1)[-1].lower()
    short = re.sub(r"[-_](instruct(-\d+)?|base|hf|it|pt|chat)$", "", short.removeprefix("meta-"))
    return re.sub(r"[^a-z0-9]", "", re.sub(r"(\d)p(\d)", r"\1\2", short))


def _keys_of(name: str) -> set[str]:
    """The key of a name, and those of its twins."""
    if len(name) > 200:
        return set()
    own = model_key(name)
    twins = [{model_key(twin) for twin in group} for group in _facts()["same_shape"]["groups"]]
    return {own}.union(*(group for group in twins if own in group))


def _facts() -> Any:
    return load_json("meshwright.job", "precedents.json")
