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
    grows, by powers of two, where the recipe is for fewer GPUs, and takes over the odd factor of their
    number.
    """
    assumed: list[Assumption] = []
    tuning: Task = "sft" if task == "rl" else task  # the trainer's step of RL is that of fine-tuning
    near = precedents(names, gpu, tuning, gpus, precision=precision, count=1_000)
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
    """Global batch in samples: the recipe's, or its tokens a step at another sequence length.

    On more GPUs it grows, and on a number that is no power of two it takes over the odd factor.
    """
    facts = _facts()
    if not near:
        usual = facts["default_tokens_per_step"]
        batch, source = _samples(usual["value"], seq_length), f"{UNLISTED}; {usual['source']}"
        grown = _grown(batch, seq_length, usual["gpus"], gpus)
        if grown > batch:
            source = f"{UNLISTED}; {facts['most_tokens_per_step']['source']}"
        return _divided(grown, gpus, source)
    same = [row for row in near if row.seq_length == seq_length]
    row = (same or near)[0]
    batch = row.gbs if same else _samples(row.tokens_per_step, seq_length)
    source = f"recipe {row.recipe} ({row.source})" + ("" if same else ", its tokens a step kept")
    if row.task == "pretrain":
        grown = _grown(batch, seq_length, row.gpus, gpus)
    else:  # fine-tuning keeps its batch, as long as no replica is left without a sample
        grown = batch * 2 ** max(0, math.ceil(math.log2(gpus / batch))) if row.gpus < gpus else batch
    if grown > batch:
        source += f", grown from {row.gpus:,} GPUs to {gpus:,}"
    return _divided(grown, gpus, source)


def _grown(batch: int, seq_length: int, usual: int, gpus: int) -> int:
    """The batch in proportion to the GPUs beyond the usual number, by powers of two, up to what is usual.

    Recipes of one model hold the samples a GPU: Llama 3.1 405B has 768 on 512 H100 and 1,536 on 1,024.
    """
    start, end = _facts()["default_tokens_per_step"], _facts()["most_tokens_per_step"]
    most = min(end["value"], start["value"] * max(1.0, gpus / start["gpus"]))
    while 2 * usual <= NEARLY * gpus and 2 * batch * seq_length <= NEARLY * most:
        usual, batch = 2 * usual, 2 * batch
    return batch


NEARLY = 1.14
"""1,000 GPUs count as 1,024; 96 do not count as 128."""


def odd_part(number: int) -> int:
    """What is left of a number when it is halved as often as it can be.

    >>> odd_part(96), odd_part(1000), odd_part(2048)
    (3, 125, 1)
    """
    return number // (number & -number)


def divided(batch: int, gpus: int) -> int:
    """The nearest batch that the odd factor of the GPUs divides, with many factors of two beside it.

    >>> divided(256, 96), divided(1024, 1000), divided(256, 64)
    (288, 1000, 256)
    """
    odd = odd_part(gpus)
    if batch % odd == 0:
        return batch
    sizes = [odd * few << power for few in (1, 3) for power in range(32)]
    return min(sizes, key=lambda size: (abs(math.log(size / batch)), size))


def _divided(batch: int, gpus: int, source: str) -> tuple[int, str]:
    """`divided`, and where the batch comes from in words."""
    nearest = divided(batch, gpus)
    if nearest == batch:
        return batch, source
    return nearest, f"{source}, made divisible by {odd_part(gpus):,}, the odd factor of {gpus:,} GPUs"


def _samples(tokens: int, seq_length: int) -> int:
    """The power of two nearest to tokens / seq_length."""
    return int(2 ** max(0, round(math.log2(tokens / seq_length))))


def _facts() -> Any:
    return load_json("meshwright.job", "precedents.json")
