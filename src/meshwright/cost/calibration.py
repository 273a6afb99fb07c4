"""How the physical model is tied to measured runs: multipliers on its constants, and the width of the band.

A calibration is a value that is passed in; nothing here is global or mutable. Names of factors are
"gemm", "gemm:Hopper", "host", ...: `data/calibration.json` lists each with its prior and its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from meshwright.facts import load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Multipliers on the constants of step time, and relative half widths of the bands.

    factors      {name: multiplier}; absent means 1. "all" multiplies the whole step
    measured     kernel constants of GPUs that somebody measured: {GPU name: row as in measured.json}
    time_band    (dense, MoE) relative half width of an 80 % band of step time
    memory_band  relative half width of the band of a stage's memory
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    time_band: tuple[float, float] = (0.15, 0.25)
    memory_band: float = 0.06
    source: str = ""

    def factor(self, name: str, *kinds: str) -> float:
        """The multiplier of `name`, times those of "name:kind" for each kind.

        >>> Calibration(factors={"gemm": 1.1, "gemm:Hopper": 1.2}).factor("gemm", "Hopper", "fp8")
        1.32
        """
        product = self.factors.get(name, 1.0)
        for kind in kinds:
            product *= self.factors.get(f"{name}:{kind}", 1.0)
        return product

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.factors.items())), tuple(self.measured), self.time_band, self.source))


@cache
def default_calibration() -> Calibration:
    """The calibration that ships with the package."""
    row = load_json("meshwright.cost", "calibration.json")
    return Calibration(
        factors={name: fact["value"] for name, fact in row["factors"].items()},
        time_band=(row["time_band"]["dense"], row["time_band"]["moe"]),
        memory_band=row["memory_band"],
        source=row["source"],
    )
