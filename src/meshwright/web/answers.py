"""One function a kind of question: plain values in, plain values out. They run in a worker process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from meshwright.service.asked import advice_of, file_name, files_of, ranks_of
from meshwright.service.given import cluster_of, model_of, options_of, overrides_of
from meshwright.service.pool import Work
from meshwright.web.command import verify_command

Given = Mapping[str, Any]
Answer = Mapping[str, Any]


def plan(given: Given) -> Answer:
    """The best layouts; with `width` their scatter."""
    from meshwright.api.picturing import ranking

    answer = _once("plan", given)
    row: dict[str, Any] = answer.as_dict()
    if given.get("width") and answer.fitting:
        row["pictures"] = [ranking(answer, width=given["width"]).as_dict()]
    return row


DRAWN = frozenset({"width", "group", "pictures", "target"})
"""What only says how an answer is shown."""


def _once(kind: str, given: Given) -> Any:
    """The answer itself, kept for the next picture of it."""
    return _kept(kind, json.dumps({k: v for k, v in given.items() if k not in DRAWN}, sort_keys=True))


@lru_cache(maxsize=32)
def _kept(kind: str, text: str) -> Any:
    import meshwright as mw

    given = json.loads(text)
    asked = model_of(given), cluster_of(given), options_of(given)
    if kind == "estimate":
        return mw.estimate(*asked)
    return mw.plan(*asked, top=given["top"], variants=given.get("variants", False))


def fit(given: Given) -> Answer:
    """The fewest GPUs of a kind."""
    import meshwright as mw

    found: Answer = mw.fit(
        model_of(given), given["gpu"], options_of(given), max_gpus=given["max_gpus"], top=given["top"],
        cluster_overrides=overrides_of(given),
    ).as_dict()  # fmt: skip
    return found


def estimate(given: Given) -> Answer:
    """One layout; with `width` its pictures."""
    from meshwright.api.picturing import pictures

    answer = _once("estimate", given)
    row: dict[str, Any] = answer.as_dict()
    if given.get("width"):
        drawn = pictures(answer, width=given["width"], group=given.get("group"), names=given.get("pictures"))
        row["pictures"] = [one.as_dict() for one in drawn]
    return row


def size(given: Given) -> Answer:
    """The best layout on `scale` times as many GPUs; at 1 a question that is wrong is told so."""
    import meshwright as mw
    from meshwright.api.reporting import size_at

    asked = model_of(given), cluster_of(given), options_of(given)
    scale = given["scale"]
    best = mw.plan(*asked, top=1).best if scale == 1.0 else size_at(*asked, scale)
    if best is None:
        return {"fits": False, "global_batch": None}
    row = best.as_dict()
    return {
        "fits": best.fits, "gpus": best.question.cluster.world, "global_batch": best.layout.gbs,
        **{name: row[name] for name in ("layout", "time", "memory")},
    }  # fmt: skip


def curve(given: Given) -> Answer:
    """The scaling curve of sizes that were found."""
    from meshwright.report.svg.scaling import Size, scaling_picture

    sizes = [
        Size(
            gpus=row["gpus"], step_seconds=row["time"]["step_seconds"], words=_words(row["layout"]),
            tokens_per_second=row["time"]["tokens_per_second_per_gpu"] * row["gpus"],
        )
        for row in given["sizes"]
    ]  # fmt: skip
    drawn = [scaling_picture(sizes, given["width"]).as_dict()] if len(sizes) > 1 else []
    return {"sizes": given["sizes"], "pictures": drawn}


def _words(layout: Given) -> str:
    from meshwright.planner.answer import Degrees
    from meshwright.report.terminal import layout_words

    return layout_words(Degrees(**layout))


def report(given: Given) -> Answer:
    """The plan as one HTML file."""
    from meshwright.api.reporting import html_report

    return {"html": html_report(_once("plan", given), scale=False)}


def write(given: Given) -> Answer:
    """One layout in the language of a framework."""
    return {"target": given["target"], "files": files_of(_once("estimate", given), given["target"])}


def trace(given: Given) -> Answer:
    """One step of a layout, for Perfetto."""
    from meshwright.api.picturing import trace as traced

    return traced(_once("estimate", given))


def check(given: Given) -> Answer:
    """What is wrong with a launch script or config: it is read and never run."""
    import meshwright as mw

    found: Answer = mw.check(
        text=given["text"], name=file_name(given), gpus=given.get("gpus"),
        gpu=given.get("gpu"), framework=given.get("framework"),
    ).as_dict()  # fmt: skip
    return found


def ranks(given: Given) -> Answer:
    """Every rank and group."""
    row: Answer = ranks_of(given).as_json()
    return row


def compare(given: Given) -> Answer:
    """Two launch scripts or configs side by side."""
    from meshwright.api.comparing import compare_texts

    left, right = (
        (given[side], file_name(given, f"{side}_name", f"{side}.sh")) for side in ("left", "right")
    )
    found: Answer = compare_texts(left, right).as_dict()
    return found


def advise(given: Given) -> Answer:
    """The parallelism guide's answer, and what holds."""
    found: Answer = advice_of(given).as_dict()
    return found


def verify(given: Given) -> Answer:
    """The plan to prove, and the command that does it; the engine itself does not run in this process."""
    answer = _once("estimate", {name: value for name, value in given.items() if name != "levels"})
    levels = ",".join(map(str, given["levels"]))
    return {"command": verify_command(answer, given, levels), "plan": answer.as_dict()}


KINDS: Mapping[str, Callable[[Given], Answer]] = {
    work.__name__: work
    for work in (
        plan, fit, estimate, size, curve, report, write, check, compare, advise, verify, ranks, trace,
    )
}  # fmt: skip


def warm_up() -> None:
    """Import everything and fill the caches."""
    job = {"model": "llama-3-8b", "gpus": "8xH100", "top": 1, "variants": False, "width": 400.0}
    plan(job)
    estimate({**job, "tp": 2, "pp": 2})
    check({"text": "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n", "name": "a.sh"})
    write({**job, "tp": 2, "target": "megatron-bridge"})


WORK = Work(
    module=__name__,
    quick=frozenset({"estimate", "check", "compare", "advise", "verify", "write", "ranks", "trace", "curve"}),
)
