"""The same training on another number of GPUs: every product stays legal, and what changed is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from meshwright.errors import LayoutError
from meshwright.frameworks.check import CheckResult, check_reading
from meshwright.frameworks.environment import advised
from meshwright.frameworks.estimating import estimate_of
from meshwright.frameworks.plan import plan_from
from meshwright.frameworks.reading import Launcher, Plain, Reading, Source, Value
from meshwright.frameworks.view import view_of

Batch = Literal["hold", "scale"]
SHRINK = (
    "expert_model_parallel_size",
    "context_parallel_size",
    "pipeline_model_parallel_size",
    "tensor_model_parallel_size",
)
"""Degrees in the order in which they are lowered when the GPUs are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """A reading for the new GPUs, checked, with what changed on the way."""

    before: CheckResult
    after: CheckResult
    changes: dict[str, tuple[Plain, Plain]]
    efficiency: float | None
    """Tokens a second and GPU, new over old, where both can be estimated."""

    @property
    def fits(self) -> bool:
        """Whether memory suffices, as far as it can be estimated."""
        estimate = estimate_of(self.after.reading, self.after.view)
        memory = estimate.memory if estimate is not None else None
        return memory is None or memory.verdict != "does-not-fit"

    def as_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "changes": {name: {"old": old, "new": new} for name, (old, new) in self.changes.items()},
            "efficiency": self.efficiency,
        }


def rescale(
    reading: Reading,
    world: int,
    *,
    gpus_per_node: int | None = None,
    batch: Batch = "hold",
    gpu: str | None = None,
) -> Rescaled:
    """The reading on `world` GPUs.

    batch  hold: the global batch stays (nearest legal one where it cannot); scale: it grows with the GPUs
    LayoutError when no lowering of EP, CP, PP, TP by whole factors makes it legal.
    """
    before = check_reading(reading)
    per_node = gpus_per_node or _number(reading.launcher.gpus_per_node) or min(world, 8)
    placed = _placed(reading, world, per_node, gpu)
    old_world = _number(reading.launcher.world)
    for candidate in _candidates(placed):
        fitted = _with_batch(candidate, world, old_world, batch)
        after = check_reading(fitted) if fitted is not None else None
        if fitted is not None and after is not None and after.verdict != "invalid":
            return Rescaled(
                before=before,
                after=after,
                changes=_changes(reading, fitted),
                efficiency=_efficiency(before, after),
            )
    first = next(
        (f.message for f in check_reading(placed).findings if f.severity == "error"), "no layout fits"
    )
    raise LayoutError(
        f"{world} GPUs: {first}; lowering EP, CP, PP and TP does not make it legal, see `meshwright plan`"
    )


def _number(value: Value | None) -> int | None:
    found = value.value if value is not None else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _placed(reading: Reading, world: int, per_node: int, gpu: str | None) -> Reading:
    """The reading with the new machines."""
    source = Source(kind="given", name="--gpus")
    nodes = Value(-(-world // per_node), source)
    launcher = Launcher(
        nodes=nodes,
        gpus_per_node=Value(per_node, source),
        world=Value(world, source),
        programs=reading.launcher.programs,
    )
    kind = Value(gpu, source) if gpu else reading.gpu
    open_ = tuple(u for u in reading.unknowns if u.option not in ("nodes", "gpus", "gpus per node"))
    placed = replace(reading, launcher=launcher, gpu=kind, unknowns=open_)
    return replace(placed, environment={**_exported(placed), **reading.environment})


def _exported(reading: Reading) -> dict[str, Value]:
    """Variables that are set when this is written: what is not there yet is no fault of the layout."""
    source = Source(kind="given", name="written with the plan")
    wanted = advised(reading.framework, plan_from(reading))
    return {name: Value(value, source) for name, (value, _) in wanted.items()}


def _candidates(reading: Reading) -> Iterator[Reading]:
    """The layout itself, then ever smaller ones: one degree lowered by whole factors, then two, ..."""
    yield reading
    settled: dict[str, int] = {}
    for name in SHRINK:
        size = reading.get(name)
        if not isinstance(size, int) or size < 2:
            continue
        for smaller in range(size - 1, 0, -1):
            if size % smaller == 0:
                yield _with(reading, {**settled, name: smaller})
        settled[name] = 1


def _with(reading: Reading, values: dict[str, int]) -> Reading:
    source = Source(kind="derived", name="rescaled")
    options = {**reading.options, **{name: Value(value, source) for name, value in values.items()}}
    if values.get("pipeline_model_parallel_size") is not None:
        for name in ("pipeline_model_parallel_layout", "virtual_pipeline_model_parallel_size"):
            options.pop(name, None)
        options.pop("num_virtual_stages_per_pipeline_rank", None)
    if values.get("tensor_model_parallel_size") == 1:
        options.pop("sequence_parallel", None)
    return replace(reading, options=options)


def _with_batch(reading: Reading, world: int, old_world: int | None, batch: Batch) -> Reading | None:
    """The reading with a global batch that MBS * DP divides; None when the grid does not divide the world."""
    view = view_of(reading)
    grid = view.dense_grid
    if world % grid or (view.ep > 1 and world % view.expert_grid):
        return None
    old = reading.get("global_batch_size")
    if not isinstance(old, int):
        return reading
    step = int(view.mbs) * (world // int(grid))
    wanted = old * world // old_world if batch == "scale" and old_world else old
    legal = max(round(wanted / step), 1) * step
    return reading if legal == old else _with(reading, {"global_batch_size": legal})


def _changes(old: Reading, new: Reading) -> dict[str, tuple[Plain, Plain]]:
    names = [*new.options, *(name for name in old.options if name not in new.options)]
    changed = {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
    for name in ("nodes", "gpus_per_node", "world"):
        before, after = (_number(getattr(r.launcher, name)) for r in (old, new))
        if before != after:
            changed[name] = (before, after)
    return changed


def _efficiency(before: CheckResult, after: CheckResult) -> float | None:
    """Rate a GPU, new over old: from the estimates, else from the pipeline bubble alone."""
    one, two = (estimate_of(result.reading, result.view) for result in (before, after))
    if one is not None and two is not None and one.time is not None and two.time is not None:
        return two.time.tokens_per_second_per_gpu / one.time.tokens_per_second_per_gpu
    busy = [_busy(result) for result in (before, after)]
    return busy[1] / busy[0] if busy[0] and busy[1] else None


def _busy(result: CheckResult) -> float | None:
    """Share of a step without pipeline bubble: M / (M + (PP-1)/VPP)."""
    layout = result.layout()
    pp, vpp, rounds = layout["pp"], layout["vpp"], layout["num_microbatches"]
    if not pp or not rounds:
        return None
    return float(rounds / (rounds + (pp - 1) / (vpp or 1)))
