"""The screens of `fit`: the fewest GPUs, and the most that given GPUs take."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from meshwright.planner.answer import Estimate, Plans
from meshwright.report.terminal import plan_words, plans_screen
from meshwright.report.text import gib


def fit_screen(answer: Plans) -> RenderableType:
    """The fewest GPUs on which memory surely suffices, fewer on which it may, and how to use them."""
    best, fewest, tight = answer.best, answer.min_gpus_fitting, answer.min_gpus_tight
    if best is None or (fewest is None and tight is None):
        return Text("No number of GPUs that was tried holds this model with this batch.", style="red")
    name, model = best.question.cluster.gpu.name, best.question.model.name
    if fewest is None:
        head = f"Fewest GPUs on which {model} is tight: {tight} x {name}\n(no number tried surely fits)\n"
        return Group(Text(head, style="bold"), plans_screen(answer))
    head = (
        f"Fewest GPUs that train {model}: {fewest} x {name}\n"
        "(with the upper end of the memory band inside the card)\n"
    )
    parts: list[RenderableType] = [Text(head, style="bold")]
    if answer.tight is not None and answer.tight.memory is not None:
        used = answer.tight.memory
        words = (
            f"Tight already on {tight}: {plan_words(answer.tight)}, recompute "
            f"{answer.tight.execution.recompute}, {gib(used.peak_bytes)} GiB "
            f"({gib(used.low_bytes)}-{gib(used.high_bytes)}) of {gib(used.usable_bytes)} usable\n"
        )
        parts.append(Text(words, style="yellow"))
    return Group(*parts, plans_screen(answer))


def capacity_screen(answer: Plans) -> RenderableType:
    """The longest sequence or largest micro-batch, and the layouts for it."""
    told = answer.capacity or {}
    what = {"sequence": "Longest sequence", "micro-batch": "Largest micro-batch"}[told["asked"]]
    unit = " tokens" if told["asked"] == "sequence" else ""
    best = answer.best
    if best is None or not answer.fitting:
        least = "1,024 tokens fit" if told["asked"] == "sequence" else "a micro-batch of 1 fits"
        return Group(Text(f"Not even {least}.\n", style="bold red"), plans_screen(answer))
    head = f"{what} of {best.question.model.name} on {describe_gpus(best)}: "
    if not told["fits"]:
        head += f"{told['may_fit']:,}{unit}, and that is tight"
    else:
        head += f"{told['fits']:,}{unit}"
        if told["may_fit"] > told["fits"]:
            head += f" (up to {told['may_fit']:,} it is tight)"
    return Group(Text(head + "\n", style="bold"), plans_screen(answer))


def describe_gpus(answer: Estimate) -> str:
    """For example 8 x H100-80GB-SXM."""
    cluster = answer.question.cluster
    return f"{cluster.world:,} x {cluster.gpu.name}"
