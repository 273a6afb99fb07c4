"""Why a plan was chosen, and what stops it from being better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.cluster.spec import GIB
from meshwright.cost.question import Question
from meshwright.cost.stages import distinct_stages
from meshwright.cost.steptime import step_time
from meshwright.layout.table import Bools, Floats, Ints, LayoutTable
from meshwright.planner.answer import Estimate
from meshwright.planner.search import Found
from meshwright.planner.values import table as space_table

WORDS = {
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "ep": "expert all-to-all",
    "pp": "messages between pipeline stages",
    "dp": "gradient reduction and parameter gathers",
    "recompute": "recomputed activations",
    "bubble": "pipeline bubble",
    "imbalance": "unequal pipeline stages",
    "host": "kernel launches on the host",
    "memory_bound": "memory-bound kernels",
    "offload": "activations on their way to host memory and back",
}
MORE_WORDS = WORDS | {
    "gemm": "matrix products",
    "attention": "attention",
    "optimizer": "optimizer step",
    "fixed": "fixed work",
}
NOTICEABLE = 0.03
"""Share of the step below which a term is not worth a word."""
SAME = 0.005
"""Relative difference of two step times below which they are called the same."""
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")


def binding(estimate: Estimate) -> tuple[str, ...]:
    """What stops a plan from being better, largest first: memory, and the overheads of its step."""
    words = []
    used = estimate.memory
    if used is not None and (
        used.peak_bytes > 0.85 * used.usable_bytes or estimate.execution.recompute.granularity != "none"
    ):
        fullest = max(used.per_stage, key=lambda stage: stage.total_bytes).stage
        words.append(f"memory: {gib(used.peak_bytes)} of {gib(used.usable_bytes)} GiB on stage {fullest}")
    if estimate.time is not None:
        step = estimate.time.step_seconds
        shares = sorted(((estimate.time.terms[term] / step, term) for term in WORDS), reverse=True)
        words += [f"{WORDS[term]}: {share:.0%} of the step" for share, term in shares if share > NOTICEABLE][
            :3
        ]
    return tuple(words)


def reasons(found: Found, row: int, question: Question | None = None) -> tuple[str, ...]:
    """How the best layouts with one degree changed compare with this one.

    question  with it, each comparison says which terms of the step make the difference
    """
    return reasons_of(found, (row,), question)[0]


def reasons_of(
    found: Found, rows: Sequence[int], question: Question | None = None
) -> tuple[tuple[str, ...], ...]:
    """The reasons of several rows, their neighbours priced together."""
    usable = question.cluster.gpu.usable_memory if question is not None else float("inf")
    near = [list(_neighbours(found, row, usable)) for row in rows]
    needed = dict.fromkeys(rows, 0) | {other: 0 for each in near for _, _, _, other in each}
    places = {row: place for place, row in enumerate(needed)}
    terms = _terms(question, found.table.rows(np.array([*needed]))) if question and needed else None
    told = []
    for row, each in zip(rows, near, strict=True):
        here, words = float(found.step[row]), []
        for name, value, changed, other in each:
            said = f"{name} {changed} instead of {value}: {_difference(float(found.step[other]), here)}"
            more = _because(terms, places[row], places[other], here) if terms is not None else ""
            words.append(said + more)
        told.append((*words, *_without_recompute(found, row)))
    return tuple(told)


def _neighbours(found: Found, row: int, usable: float) -> Iterator[tuple[str, object, object, int]]:
    """For each degree the next smaller and larger value that fits, and the other choice of sharding.

    (name, value, other value, the best row that has it); layouts expected over the card do not count
    """
    table = found.table
    inside = found.peak <= max(usable, float(found.peak[row]))
    for name in DEGREES:
        column = np.asarray(getattr(table, name))
        value = int(column[row])
        for other in _beside(np.unique(column[inside]), value):
            yield name, value, other, _best(found, inside & (column == other))
    sharded = np.array([e.fsdp for e in table.executions])[table.execution]
    mine = bool(sharded[row])
    apart = inside & (sharded != mine)
    if apart.any():
        names = {True: "on", False: "off"}
        yield "fsdp", names[mine], names[not mine], _best(found, apart)


def _best(found: Found, mask: Bools) -> int:
    """The fastest of some rows."""
    rows = np.flatnonzero(mask)
    return int(rows[found.step[rows].argmin()])


def _terms(question: Question, rows: LayoutTable) -> dict[str, Floats]:
    return step_time(question, rows, distinct_stages(rows.splits)).terms


def _because(terms: dict[str, Floats], mine: int, place: int, here: float) -> str:
    """The two terms that change most, as shares of this plan's step."""
    change = {name: float(values[place] - values[mine]) / here for name, values in terms.items()}
    largest = sorted(change.items(), key=lambda item: -abs(item[1]))[:2]
    said = [f"{MORE_WORDS[name]} {share:+.1%}" for name, share in largest if abs(share) >= SAME]
    return f" ({', '.join(said)})" if said else ""


def _without_recompute(found: Found, row: int) -> list[str]:
    """Whether anything fits that computes nothing twice."""
    executions = found.table.executions
    mine = executions[int(found.table.execution[row])].recompute
    plain = np.array([e.recompute.granularity == "none" for e in executions])[found.table.execution]
    if mine.granularity == "none" or plain.any():
        return []
    keep = space_table()["keep"]["value"]
    return [f"recompute {mine}: without it nothing fits that is within {keep:g} times this step time"]


def _beside(values: Ints, value: int) -> list[int]:
    """The next smaller and the next larger value that some fitting layout has."""
    below, above = values[values < value], values[values > value]
    return [int(v) for v in (*below[-1:], *above[:1])]


def _difference(step: float, here: float) -> str:
    """The best of other layouts against this one."""
    change = step / here - 1
    if abs(change) < SAME:
        return "the same step time at best"
    return f"{abs(change):.1%} {'slower' if change > 0 else 'faster'} at best"


def gib(value: float) -> str:
    return f"{value / GIB:.1f}"
