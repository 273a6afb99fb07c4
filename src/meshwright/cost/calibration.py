"""How the physical model is tied to measured runs: multipliers on its terms, and the width of the band.

A calibration is a value that is passed in; nothing here is global or mutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from meshwright.facts import load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Multipliers on the terms of step time, and relative half widths of the bands.

    factors      {term: multiplier}; absent means 1
    by_architecture  {architecture: {term: multiplier}}, on top of `factors`
    time_band    (dense, MoE) relative half width of an 80 % band of step time
    memory_band  relative half width of the band of a stage's memory
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    by_architecture: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    time_band: tuple[float, float] = (0.15, 0.25)
    memory_band: float = 0.06
    source: str = ""

    def factor(self, term: str, architecture: str) -> float:
        """The multiplier of one term on one GPU architecture."""
        return self.factors.get(term, 1.0) * self.by_architecture.get(architecture, {}).get(term, 1.0)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.factors.items())), self.source))


@cache
def default_calibration() -> Calibration:
    """The calibration that ships with the package."""
    row = load_json("meshwright.cost", "calibration.json")
    return Calibration(
        factors=row["factors"],
        by_architecture=row["by_architecture"],
        time_band=(row["time_band"]["dense"], row["time_band"]["moe"]),
        memory_band=row["memory_band"],
        source=row["source"],
    )
