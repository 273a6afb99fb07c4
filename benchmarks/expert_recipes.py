"""Where the layouts that experts ship stand in the ranking of the search, recipe by recipe.

    python benchmarks/expert_recipes.py [--only TEXT] [--out FILE]

For every recipe: is its layout valid, does it fit, and what is its place among all layouts of its own
job (same model, GPUs, sequence, batch, precision and flags)? Recipes whose model the catalog does not
describe are listed with the reason, and those that cannot start must be refused.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import MeshwrightError
from meshwright.facts import load_json
from meshwright.job.precedents import Recipe, all_recipes
from meshwright.job.spec import Execution
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.rules import View, check
from meshwright.planner.again import one_row
from meshwright.planner.fit import least_state_bytes
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes, free_flags
from recipe_questions import RELEASE, execution_of, layout_of, pipeline_of, question_of, settings_of
from reporting import REPORTS, table, write

Outcome = Literal["top", "tied", "band", "behind", "over", "invalid", "refused", "accepted", "no model"]
GOOD = ("top", "tied", "band")
JUDGED = (*GOOD, "behind", "over", "invalid")
TOP_SHARE = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one recipe's layout stands.

    place    layouts of the job that are predicted faster, plus 1
    fitting  layouts of the job that fit
    slower   predicted step time over that of the fastest, less 1
    best     the layout predicted fastest
    anew     the degrees with the best recompute, sharding and CP communication for them are in the first
             tenth of all degrees, or within the band of the fastest
    why      the terms that separate the two, or why there is no place
    """

    recipe: Recipe
    outcome: Outcome
    place: int | None = None
    fitting: int = 0
    slower: float | None = None
    best: str = ""
    anew: bool = False
    why: str = ""

    @property
    def share(self) -> float:
        """Place as a fraction of the ranking."""
        return (self.place or 1) / max(self.fitting, 1)


def standing(recipe: Recipe) -> Standing:
    """Judge one recipe."""
    try:
        question = question_of(recipe)
    except MeshwrightError as error:
        return Standing(recipe=recipe, outcome="no model", why=str(error))
    layout, execution = layout_of(recipe), execution_of(recipe, question.model)
    try:
        pipeline = pipeline_of(recipe, question.model)
    except MeshwrightError as error:
        return Standing(recipe=recipe, outcome="invalid", why=str(error))
    broken = _broken(question, layout, execution, pipeline)
    if recipe.cannot_run:
        words = broken or "nothing speaks against it"
        return Standing(recipe=recipe, outcome="refused" if broken else "accepted", why=words)
    if broken:
        return Standing(recipe=recipe, outcome="invalid", why=broken)
    return _ranked(recipe, question, layout, execution, pipeline)


def _broken(question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None) -> str:
    """The messages of the rules that refuse a recipe's layout; "" where none does."""
    said = {"pipeline_model_parallel_layout": pipeline.string()} if pipeline else {}
    view = View.of(
        said, framework="megatron-bridge", release=RELEASE, layout=layout, model=question.model,
        cluster=question.cluster, job=question.job, execution=execution,
    )  # fmt: skip
    return "; ".join(f.message for f in check(view) if f.severity == "error")


def _ranked(
    recipe: Recipe, question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout | None
) -> Standing:
    try:
        row = one_row(question, layout, execution, pipeline)
        view = all_stages(row.splits)
        used, timed = memory(question, row, view), step_time(question, row, view)
    except MeshwrightError as error:
        return Standing(recipe=recipe, outcome="invalid", why=str(error))
    usable = question.cluster.gpu.usable_memory
    if not used.may_fit[0]:
        words = f"{used.peak[0] / 1024**3:.1f} GiB of {usable / 1024**3:.1f}"
        return Standing(recipe=recipe, outcome="over", why=words)
    flags = {name: free_flags(execution)[name] for name in ("fsdp", "cp_comm")}
    # offline packing has a micro-batch of one pack (rule offline-packing-mbs)
    sizes = (1,) if settings_of(recipe)["packed"] == "1" else None
    axes = Axes(execution=execution, flags=flags, splits="both", mbs=sizes)
    found = search(question, axes, keep=np.inf)
    step, best = float(timed.step[0]), int(found.step.argmin())
    place = int((found.step < step * (1 - 1e-9)).sum()) + 1
    slower = step / float(found.step[best]) - 1
    tie = load_json("meshwright.planner", "space.json")["tie"]["value"]
    outcome: Outcome = "behind"
    if place <= TOP_SHARE * found.fitting + 1:
        outcome = "top"
    elif slower <= timed.band:
        outcome = "tied" if slower <= tie else "band"
    row_of_best = found.table.rows(np.array([best]))
    fastest = step_time(question, row_of_best, all_stages(row_of_best.splits))
    change = {name: float(v[0] - fastest.terms[name][0]) / step for name, v in timed.terms.items()}
    largest = sorted(change.items(), key=lambda item: -abs(item[1]))[:4]
    best_flags = found.table.executions[int(found.table.execution[best])]
    return Standing(
        recipe=recipe, outcome=outcome, place=place, fitting=found.fitting, slower=slower,
        best=f"{found.table.layout(best)}, recompute {best_flags.recompute}"
        + (" FSDP" if best_flags.fsdp else ""),
        anew=outcome in GOOD or _anew(found, layout, timed.band),
        why=", ".join(f"{name} {value:+.0%}" for name, value in largest if abs(value) >= 0.005),
    )  # fmt: skip


