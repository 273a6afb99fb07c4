"""Plans that a framework can say: what it has no word for is refused, or not searched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from meshwright.api.asking import Options
from meshwright.api.planning import estimate
from meshwright.api.planning import plan as search
from meshwright.cluster.spec import Cluster
from meshwright.errors import LayoutError
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.write import compose, writers
from meshwright.frameworks.written import Written
from meshwright.job.spec import Recompute
from meshwright.layout.layout import DEGREES
from meshwright.model.spec import Model
from meshwright.planner.answer import Estimate

INSTEAD: Mapping[str, str] = {
    "use_megatron_fsdp": "--no-fsdp",
    "use_torch_fsdp2": "--no-fsdp",
    "virtual_pipeline_model_parallel_size": "--vpp 1",
    "recompute_granularity": "--recompute none",
    "recompute_method": "--recompute none",
    "recompute_num_layers": "--recompute none",
    "recompute_modules": "--recompute none",
    "precision": "--precision bf16",
    "optimizer_cpu_offload": "--optimizer-offload 0",
}
"""Options under which nothing is lost."""
TRIES = 4
WALK = 20
"""Plans that are looked through where no option keeps the search within a framework's words."""


def expressed(done: Written, plan: Plan, *, force: bool = False) -> Written:
    """What was written, where it is the plan; LayoutError with the nearest that works where it is not."""
    if not done.decisive or force:
        return done
    lost = ", ".join(left.text for left in done.decisive)
    nearest = dict.fromkeys(INSTEAD[left.option] for left in done.decisive if left.option in INSTEAD)
    able = list(islice(_able(plan, done.framework), 3))
    ways = [f"ask with {' '.join(nearest)}"] if nearest else []
    ways += [f"--to {' or '.join(able)} can say it"] if able else []
    ways.append("--force writes the rest")
    raise LayoutError(
        f"{done.framework} has no word for {lost}: without it this is another plan, with other memory; "
        + "; ".join(ways)
    )


def _able(plan: Plan, but: str) -> Iterator[str]:
    """Frameworks that can say a plan."""
    first = ("megatron-bridge", "megatron-lm")
    for name in (*first, *(name for name in writers() if name not in first)):
        if name == but:
            continue
        try:
            if not compose(name, plan).decisive:
                yield name
        except LayoutError:
            continue


def best_for(
    model: str | Model, gpus: str | Cluster, options: Options, framework: str, *, force: bool = False
) -> Estimate:
    """The best plan among those that a framework can say; with `force`, among all.

    LayoutError where there is none, QuestionError for a framework that is not known.
    """
    from meshwright.api.writing import plan_of_answer

    for _ in range(TRIES):
        best = _first(model, gpus, options)
        lost = compose(framework, plan_of_answer(best)).decisive
        if not lost or force:
            return best
        names = {left.option for left in lost}
        narrower = _narrower(options, names)
        if narrower is None and options.recompute is None and any(n.startswith("recompute") for n in names):
            narrower = _whole_recompute(model, gpus, options)
        if narrower is None:
            break
        options = narrower
    said: list[Estimate] = []
    for answer in search(model, gpus, options, top=WALK).plans:
        lost_here = {left.option for left in compose(framework, plan_of_answer(answer)).decisive}
        if lost_here == {"pipeline_model_parallel_layout"}:
            answer = _even(model, gpus, options, answer)
            lost_here = set() if answer.valid and not _own_stages(answer) else lost_here
        if not lost_here:
            said.append(answer)
    # where none can be said, the best is refused with its reasons
    return min(said, key=_rank, default=best)


def _rank(answer: Estimate) -> tuple[bool, float]:
    return not answer.fits, answer.time.step_seconds if answer.time is not None else float("inf")


def _even(model: str | Model, gpus: str | Cluster, options: Options, answer: Estimate) -> Estimate:
    """The same layout with stages of equal length."""
    degrees = {name: getattr(answer.layout, name) for name in DEGREES}
    execution = {**options.execution, "fsdp": answer.execution.fsdp}
    execution["optimizer_offload"] = answer.execution.optimizer_offload
    recompute = answer.execution.recompute
    asked = replace(options, **degrees, sp=answer.layout.sp, recompute=recompute, execution=execution)
    return estimate(model, gpus, replace(asked, bounds={}, free=()))


def _own_stages(answer: Estimate) -> bool:
    return any(one.option == "--pipeline-layout" for one in answer.assumptions)


def _first(model: str | Model, gpus: str | Cluster, options: Options) -> Estimate:
    best = search(model, gpus, options, top=1).best
    if best is None:
        raise LayoutError("no layout is legal for this model, these GPUs and this batch")
    return best


def _narrower(options: Options, lost: set[str]) -> Options | None:
    """The question without what was lost, as far as nobody asked for it; None where nothing is left."""
    flags = dict(options.execution)
    if lost & {"use_megatron_fsdp", "use_torch_fsdp2"} and "fsdp" not in flags:
        return replace(options, execution={**flags, "fsdp": False})
    if "optimizer_cpu_offload" in lost and "optimizer_offload" not in flags:
        return replace(options, execution={**flags, "optimizer_offload": 0.0})
    chunks = {"virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"}
    if lost & chunks and options.vpp is None:
        return replace(options, vpp=1)
    return None


def _whole_recompute(model: str | Model, gpus: str | Cluster, options: Options) -> Options:
    """The question with no recompute or that of whole layers, which every framework has: the better."""
    sets = (Recompute(), Recompute(granularity="full", num_layers=1))
    asked = [replace(options, recompute=one) for one in sets]

    return min(asked, key=lambda question: _rank(_first(model, gpus, question)))
