"""Days and GPU hours that a token budget takes: without interruptions, and with the failures to expect."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.cluster.spec import Cluster
from meshwright.cost.explain import training_days
from meshwright.errors import LayoutError, QuestionError
from meshwright.planner.economics import economics

SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
MOST_TOKENS = 1e18
_TOKENS = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,3})?)\s*([kmbgt]?)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a number of tokens takes on a cluster.

    days, gpu_hours   at the step time shown, without interruptions; low_days, high_days by its band
    goodput           useful share of the time under the usual rate of failures, with checkpoints [-]
    days_with_failures, gpu_hours_with_failures  the same with them; None where failures leave no progress
    kwh               energy at the GPUs' board power; None where that is not known
    """

    tokens: float
    steps: int
    days: float
    low_days: float
    high_days: float
    gpu_hours: float
    goodput: float | None
    days_with_failures: float | None
    gpu_hours_with_failures: float | None
    kwh: float | None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def budget(
    cluster: Cluster, tokens_per_step: int, step: float, low: float, high: float, tokens: float
) -> Budget:
    """What `tokens` take at `step` seconds (band `low` to `high`) for `tokens_per_step`."""
    if not 0 < tokens <= MOST_TOKENS:
        raise QuestionError(f"a budget of {tokens:g} tokens; it lies above 0 and at most {MOST_TOKENS:g}")
    days, hours = training_days(step, tokens_per_step, cluster.world, tokens)
    try:
        costs = economics(cluster, tokens_per_step / step, tokens=tokens)
    except LayoutError:
        costs = None
    return Budget(
        tokens=tokens,
        steps=math.ceil(tokens / tokens_per_step),
        days=days,
        low_days=days * low / step,
        high_days=days * high / step,
        gpu_hours=hours,
        goodput=costs.goodput.value if costs else None,
        days_with_failures=costs.days if costs else None,
        gpu_hours_with_failures=costs.total_gpu_hours if costs else None,
        kwh=costs.total_kwh if costs else None,
    )


def read_tokens(text: str) -> float:
    """A number of tokens as people write it; QuestionError where it is none.

    >>> read_tokens("15T"), read_tokens("1.4e12"), read_tokens("300 B")
    (15000000000000.0, 1400000000000.0, 300000000000.0)
    """
    match = _TOKENS.fullmatch(text) if len(text) <= 40 else None
    number = float(match[1].replace("_", "").replace(",", "")) * SUFFIXES[match[2].lower()] if match else 0.0
    if not 0 < number <= MOST_TOKENS:
        raise QuestionError(
            f"--tokens {text[:40]!r}: write a number of tokens, such as 15T, 300B or 1.4e12 "
            f"(at most {MOST_TOKENS:g})"
        )
    return number