def _anew(found: Found, layout: Layout, band: float) -> bool:
    """Whether the best with the recipe's degrees is in the first tenth of all degrees, or in the band."""
    columns = np.stack([getattr(found.table, name) for name in DEGREES], axis=1)
    degrees, row = np.unique(columns, axis=0, return_inverse=True)
    best = np.full(len(degrees), np.inf)
    np.minimum.at(best, row.ravel(), found.step)
    mine = (degrees == [getattr(layout, name) for name in DEGREES]).all(axis=1)
    if not mine.any():
        return False
    step = float(best[mine][0])
    place = int((best < step * (1 - 1e-9)).sum()) + 1
    return place <= TOP_SHARE * len(degrees) + 1 or step <= best.min() * (1 + band)


def lines_of(standings: Sequence[Standing], seconds: float) -> list[str]:
    """The report."""
    barred = [s for s in standings if s.outcome in ("refused", "accepted")]
    tie = load_json("meshwright.planner", "space.json")["tie"]["value"]
    lines = [
        "# Layouts that experts ship",
        "",
        f"{len(standings)} recipes of Megatron Bridge, each searched whole for its own job: model, GPUs, "
        "sequence, batch, precision, gradient type, dispatcher, graphs, overlaps and offload as in the "
        "recipe; degrees, micro-batch, recompute, FSDP and the CP communication free; where the samples are "
        "packed the micro-batch is one pack, as Megatron Bridge demands. "
        f"{seconds:.0f} s in all.",
        "",
        f"*top*: in the first {TOP_SHARE:.0%} of the ranking; *tied*: within {tie:.0%} of the fastest; "
        "*band*: within the uncertainty of a predicted time; *behind*: valid and fitting, and slower than "
        "that; *over*: predicted not to fit; *invalid*: refused by a rule. `perf` recipes are tuned for "
        "throughput; `library` recipes are meant to work, and state no claim of speed.",
        "",
        *(_sentence(kind, [s for s in standings if s.recipe.kind == kind]) for kind in ("perf", "library")),
        "",
        f"Cannot run at the GPU count of their name: {len(barred)}, of which "
        f"{sum(s.outcome == 'refused' for s in barred)} are refused.",
        "",
    ]
    lines += _why_behind(standings)
    lines += _by_group("kind", standings, lambda s: f"{s.recipe.kind}, {s.recipe.task}")
    lines += _by_group("class", standings, _class)
    lines += _by_group("GPU", standings, lambda s: s.recipe.gpu)
    lines += _by_group("model", standings, lambda s: s.recipe.model)
    for outcome, title in (
        ("behind", "Behind: the ranking prefers another layout by more than the band"),
        ("over", "Predicted not to fit"),
        ("invalid", "Refused by a rule"),
    ):
        lines += _listed(title, [s for s in standings if s.outcome == outcome])
    lines += ["## Cannot run, and why", ""]
    lines += table(
        ["recipe", "layout", "said by the recipes' own check", "answer"],
        [[s.recipe.recipe, str(layout_of(s.recipe)), s.recipe.cannot_run, s.why] for s in barred],
    )
    skipped: dict[str, list[str]] = {}
    for s in standings:
        if s.outcome == "no model":
            skipped.setdefault(s.why, []).append(s.recipe.recipe)
    lines += ["", "## Not judged: the model is not in the catalog", ""]
    lines += [f"- {len(names)} x {names[0]}: {why}" for why, names in skipped.items()]
    return lines


