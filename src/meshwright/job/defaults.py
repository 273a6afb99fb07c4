"""What a job is when nobody said: sequence length and global batch, and where each came from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from meshwright.facts import load_json
from meshwright.job.precedents import Recipe, precedents
from meshwright.job.spec import Job, Precision, Task
from meshwright.job.stacks import GpuKind


UNLISTED = "our list of recipes has none for this model and task"
"""Why a general default is taken. Others may ship: the list says of each where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One value that was filled in, in the words of the command line, and where it came from."""

    option: str
    value: object
    source: str

    def as_dict(self) -> dict[str, object]:
        """JSON form: option, value, from."""
        return {"option": self.option, "value": self.value, "from": self.source}


def default_job(
    names: Iterable[str],
    gpu: GpuKind,
    gpus: int,
    *,
    task: Task = "pretrain",
    precision: Precision = "bf16",
    max_position: int | None = None,
    seq_length: int | None = None,
    global_batch: int | None = None,
) -> tuple[Job, tuple[Assumption, ...]]:
    """A job with what is not given filled in: from the model's nearest recipe, else general defaults.

    Without a recipe the sequence is min(4096, max_position) and a step is about 4 Mi tokens. A sequence
    length of one's own keeps the tokens of a step: the global batch is the nearest power of two. It
    grows, by powers of two, where the recipe is for fewer GPUs and has fewer samples than GPUs.
    """
    assumed: list[Assumption] = []
    near = precedents(names, gpu, task, gpus, precision=precision, count=1_000)
    if seq_length is None:
        seq_length, source = _default_seq_length(near, max_position)
        assumed.append(Assumption(option="--seq-length", value=seq_length, source=source))
    if global_batch is None:
        global_batch, source = _default_batch(near, seq_length, gpus)
        assumed.append(Assumption(option="--global-batch-size", value=global_batch, source=source))
    job = Job(seq_length=seq_length, global_batch=global_batch, precision=precision, task=task)
    return job, tuple(assumed)


def _default_seq_length(near: tuple[Recipe, ...], max_position: int | None) -> tuple[int, str]:
    fact = _facts()["default_seq_length"]
    if near:
        return near[0].seq_length, f"recipe {near[0].recipe} ({near[0].source})"
    if max_position is not None and max_position < fact["value"]:
        return max_position, "the model's longest position"
    return int(fact["value"]), f"{UNLISTED}; {fact['source']}"


def _default_batch(near: tuple[Recipe, ...], seq_length: int, gpus: int) -> tuple[int, str]:
    """Global batch in samples: the recipe's, or its tokens a step at another sequence length."""
    if not near:
        fact = _facts()["default_tokens_per_step"]
        return _samples(fact["value"], seq_length), f"{UNLISTED}; {fact['source']}"
    same = [row for row in near if row.seq_length == seq_length]
    row = (same or near)[0]
    batch = row.gbs if same else _samples(row.tokens_per_step, seq_length)
    source = f"recipe {row.recipe} ({row.source})" + ("" if same else ", its tokens a step kept")
    # a recipe for few GPUs would leave replicas of a large cluster without a sample
    if batch < gpus and row.gpus < gpus:
        batch *= 2 ** math.ceil(math.log2(gpus / batch))
        source += f", grown from {row.gpus} GPUs to a sample for each of {gpus:,}"
    return batch, source


def _samples(tokens: int, seq_length: int) -> int:
    """The power of two nearest to tokens / seq_length."""
    return int(2 ** max(0, round(math.log2(tokens / seq_length))))


def _facts() -> Any:
    return load_json("meshwright.job", "precedents.json")
