"""What a training run costs: GPU hours, money, energy, days, and what failures take from them.

Seconds, bytes and whole GPUs inside; a price is in whatever money the person pays with, for one GPU hour.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from meshwright.cluster.spec import Cluster, Gpu
from meshwright.errors import LayoutError, QuestionError
from meshwright.facts import load_json

BILLION = 1e9
HOUR = 3600.0
DAY = 86400.0
LEAST_GOODPUT = 1e-3
"""Useful share of the time below which a run is said not to progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a GPU hour costs and how often GPUs fail; None takes the default of data/power.json.

    price               money for one GPU hour; None: costs are not stated
    pue                 power usage effectiveness of the building: energy in over energy used [-]
    watts               power of one GPU [W]; None: its board power limit
    gpu_mtbf_hours      hours of one GPU between failures that stop the job; inf: no failures
    checkpoint_seconds  time that training stands still for a checkpoint
    restart_seconds     from a failure until training goes on from the last checkpoint
    checkpoint_interval seconds of work between checkpoints; None: the best one
    spare_nodes         nodes that stand by, and are paid for
    repair_hours        time until a node that failed is back; None: another takes its place at once
    """

    price: float | None = None
    pue: float = 1.0
    watts: float | None = None
    gpu_mtbf_hours: float | None = None
    checkpoint_seconds: float | None = None
    restart_seconds: float | None = None
    checkpoint_interval: float | None = None
    spare_nodes: int = 0
    repair_hours: float | None = None

    def __post_init__(self) -> None:
        for name in ("price", "watts", "checkpoint_seconds", "checkpoint_interval", "repair_hours"):
            _above_zero(name, getattr(self, name))
        _above_zero("gpu_mtbf_hours", self.gpu_mtbf_hours, infinite=True)
        if self.restart_seconds is not None and not 0 <= self.restart_seconds < math.inf:
            raise QuestionError(f"restart_seconds is {self.restart_seconds}; it is a time of at least 0")
        if not 1.0 <= self.pue <= 10.0:
            raise QuestionError(f"the PUE is {self.pue}; it lies between 1 and 10 (data centres: 1.1 to 1.6)")
        if (
            isinstance(self.spare_nodes, bool)
            or self.spare_nodes != int(self.spare_nodes)
            or self.spare_nodes < 0
        ):
            raise QuestionError(f"{self.spare_nodes!r} spare nodes; it must be a whole number of at least 0")

    def filled(self, gpu: Gpu) -> Rates:
        """The rates with every default of the data filled in (watts stay None for an unknown GPU)."""
        facts = _facts()
        named = ("gpu_mtbf_hours", "checkpoint_seconds", "restart_seconds")
        given = {name: getattr(self, name) for name in named}
        filled = {name: facts[name]["value"] if value is None else value for name, value in given.items()}
        return replace(self, **filled, watts=watts_of(gpu) if self.watts is None else self.watts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What failures leave of the time.

    mtbf_seconds   between failures of the whole job
    interval       seconds of work between checkpoints
    best_interval  the one that wastes least (Daly)
    availability   share of the time in which enough nodes are up, spares included
    value          useful share of the wall time
    """

    mtbf_seconds: float
    interval: float
    best_interval: float
    availability: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Economics:
    """What training costs on some GPUs. `None` where a price or a power is not known.

    gpu_hours, cost, kwh  for a billion tokens, failures and spares included
    tokens_per_unit       tokens for one unit of money
    days, total_*         of the whole token budget, where there is one
    """

    goodput: Goodput
    gpus_paid: int
    gpu_hours: float
    cost: float | None
    kwh: float | None
    tokens_per_unit: float | None
    watts: float | None
    watts_source: str
    tokens: float | None = None
    days: float | None = None
    total_gpu_hours: float | None = None
    total_cost: float | None = None
    total_kwh: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def economics(
    cluster: Cluster, tokens_per_second: float, rates: Rates | None = None, tokens: float | None = None
) -> Economics:
    """What a run at that speed costs; LayoutError where failures leave no progress.

    tokens_per_second  of the whole cluster while it works
    tokens             the budget of the run, for days and totals
    """
    if not 0 < tokens_per_second < math.inf:
        raise QuestionError(f"{tokens_per_second} tokens a second; it must be above 0")
    _above_zero("the number of tokens", tokens)
    rates = (rates or Rates()).filled(cluster.gpu)
    good = goodput(cluster, rates)
    if good.value < LEAST_GOODPUT:
        raise LayoutError(
            f"with a failure every {good.mtbf_seconds:,.0f} s, checkpoints of "
            f"{rates.checkpoint_seconds:,.0f} s and restarts of {rates.restart_seconds:,.0f} s the run "
            "makes no progress; fewer GPUs, faster checkpoints or more spares are needed"
        )
    paid = cluster.world + rates.spare_nodes * cluster.gpus_per_node
    seconds = BILLION / (tokens_per_second * good.value)
    hours = seconds / HOUR * paid
    cost = None if rates.price is None else hours * rates.price
    watts = rates.watts
    # spares stand by: only the GPUs that work draw their power
    kwh = None if watts is None else seconds / HOUR * cluster.world * watts / 1000 * rates.pue
    billions = None if tokens is None else tokens / BILLION
    return Economics(
        goodput=good, gpus_paid=paid, gpu_hours=hours, cost=cost, kwh=kwh,
        tokens_per_unit=None if cost is None else BILLION / cost,
        watts=watts, watts_source=watts_source(cluster.gpu), tokens=tokens,
        days=_times(seconds / DAY, billions), total_gpu_hours=_times(hours, billions),
        total_cost=_times(cost, billions), total_kwh=_times(kwh, billions),
    )  # fmt: skip