def _class(one: Standing) -> str:
    """Library recipes by what they are for: a small fine-tuning must start, not be fast."""
    recipe = one.recipe
    if recipe.kind == "perf":
        return "tuned"
    what = "pre-training" if recipe.task == "pretrain" else "fine-tuning"
    size = "one node or less" if recipe.gpus <= 8 else "more than a node"
    batch = "batch of 64 or less" if recipe.gbs <= 64 else "larger batch"
    return f"library {what}, {size}, {batch}"


def _sentence(kind: str, standings: Sequence[Standing]) -> str:
    count = Counter(s.outcome for s in standings if s.outcome in JUDGED)
    good, judged = sum(count[name] for name in GOOD), sum(count.values())
    parts = ", ".join(f"{count[name]} {name}" for name in JUDGED)
    anew = sum(s.anew for s in standings if s.outcome in JUDGED)
    return (
        f"- **{kind}: {good} of {judged} ({good / max(judged, 1):.1%})** ({parts}); "
        "with recompute, sharding and CP communication chosen anew for the same degrees "
        f"{anew} ({anew / max(judged, 1):.1%})"
    )


def _why_behind(standings: Sequence[Standing]) -> list[str]:
    """Which terms, and which degrees, put recipes behind."""
    lines = []
    for kind in ("perf", "library"):
        own = [s for s in standings if s.recipe.kind == kind and s.outcome == "behind"]
        terms = Counter(s.why.split(" ")[0] for s in own if s.why)
        deep = sum(s.recipe.tp >= 4 for s in own)
        said = ", ".join(f"{name} {count}" for name, count in terms.most_common())
        lines.append(
            f"- {kind}, behind: largest term that is worse than in the fastest layout: {said or 'none'}; "
            f"{deep} of {len(own)} have TP of 4 or more, {sum(s.recipe.mbs == 1 for s in own)} a "
            f"micro-batch of 1, {sum(not s.recipe.fsdp for s in own)} no FSDP."
        )
    over = [s.recipe for s in standings if s.outcome == "over"]
    lines.append(
        f"- over: {len(over)}, of which {sum(map(_too_much_state, over))} cannot hold weights, gradients and "
        "optimizer state even shared over every GPU; the others are over with the layout and the recompute "
        "that they set."
    )
    lines.append(
        "- library recipes state layouts that work on the GPUs of their name. Most of those that are behind "
        "split layers by TP or PP further than memory asks for (the fastest layout stands beside each), "
        "which costs kernel launches and traffic at small batches."
    )
    return [*lines, ""]


def _too_much_state(recipe: Recipe) -> bool:
    """Whether the state alone, shared over all GPUs of a recipe, is more than they hold."""
    question = question_of(recipe)
    return least_state_bytes(question) > recipe.gpus * question.cluster.gpu.usable_memory


def _by_group(title: str, standings: Sequence[Standing], key: Callable[[Standing], str]) -> list[str]:
    rows = []
    for name in sorted({key(s) for s in standings if s.outcome in JUDGED}):
        own = [s for s in standings if key(s) == name and s.outcome in JUDGED]
        count = Counter(s.outcome for s in own)
        places = [s.share for s in own if s.place is not None]
        numbers = [str(count[outcome]) for outcome in JUDGED]
        rows.append([name, str(len(own)), *numbers, f"{np.median(places):.1%}" if places else ""])
    return [*table([title, "judged", *JUDGED, "median place"], rows), ""]


def _listed(title: str, standings: Sequence[Standing]) -> list[str]:
    if not standings:
        return []
    rows = [
        [
            s.recipe.recipe, f"{layout_of(s.recipe)}" + (" FSDP" if s.recipe.fsdp else ""),
            f"{s.place}/{s.fitting}" if s.place else "", f"{s.slower:+.0%}" if s.slower is not None else "",
            s.best, s.why,
        ]
        for s in sorted(standings, key=lambda s: -(s.slower or 0.0))
    ]  # fmt: skip
    head = ["recipe", "its layout", "place", "slower", "predicted fastest", "why (share of its step)"]
    return [f"## {title}", "", *table(head, rows), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="recipes whose name contains this")
    parser.add_argument("--out", type=Path, default=REPORTS / "expert_recipes.md")
    args = parser.parse_args()
    start = time.perf_counter()
    standings = [standing(recipe) for recipe in all_recipes() if args.only in recipe.recipe]
    lines = lines_of(standings, time.perf_counter() - start)
    write(args.out, lines, command="python benchmarks/expert_recipes.py")


if __name__ == "__main__":
    main()
