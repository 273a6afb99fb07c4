"""One function a kind of question: plain values in, plain values out. They run in a worker process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.errors import LayoutError, QuestionError

Given = Mapping[str, Any]
Answer = Mapping[str, Any]

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
PLAIN = (
    "seq_length", "global_batch", "precision", "optimizer", "grad_dtype", "task", "stack", "framework",
    "framework_version", "sp", "pipeline_layout",
)  # fmt: skip
CHANGES = ("num_layers", "mtp_num_layers", "vocab_size", "max_position")
OVERRIDES = ("gpus_per_node", "nvlink_domain", "network_gbps", "gpu_memory_gb")


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
    asked = _model(given), _cluster(given), _options(given)
    if kind == "estimate":
        return mw.estimate(*asked)
    return mw.plan(*asked, top=given["top"], variants=given.get("variants", False))


def fit(given: Given) -> Answer:
    """The fewest GPUs of a kind."""
    import meshwright as mw

    found: Answer = mw.fit(
        _model(given), given["gpu"], _options(given), max_gpus=given["max_gpus"], top=given["top"],
        cluster_overrides=_overrides(given),
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

    asked = _model(given), _cluster(given), _options(given)
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
    import meshwright as mw

    answer = _once("estimate", given)
    if not answer.valid:
        raise LayoutError(f"this layout cannot start: {answer.findings[0].message}")
    return {"target": given["target"], "files": mw.write(answer, given["target"])}


def trace(given: Given) -> Answer:
    """One step of a layout, for Perfetto."""
    from meshwright.api.picturing import trace as traced

    return traced(_once("estimate", given))


def check(given: Given) -> Answer:
    """What is wrong with a launch script or config: it is read and never run."""
    import meshwright as mw

    found: Answer = mw.check(
        text=given["text"], name=Path(given["name"]).name or "script.sh", gpus=given.get("gpus"),
        gpu=given.get("gpu"), framework=given.get("framework"),
    ).as_dict()  # fmt: skip
    return found


def ranks(given: Given) -> Answer:
    """Every rank and group."""
    import meshwright as mw

    degrees = {name: given[name] for name in ("tp", "pp", "vpp", "cp", "ep", "etp")}
    grid = mw.ranks(
        given["world_size"], degrees, order=given.get("order"), gpus_per_node=given.get("gpus_per_node"),
        nvlink_domain=given.get("nvlink_domain"),
    )  # fmt: skip
    row: Answer = grid.as_json()
    return row


def _model(given: Given) -> Any:
    """The model of a question: of the catalog or of the uploaded text; never a path, never a download."""
    from meshwright.model import catalog
    from meshwright.model.change import override
    from meshwright.model.huggingface import read_config
    from meshwright.model.load import parse_config

    name, text = given.get("model"), given.get("config")
    if (name is None) == (text is None):
        raise QuestionError("give a model of the catalog, or the text of a config.json (one of the two)")
    if text is not None:
        said = str(given.get("config_name") or "config.json")
        config = parse_config(text.encode("utf-8", "replace"), said)
        stem = Path(said).stem
        model = read_config(config, name=None if stem == "config" else stem[:60] or None)
    else:
        model = catalog.find(str(name))
    changes = {key: given[key] for key in CHANGES if given.get(key) is not None}
    return override(model, changes) if changes else model


def _cluster(given: Given) -> Any:
    from meshwright.cluster.parse import parse_cluster

    text = str(given["gpus"])
    if text.strip().lower().endswith((".yaml", ".yml")):
        raise QuestionError("write GPUs as 256xH100; files are not read here")
    cluster = parse_cluster(text, **_overrides(given))
    if cluster.world > MOST_GPUS:
        raise QuestionError(f"{cluster.world:,} GPUs are more than this server plans for ({MOST_GPUS:,})")
    return cluster


MOST_GPUS = 131_072


def _overrides(given: Given) -> dict[str, Any]:
    return {name: given[name] for name in OVERRIDES if given.get(name) is not None}


def _options(given: Given) -> Any:
    from meshwright.api.asking import Options
    from meshwright.job.spec import Recompute

    fields: dict[str, Any] = {name: given[name] for name in PLAIN if given.get(name) is not None}
    for name in DEGREES:
        value = given.get(name)
        if value is not None:
            fields[name] = tuple(value) if isinstance(value, list) else value
    row = given.get("recompute")
    if row is not None:
        fields["recompute"] = Recompute(**{**row, "modules": tuple(row.get("modules", ()))})
    execution = {k: v for k, v in (given.get("execution") or {}).items() if v is not None}
    if "overlaps" in execution:
        execution["overlaps"] = frozenset(execution["overlaps"])
    fields["execution"] = execution
    return Options(**fields)


KINDS: Mapping[str, Callable[[Given], Answer]] = {
    work.__name__: work
    for work in (plan, fit, estimate, size, curve, report, write, check, ranks, trace)
}  # fmt: skip