def _times(value: float | None, billions: float | None) -> float | None:
    return None if value is None or billions is None else value * billions


def watts_of(gpu: Gpu) -> float | None:
    """Board power limit of a GPU [W]; None where nobody stated one."""
    row = _facts()["watts"].get(gpu.name)
    return None if row is None else float(row["value"])


def watts_source(gpu: Gpu) -> str:
    """Where `watts_of` comes from; empty where there is none."""
    row = _facts()["watts"].get(gpu.name)
    return "" if row is None else str(row["source"])


def goodput(cluster: Cluster, rates: Rates) -> Goodput:
    """Useful share of the wall time under failures, checkpoints and repairs.

    Sources: Young 1974 (CACM 17, 530) and Daly 2006 (Future Generation Computer Systems 22, 303) for
    checkpoints; the number of nodes under repair as that of an M/G/infinity queue, which is Poisson.
    """
    rates = rates.filled(cluster.gpu)
    delta, restart = rates.checkpoint_seconds or 0.0, rates.restart_seconds or 0.0
    mtbf = (rates.gpu_mtbf_hours or math.inf) * HOUR / cluster.world
    best = best_interval(delta, mtbf)
    interval = best if rates.checkpoint_interval is None else rates.checkpoint_interval
    up = enough_nodes(under_repair(cluster, rates), rates.spare_nodes)
    return Goodput(
        mtbf_seconds=mtbf, interval=interval, best_interval=best, availability=up,
        value=useful_share(interval, delta, restart, mtbf) * up,
    )  # fmt: skip


def young_interval(delta: float, mtbf: float) -> float:
    """Seconds between checkpoints by Young's first-order rule, sqrt(2*delta*M).

    >>> young_interval(5 * 60, 24 * 3600) / 60
    120.0
    """
    return math.sqrt(2 * delta * mtbf)


def best_interval(delta: float, mtbf: float) -> float:
    """Seconds of work between checkpoints that waste least (Daly 2006, equation 37).

    delta  seconds of one checkpoint; mtbf  seconds between failures of the job (inf: none needed)
    """
    if math.isinf(mtbf):
        return math.inf
    if delta >= 2 * mtbf:
        return mtbf
    ratio = delta / (2 * mtbf)
    return young_interval(delta, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - delta


def useful_share(interval: float, delta: float, restart: float, mtbf: float) -> float:
    """Work over wall time with failures at random moments (Daly 2006, equation 20).

    wall = M * exp(R/M) * (exp((tau + delta)/M) - 1) * work / tau
    """
    if math.isinf(mtbf):
        return 1.0 if math.isinf(interval) else interval / (interval + delta)
    exponent = (interval + delta) / mtbf
    if exponent > 500 or restart / mtbf > 500:
        return 0.0
    return interval / (mtbf * math.exp(restart / mtbf) * math.expm1(exponent))


def under_repair(cluster: Cluster, rates: Rates) -> float:
    """Mean number of nodes under repair: failures an hour times hours of a repair."""
    return cluster.world / (rates.gpu_mtbf_hours or math.inf) * (rates.repair_hours or 0.0)


def enough_nodes(mean: float, spares: int) -> float:
    """Probability that no more nodes are under repair than there are spares.

    mean  number of nodes under repair on average; in the logarithm, since it may be large
    """
    if mean == 0:
        return 1.0
    terms = [count * math.log(mean) - mean - math.lgamma(count + 1) for count in range(spares + 1)]
    return min(sum(math.exp(term) for term in terms), 1.0)


def spares_needed(cluster: Cluster, rates: Rates, availability: float = 0.99) -> int:
    """Fewest spare nodes with which the job has enough nodes for that share of the time."""
    if not 0 < availability < 1:
        raise QuestionError(f"an availability of {availability}; it lies between 0 and 1")
    facts = _facts()
    filled = rates.filled(cluster.gpu)
    hours = facts["repair_hours"]["value"] if filled.repair_hours is None else filled.repair_hours
    mean = under_repair(cluster, replace(filled, repair_hours=hours))
    spares = max(0, int(mean - 10 * math.sqrt(mean)))
    while enough_nodes(mean, spares) < availability and spares < cluster.nodes:
        spares += 1
    return spares


def _above_zero(name: str, value: float | None, *, infinite: bool = False) -> None:
    if value is None:
        return
    if not value > 0 or (math.isinf(value) and not infinite):
        raise QuestionError(f"{name} is {value}; it must be a number above 0")


def _facts() -> Any:
    return load_json("meshwright.planner", "power.json")


def read_price(text: str, gpu: Gpu) -> float | None:
    """The price of a GPU hour from "2.5" or, by kind, "H100=2.5,B200=6"; None where the kind has none.

    QuestionError where a part is no price or no GPU.
    """
    from meshwright.cluster.catalog import find_gpu

    found: float | None = None
    for part in str(text)[:1_000].split(","):
        kind, equals, number = part.strip().rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise QuestionError(f"--price {part[:40]!r}: write 2.5, or H100=2.5,B200=6") from None
        _above_zero("price", value)
        if not equals or find_gpu(kind).name == gpu.name:
            found = value
    return found
