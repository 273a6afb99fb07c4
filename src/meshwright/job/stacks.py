"""Software generations, and the execution flags that their published settings use on each GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol, cast

from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import Execution, Precision, Stack


class GpuKind(Protocol):
    """What this room asks of a GPU (rooms of one rank do not import each other)."""

    @property
    def name(self) -> str: ...

    @property
    def architecture(self) -> str: ...


def releases() -> tuple[str, ...]:
    """Known releases of the NVIDIA stack, oldest first ("25.09" ... "26.08")."""
    return tuple(row["release"] for row in _data()["releases"]["rows"])


def check_release(release: str) -> str:
    """`release`, or a QuestionError that names the known ones; a later point release counts as its month.

    >>> check_release("26.06")
    '26.06'
    """
    known = releases()
    if not re.fullmatch(r"\d\d\.\d\d(\.\d\d)?", release) or _order(release) < _order(known[0]):
        raise QuestionError(f"unknown stack {release[:40]!r}; known: {', '.join(known)}")
    if _order(release) > _order(known[-1]):
        raise QuestionError(f"stack {release} is later than Meshwright knows; latest: {known[-1]}")
    return release


def default_execution(
    stack: Stack, gpu: GpuKind, model_is_moe: bool, precision: Precision = "bf16"
) -> Execution:
    """The flags that published settings of that release use on that kind of GPU.

    Source: the rows of data/execution.json, each with its own.
    """
    row = execution_row(stack, gpu, model_is_moe, precision)
    return Execution(
        dispatcher=row["dispatcher"],
        cuda_graphs=row["cuda_graphs"],
        overlaps=frozenset(row["overlaps"]),
        grouped_mlp_fusion=row.get("grouped_mlp_fusion", False),
    )


def execution_source(stack: Stack, gpu: GpuKind, model_is_moe: bool, precision: Precision = "bf16") -> str:
    """Where `default_execution` comes from."""
    return str(execution_row(stack, gpu, model_is_moe, precision)["source"])


def execution_row(stack: Stack, gpu: GpuKind, model_is_moe: bool, precision: Precision) -> Mapping[str, Any]:
    """The last fitting row of the data, by release; what works everywhere where none fits."""
    release = _order(check_release(stack.release))
    fitting = [
        row
        for row in _data()["defaults"]
        if row["moe"] == model_is_moe
        and gpu.architecture in row["architectures"]
        and precision in row.get("precisions", (precision,))
        and _order(row["since"]) <= release
    ]
    # later rows win; among rows of one release, those for a named precision (sort is stable)
    fitting.sort(key=lambda row: (_order(row["since"]), "precisions" in row))
    named = [row for row in fitting if "precisions" in row]
    chosen = named or fitting
    return cast("Mapping[str, Any]", chosen[-1] if chosen else _data()["unknown_architecture"])


def supported_precisions(gpu: GpuKind) -> tuple[Precision, ...] | None:
    """Number formats that a GPU of this architecture can train in; None where it is unknown."""
    for row in _data()["precisions"]:
        if gpu.architecture in row["architectures"]:
            return tuple(row["supported"])
    return None


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _data() -> Any:
    return load_json("meshwright.job", "execution.json")
