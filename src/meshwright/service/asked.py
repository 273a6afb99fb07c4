"""Answers that every serving door gives alike, from what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import LayoutError
from meshwright.service.given import gpus_of, model_of

if TYPE_CHECKING:
    from meshwright.layout.ranks import RankGrid
    from meshwright.planner.answer import Estimate
    from meshwright.planner.guide import Advice

Given = Mapping[str, Any]
GRIDS = ("tp", "pp", "vpp", "cp", "ep", "etp")


def advice_of(given: Given) -> Advice:
    """The parallelism guide's answer, and what holds."""
    from meshwright.api.guide import advise

    return advise(
        model_of(given) if "model" in given or "config" in given else None,
        gpus=gpus_of(given), degrees=_degrees(given), params_b=given.get("params_b"),
        active_b=given.get("active_b"), seq_length=given.get("seq_length"), sp=given.get("sp"),
        network=given.get("network"), topics=given.get("topics"),
    )  # fmt: skip


def ranks_of(given: Given) -> RankGrid:
    """Every rank and group."""
    from meshwright.api.ranks import ranks

    return ranks(
        given["world_size"], _degrees(given), order=given.get("order"),
        gpus_per_node=given.get("gpus_per_node"), nvlink_domain=given.get("nvlink_domain"),
    )  # fmt: skip


def files_of(answer: Estimate, target: str) -> dict[str, str]:
    """A layout in the language of a framework; LayoutError where it cannot start."""
    from meshwright.api.writing import write

    if not answer.valid:
        raise LayoutError(f"this layout cannot start: {answer.findings[0].message}")
    return write(answer, target)


def file_name(given: Given, key: str = "name", otherwise: str = "script.sh") -> str:
    """The bare name of a file that was sent, never a path."""
    return Path(given[key]).name or otherwise


def _degrees(given: Given) -> dict[str, int]:
    return {name: given[name] for name in GRIDS if name in given}
