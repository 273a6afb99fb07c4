"""One function a tool: checked arguments in, a small answer out. They run in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.errors import LayoutError, QuestionError
from meshwright.mcp import short
from meshwright.report.terminal import plan_words
from meshwright.service.asked import advice_of, file_name, files_of, ranks_of
from meshwright.service.given import cluster_of, gpus_of, model_of, options_of, overrides_of
from meshwright.service.pool import Work

Given = Mapping[str, Any]
Answer = Mapping[str, Any]
FLAGS = ("fsdp", "dispatcher")
MOST_FOUND = 25


def plan(given: Given) -> Answer:
    """The best layouts."""
    import meshwright as mw

    said = _said(given)
    found = mw.plan(model_of(said), cluster_of(said), options_of(said), top=given["top"])
    return {**short.plans(found), "command": short.command("plan", given)}


def fit(given: Given) -> Answer:
    """The fewest GPUs of a kind."""
    import meshwright as mw

    said = _said(given)
    found = mw.fit(
        model_of(said), given["gpu"], options_of(said), max_gpus=given["max_gpus"],
        cluster_overrides=overrides_of(said),
    )  # fmt: skip
    row = {"min_gpus_fitting": found.min_gpus_fitting, **short.plans(found)}
    return {**row, "command": short.command("fit", given)}


def estimate(given: Given) -> Answer:
    """One layout."""
    return {**short.estimate(_estimated(given)), "command": short.command("estimate", given)}


def write(given: Given) -> Answer:
    """A layout in the language of a framework: the one whose degrees are given, else the best."""
    import meshwright as mw

    said = _said(given)
    if any(name in given for name in ("tp", "pp", "cp", "ep")):
        answer = _estimated(given)
    else:
        best = mw.plan(model_of(said), cluster_of(said), options_of(said), top=1).best
        if best is None:
            raise LayoutError("no layout is legal for this model, these GPUs and this batch")
        answer = best
    files = files_of(answer, given["to"])
    return {"to": given["to"], "layout": plan_words(answer), "files": files}


def check(given: Given) -> Answer:
    """What is wrong with a text."""
    import meshwright as mw

    found = mw.check(
        text=given["text"], name=file_name(given), gpus=gpus_of(given),
        framework=given.get("framework"), environment=given.get("environment"),
    )  # fmt: skip
    return short.report(found.as_dict())


def ranks(given: Given) -> Answer:
    """The groups of a layout."""
    return short.grid(ranks_of(given), rank=given.get("rank"), group=given.get("group"))


def advise(given: Given) -> Answer:
    """The guide's answer, and what holds."""
    return short.advice(advice_of(given), whole=bool(given.get("topics")))


def explain(given: Given) -> Answer:
    """The page of a rule, or the rules that mention a word."""
    import meshwright as mw

    name, word = given.get("rule"), given.get("search")
    if (name is None) == (word is None):
        raise QuestionError("give rule (an id) or search (a word), one of the two")
    if name is not None:
        return {"rule": name, "page": mw.explain(name)}
    wanted = str(word).lower().split()
    rows = [row for row in mw.rules() if all(part in " ".join(row).lower() for part in wanted)]
    named = [{"rule": name, "severity": severity, "must": must} for name, severity, must in rows]
    return {"found": len(named), "rules": named[:MOST_FOUND]}


def _estimated(given: Given) -> Any:
    import meshwright as mw

    said = _said(given)
    return mw.estimate(model_of(said), cluster_of(said), options_of(said))


def _said(given: Given) -> dict[str, Any]:
    """The arguments as `service.given` reads them: flags and recompute apart."""
    said = {**given, "execution": {name: given[name] for name in FLAGS if name in given}}
    modules = given.get("recompute_modules")
    granularity = given.get("recompute", "selective" if modules else None)
    said.pop("recompute", None)
    if granularity is not None:
        chosen = modules or (["core_attn"] if granularity == "selective" else [])
        said["recompute"] = {"granularity": granularity, "modules": chosen}
    return said


KINDS: Mapping[str, Callable[[Given], Answer]] = {
    work.__name__: work for work in (plan, fit, estimate, check, ranks, advise, write, explain)
}


def warm_up() -> None:
    """Import everything and fill the caches."""
    job = {"model": "llama-3-8b", "gpus": "8xH100", "top": 1, "tp": 2}
    plan(job)
    write({**job, "to": "megatron-bridge"})
    check({"text": "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n", "name": "a.sh"})
    advise({"model": "deepseek-v3", "tp": 2})
    explain({"rule": "tp-divides-heads"})


WORK = Work(module=__name__, quick=frozenset(KINDS) - {"plan", "fit", "write"})
