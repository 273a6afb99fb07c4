"""The values that each degree may take in a search, before the rules of the engine have their say.

Degrees that must divide the world are taken among its divisors, so that odd counts (96, 120, 1,000 GPUs)
get odd degrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import positive
from meshwright.layout.layout import DEGREES
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.table import Bools, Ints

Values = tuple[int, ...]


def table() -> Any:
    """The data that says how wide the space is."""
    return load_json("meshwright.planner", "space.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of one degree that nobody fixed.

    least, most  both included; `most` None is as far as the space goes
    """

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        positive("the least value of a degree", self.least)
        if self.most is not None:
            positive("the largest value of a degree", self.most)
            if self.most < self.least:
                raise QuestionError(f"a degree cannot be at least {self.least} and at most {self.most}")

    def __contains__(self, value: int) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """What is said about the degrees: fixed or listed values, and bounds of the others."""

    values: Mapping[str, Values | None] = field(default_factory=dict)
    bounds: Mapping[str, Range] = field(default_factory=dict)
    pipeline: PipelineLayout | None = None

    def __post_init__(self) -> None:
        for name in (*self.values, *self.bounds):
            if name not in DEGREES:
                raise QuestionError(f"{name[:40]!r} is not a degree; they are {', '.join(DEGREES)}")

    def among(self, name: str, free: Callable[[], Iterable[int]]) -> Ints:
        """The values of a degree, ascending: those given, else the free ones within bounds."""
        given = self.values.get(name)
        wanted = free() if given is None else given
        bounds = self.bounds.get(name)
        kept = {value for value in wanted if bounds is None or value in bounds}
        return np.array(sorted(kept), dtype=np.int64)


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def tp_values(question: Question) -> list[int]:
    """TP stays inside one NVLink domain, or inside a node where there is none."""
    cluster = question.cluster
    limit = max(cluster.nvlink_domain, cluster.gpus_per_node)
    return [tp for tp in divisors(cluster.world) if tp <= limit]


def cp_values(question: Question) -> list[int]:
    """Causal load balancing cuts a sequence into 2*cp pieces, and no rank's part is shorter than worth it."""
    shortest, sequence = table()["min_tokens_per_cp_rank"]["value"], question.job.seq_length
    return [
        cp
        for cp in divisors(question.cluster.world)
        if cp == 1 or (sequence % (2 * cp) == 0 and sequence // cp >= shortest)
    ]


def ep_values(question: Question) -> list[int]:
    """Every EP rank holds whole experts."""
    return divisors(question.model.num_experts) if question.model.is_moe else [1]


def etp_values(question: Question) -> list[int]:
    """Expert tensor parallelism inside one NVLink domain, as far as the space goes."""
    if not question.model.is_moe:
        return [1]
    limit = min(table()["max_etp"]["value"], question.cluster.nvlink_domain)
    return [etp for etp in divisors(question.cluster.world) if etp <= limit]


def pp_values(question: Question) -> list[int]:
    """No more stages than layers."""
    most = min(question.model.num_layers, question.cluster.world)
    return [pp for pp in divisors(question.cluster.world) if pp <= most]


def mbs_values(question: Question) -> list[int]:
    """Micro-batches of up to so many tokens; one sample is always among them."""
    most = table()["max_tokens_per_microbatch"]["value"] // question.job.seq_length
    return [mbs for mbs in table()["mbs"]["values"] if mbs <= max(most, 1)]


def sp_values(question: Question, tp: Ints, cp: Ints) -> Bools:
    """Sequence parallelism costs nothing, so it is on where TP > 1 and the sequence divides over it. [N]"""
    return np.asarray((tp > 1) & (question.job.seq_length // cp % tp == 0))


def vpp_values(num_layers: int, pp: int) -> list[int]:
    """Interleaving degrees: those that divide the layers of a stage, else a few automatic splits."""
    if pp == 1:
        return [1]
    most = int(table()["max_vpp"]["value"])
    if num_layers % pp == 0:
        return [v for v in divisors(num_layers // pp) if v <= most]
    return [v for v in table()["uneven_vpp"]["values"] if pp * v <= num_layers + 2]
