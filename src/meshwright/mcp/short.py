"""Answers made small: what an agent decides by, in GiB and seconds, with the rest one command away."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshwright.cluster.spec import GIB
from meshwright.layout.ranks import RankGrid
from meshwright.planner.answer import Estimate, Plans
from meshwright.planner.guide import Advice
from meshwright.planner.guide.spec import degree_words
from meshwright.report.terminal import plan_words

LONGEST = 220
"""Characters of one sentence; a longer one is cut."""
MOST = 8
"""Findings, reasons or groups that are shown of one kind."""
Row = dict[str, Any]


def plans(answer: Plans) -> Row:
    """Ranked layouts, what the first is bound by, and what others would have chosen."""
    best = answer.best
    if best is None:
        refused = sorted(answer.refused.items(), key=lambda item: -item[1])
        return {"plans": [], "fitting": 0, "refused_by_rule": dict(refused[:MOST])}
    row: Row = {
        **_question(best),
        "plans": [_row(one) for one in answer.plans],
        "tied_with_fastest": answer.ties,
        "searched": answer.searched,
        "fitting": answer.fitting,
        **_whys(best, reasons=4),
    }
    others = [_cut(str(one["text"])) for one in answer.references]
    told = {"others_chose": others[:2], "what_to_change": [_cut(one) for one in answer.advice[:4]]}
    return row | {name: value for name, value in told.items() if value}


def estimate(answer: Estimate) -> Row:
    """One layout: whether it starts and fits, its memory by stage and its time by term."""
    row: Row = {
        **_question(answer),
        "valid": answer.valid,
        "fits": answer.fits,
        "min_gpus": answer.min_gpus,
        "guide_min_gpus": answer.guide_min_gpus,
        "wrong_product": answer.wrong_product,
        **_row(answer),
    }
    if answer.memory is not None:
        stages = answer.memory.per_stage
        fullest = max(stages, key=lambda stage: stage.total_bytes)
        kinds = ("weights", "gradients", "optimizer", "activations", "other")
        row["fullest_stage"] = {
            "stage": fullest.stage,
            **{f"{kind}_gib": _gib(getattr(fullest, f"{kind}_bytes")) for kind in kinds},
        }
        row["gib_of_each_stage"] = [_gib(stage.total_bytes) for stage in stages[:64]]
    if answer.time is not None:
        step = answer.time.step_seconds
        shares = sorted(answer.time.terms.items(), key=lambda term: -term[1])
        row["percent_of_step"] = {
            name: round(100 * value / step, 1) for name, value in shares if value > step / 200
        }
    return row | _whys(answer, reasons=0)


def _question(answer: Estimate) -> Row:
    """What was asked, with everything filled in."""
    question = answer.question
    job, cluster = question.job, question.cluster
    return {
        "model": question.model.name,
        "gpus": f"{cluster.world}x{cluster.gpu.name}",
        "nvlink_domain": cluster.nvlink_domain,
        "seq_length": job.seq_length,
        "gbs": job.global_batch,
        "precision": job.precision,
    }


def _row(answer: Estimate) -> Row:
    """One layout with its peak and its time."""
    layout = answer.layout
    row: Row = {"layout": plan_words(answer)}
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "edp", "mbs", "num_microbatches", "sp")
    row |= {name: getattr(layout, name) for name in names}
    row["recompute"] = _cut(str(answer.execution.recompute), 60)
    if answer.pipeline_layout and any(one.option == "--pipeline-layout" for one in answer.assumptions):
        row["pipeline_layout"] = answer.pipeline_layout[:LONGEST]
    if answer.memory is not None:
        row |= {
            "memory": answer.memory.verdict,
            "peak_gib": _gib(answer.memory.peak_bytes),
            "usable_gib": _gib(answer.memory.usable_bytes),
        }
    if answer.time is not None:
        timed = answer.time
        row |= {
            "step_seconds": _three(timed.step_seconds),
            "step_range": [_three(timed.low_seconds), _three(timed.high_seconds)],
            "tokens_per_second_per_gpu": round(timed.tokens_per_second_per_gpu),
            "tflops_per_gpu": round(timed.model_tflops_per_gpu),
            "mfu": round(timed.mfu, 3),
        }
    return row | ({"tied": True} if answer.tied else {})


def _whys(answer: Estimate, reasons: int) -> Row:
    """Findings, what binds, reasons and what was filled in; empty lists are left out."""
    findings = [
        {"rule": one.rule, "severity": one.severity, "message": _cut(one.message), "fix": _cut(one.fix)}
        for one in sorted(answer.findings, key=lambda one: one.severity != "error")
    ]
    told = {
        "findings": findings[:MOST],
        "bound_by": [_cut(one) for one in answer.binding[:4]],
        "against_neighbours": [_cut(one, 120) for one in answer.reasons[:reasons]],
        "assumed": {one.option: _plain(one.value) for one in answer.assumptions},
    }
    return {name: value for name, value in told.items() if value}


def report(found: Mapping[str, Any]) -> Row:
    """What `check` found, errors first."""
    order = {"error": 0, "warn": 1, "advice": 2}
    rows = sorted(found["findings"], key=lambda one: order.get(one["severity"], 3))
    row: Row = {
        "verdict": found["verdict"],
        "framework": next((run["framework"] for run in found["runs"]), None),
        "runs": len(found["runs"]),
        "layout": {name: value for name, value in found["layout"].items() if value is not None},
        "findings": [_finding(one) for one in rows[: 2 * MOST]],
    }
    if len(rows) > 2 * MOST:
        row["more_findings"] = len(rows) - 2 * MOST
    memory = next((run["memory"] for run in found["runs"] if run["memory"]), None)
    if memory:
        row["memory"] = {"verdict": memory["verdict"], "peak_gib": _gib(memory["peak_bytes"])}
    return row | (
        {"unknown": [_cut(str(one)) for one in found["unknown"][:MOST]]} if found["unknown"] else {}
    )


def _finding(one: Mapping[str, Any]) -> Row:
    names = ("rule", "severity", "line", "message", "fix", "enforced_by")
    return {name: _cut(one[name]) if isinstance(one[name], str) else one[name] for name in names if one[name]}


def grid(found: RankGrid, *, rank: int | None, group: str | None) -> Row:
    """Sizes of all groups and how far they reach; one rank, or the groups of one kind, whole."""
    layout = found.layout
    row: Row = {
        "world_size": found.world, "layout": degree_words(layout), "dp": found.dp, "edp": found.edp,
        "min_gpus": layout.min_gpus, "order": found.order, "gpus_per_node": found.gpus_per_node,
        "nvlink_domain": found.nvlink_domain or found.gpus_per_node,
    }  # fmt: skip
    row["groups"] = {
        name: {
            "number": reach.groups, "size": reach.size, "first": _members(found.groups[name][0].tolist()),
            "nodes": reach.nodes, "nvlink_domains": reach.domains,
        }
        for name in found.groups
        if (reach := found.reach(name)).size > 1
    }  # fmt: skip
    if rank is not None:
        mine = {name: found.group_of(name, rank) for name in found.groups}
        row["rank"] = {
            "rank": rank,
            **{name: int(values[rank]) for name, values in found.coordinates.items()},
            "node": int(found.node[rank]),
            "groups": {
                name: _members(members.tolist())
                for name, members in mine.items()
                if members is not None and len(members) > 1
            },
        }
    if group is not None:
        found.group_of(group, 0)  # raises for a kind that is not known
        members = found.groups[group].tolist()
        row["groups"] = {group: [_members(one) for one in members[:128]]}
        if len(members) > 128:
            row["more_groups"] = len(members) - 128
    return row


def _members(ranks: Sequence[int]) -> str:
    """Ranks of a group: 0-7, or 0,8,16 (gaps of groups that miss a member are negative)."""
    there = [rank for rank in ranks if rank >= 0]
    if len(there) > 2 and there[-1] - there[0] == len(there) - 1:
        return f"{there[0]}-{there[-1]}"
    shown = ",".join(map(str, there[:16]))
    return shown if len(there) <= 16 else f"{shown},... ({len(there)})"


OPEN = ("start", "size", "experts", "sequence", "nodes")
"""Sections that are told when none is named, where no degrees were given."""
MOE = ("start", "checklist", "nodes")
DENSE = ("start", "size", "topology", "sequence", "minimum", "data-parallel", "nodes")
"""Where degrees were given: the checklist has what the others say."""


def advice(answer: Advice, *, whole: bool) -> Row:
    """The verdict and the sections that matter most, each as lines; `whole` tells all that it has."""
    there = {section.id for section in answer.sections}
    wanted = (MOE if "checklist" in there else DENSE) if answer.asked else OPEN
    told = [section for section in answer.sections if whole or section.id in wanted]
    row: Row = {
        "subject": answer.subject,
        "can_start": answer.starts,
        "layout": degree_words(answer.layout),
        "layout_from": answer.layout_source,
        "gpus": answer.world,
        "min_gpus": answer.layout.min_gpus,
        "guide_min_gpus": answer.layout.guide_min_gpus,
        "wrong_product": answer.layout.wrong_product,
        "nearest_layouts": [degree_words(one) for one in answer.nearest_layouts],
        "nearest_gpus": list(answer.nearest_gpus),
        "sections": {
            section.id: _section(section.lines, section.guide_says, section.holds) for section in told
        },
    }
    left = [section.id for section in answer.sections if section not in told]
    row |= {"more_topics": left} if left else {}
    return {name: value for name, value in row.items() if value not in (None, [])}


def _section(lines: Iterable[str], guide_says: str, holds: Iterable[str]) -> Row:
    row = {"lines": list(lines), "guide_says": guide_says, "what_holds": list(holds)}
    return {name: value for name, value in row.items() if value}


PLAIN = (
    "gpus", "gpu", "tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "seq_length", "precision", "optimizer",
    "task", "framework", "recompute", "dispatcher", "nvlink_domain", "gpus_per_node", "network_gbps",
    "max_gpus", "top",
)  # fmt: skip
USUAL = {"precision": "bf16", "optimizer": "adam", "task": "pretrain", "framework": "megatron-bridge",
         "top": 3, "max_gpus": 16384}  # fmt: skip


def command(name: str, given: Mapping[str, Any]) -> str:
    """The command line that gives the whole answer."""
    parts = ["meshwright", name, given.get("model") or "config.json"]
    for option in PLAIN:
        if option in given and given[option] != USUAL.get(option):
            parts += [f"--{option.replace('_', '-')}", str(given[option])]
    if "global_batch" in given:
        parts += ["--global-batch-size", str(given["global_batch"])]
    if given.get("recompute_modules"):
        parts += ["--recompute-modules", ",".join(given["recompute_modules"])]
    for switch in ("sp", "fsdp"):
        if switch in given:
            parts.append(f"--{switch}" if given[switch] else f"--no-{switch}")
    return shlex.join(parts)


def _gib(value: float) -> float:
    return round(value / GIB, 1)


def _three(value: float) -> float:
    """Three digits that matter."""
    return float(f"{value:.3g}")


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, bool)) else _cut(str(value), 100)


def _cut(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
