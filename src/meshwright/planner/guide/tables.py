"""Sections made of the guide's tables: size, experts, topology, sequence length, combinations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meshwright.job.precedents import Recipe, all_recipes, recipes_of
from meshwright.layout.layout import Layout
from meshwright.planner.guide.rows import (
    Row,
    dense_rows,
    moe_row,
    moe_rows,
    nearest_moe_row,
    network_of,
    sequence_rows,
    span,
    topology_row,
)
from meshwright.planner.guide.spec import GuideQuestion, Section, billions, degree_words, guide

MOST_RECIPES = 4


def size(question: GuideQuestion) -> Section:
    """The dense size table: the rows for this size, or all of them."""
    table, parameters = guide()["dense_table"], question.total_params
    chosen = dense_rows(parameters) if parameters else tuple(table["rows"])
    lines = [_dense_words(row) for row in chosen]
    if parameters and len(chosen) > 1:
        lines.append(f"{billions(parameters)} lies on the boundary of these rows: both apply")
    if parameters and not chosen:
        lines.append(f"the guide is silent on dense models above 500B; this one has {billions(parameters)}")
    lines += [f"outside the row: {word}" for word in _outside(question, chosen)]
    lines += _recipe_lines(question)
    slack = table["boundary_tolerance"]["value"]
    found = [
        finding
        for finding in table["findings"]
        if not parameters
        or finding["billions"][0] * (1 - slack) <= parameters / 1e9 <= finding["billions"][1] * (1 + slack)
    ]
    return Section(
        id="size",
        title=f"By size, dense: {question.subject}",
        lines=tuple(lines),
        guide_says="a starting point by size" if chosen else "",
        holds=tuple("{}-{}B: {text}".format(*finding["billions"], text=finding["text"]) for finding in found),
        agrees=all(finding["agrees"] for finding in found),
        source=f"{guide()['source']}; {guide()['recipes_source']}",
        values={"rows": [dict(row) for row in chosen]},
    )


def experts(question: GuideQuestion) -> Section:
    """The MoE table by model, and the four regularities evaluated for this one."""
    table = guide()["moe_table"]
    row = moe_row(question.model_names)
    if row is not None:
        lines = [_moe_words(row), f"today: {table['status_words'][row['status']]}"]
        lines += [f"  {_current_words(current)}" for current in row["current"]]
    elif question.total_params or question.active_params:
        near = nearest_moe_row(question.total_params, question.active_params)
        lines = [f"the guide has no row for {question.subject}; the nearest is", f"  {_moe_words(near)}"]
    else:
        lines = [_moe_words(each) for each in moe_rows()]
    lines += _recipe_lines(question)
    for number, rule in enumerate(table["regularities"], 1):
        lines += [f"{number}. {rule['guide']}", f"   what holds: {rule['holds']}"]
    lines += _expert_lines(question)
    return Section(
        id="experts",
        title=f"By model, mixture of experts: {question.subject}",
        lines=tuple(lines),
        guide_says="few active parameters need little TP; EP is the axis that grows, "
        "PP takes the layers across nodes",
        holds=(
            table["card_disagrees"],
            f"of the {len(all_recipes())} language-model recipes we list, "
            f"{_count(lambda recipe: recipe.etp > 1)} have ETP above 1",
        ),
        agrees=row is None or row["status"] != "contradicted",
        source=f"{guide()['source']}; {guide()['recipes_source']}",
        values={
            "row": dict(row) if row else None,
            "rows": [dict(each) for each in moe_rows()],
            "regularities": list(table["regularities"]),
        },
    )


def topology(question: GuideQuestion, layout: Layout) -> Section:
    """TP and PP by network, and whether this TP stays inside an NVLink domain."""
    data, network = guide()["topology"], network_of(question)
    rows = [topology_row(network)] if network else data["rows"]
    lines = [f"{row['title']}: TP={row['tp']}" + (f", PP={row['pp']}" if row["pp"] else "") for row in rows]
    if network and question.network is None:
        lines.append(f"(taken from the number of GPUs and an NVLink domain of {question.nvlink_domain})")
    domain = question.nvlink_domain
    if "tp" in question.degrees and layout.tp > domain:
        lines.append(
            f"TP {layout.tp} is wider than an NVLink domain of {domain}: its collectives cross the network"
        )
    if network == "ethernet" and layout.tp > 4:
        lines.append(f"TP {layout.tp} is above the guide's 4 for Ethernet")
    tp1, tp8 = _count(lambda recipe: recipe.tp == 1), _count(lambda recipe: recipe.tp == 8)
    return Section(
        id="topology",
        title="By topology",
        lines=tuple(lines),
        guide_says=data["guide"],
        holds=(
            data["holds"],
            f"of the {len(all_recipes())} language-model recipes we list, {tp1} use TP=1 and {tp8} TP=8",
        ),
        source=f"{guide()['source']}; {guide()['recipes_source']}",
        values={"network": network, "rows": [dict(row) for row in rows], "nvlink_domain": domain},
    )


def sequence(question: GuideQuestion, layout: Layout) -> Section:
    """SP and CP by sequence length, and whether this length can be cut so."""
    data, length = guide()["sequence_table"], question.seq_length
    rows = sequence_rows(length) if length else tuple(data["rows"])
    lines = [f"{_tokens_words(row)}: {row['use']}" for row in rows]
    if length and len(rows) > 1:
        lines.append(f"{length:,} tokens lie on the boundary of these rows")
    if length and layout.cp > 1:
        step = 2 * layout.cp
        verdict = "can" if length % step == 0 else "cannot"
        lines.append(
            f"{length:,} tokens {verdict} be cut for CP {layout.cp}: {length:,} % {step} = {length % step}"
        )
    if length and question.is_moe and length > 32768:
        ranks = data["long_context_tokens_per_cp_rank"]["value"]
        lines.append(f"MoE at {length:,} tokens: about CP {length // ranks} by {ranks:,} tokens a rank")
    tuned = [recipe for recipe in all_recipes() if recipe.tp > 1 and recipe.kind == "perf"]
    with_sp = sum(recipe.sp for recipe in tuned)
    return Section(
        id="sequence",
        title="By sequence length" + (f": {length:,} tokens" if length else ""),
        lines=tuple(lines),
        guide_says="SP from 2K tokens, CP=2 from 8K, CP=4-8 from 32K",
        holds=(
            f"{with_sp} of {len(tuned)} performance recipes with TP>1 have SP on, at every length, "
            "and experts with TP>1 require it",
            *data["holds"],
        ),
        agrees=False,
        source=f"{guide()['source']}; {guide()['recipes_source']}",
        values={"rows": [dict(row) for row in rows]},
    )


def combinations() -> Section:
    """The guide's four combined examples, each with the GPUs it needs."""
    lines, values = [], []
    for row in guide()["combinations"]:
        layout = Layout(**{name: row.get(name, 1) for name in ("tp", "pp", "cp", "ep")}, sp=row["sp"])
        claimed, starts = row["gpus"], row["gpus"] is None or row["gpus"] % layout.min_gpus == 0
        words = f"{row['name']}: {degree_words(layout)}, SP {'on' if layout.sp else 'off'}"
        words += f"; needs {layout.min_gpus:,} GPUs"
        lines.append(words if starts else f"{words} and cannot start on {claimed:,}")
        values.append({"name": row["name"], "min_gpus": layout.min_gpus, "gpus": claimed, "valid": starts})
    return Section(
        id="combinations",
        title="Combined parallelism",
        lines=tuple(lines),
        guide_says="four examples to start from",
        holds=(
            "the last one needs 1,024 GPUs, by the guide's own formula as well",
            "on 256 GPUs, recipes use TP2 PP8 EP32, or TP1 PP4 EP64 on GB200",
        ),
        agrees=False,
        source=guide()["source"],
        values={"examples": values},
    )


def _dense_words(row: Row) -> str:
    low, high = row["billions"]
    size_words = f"< {high}B" if low == 0 else f"{low}-{high}B"
    degrees = [f"{name.upper()}={span(row[name])}" for name in ("tp", "pp", "cp") if row[name][1] > 1]
    start = " + ".join([*degrees, "DP"]) if degrees else "DP only"
    return f"{size_words}, {span(row['gpus'])} GPUs: {start}"


def _moe_words(row: Row) -> str:
    degrees = " ".join(f"{name.upper()}{row[name]}" for name in ("tp", "pp", "ep"))
    cp = f" CP{row['cp']}" if row["cp"] > 1 else ""
    note = f" ({row['note']})" if row["note"] else ""
    return f"{row['model']} {row['total_b']}B / {row['active_b']}B active: {degrees}{cp}{note}"


def _current_words(current: Row) -> str:
    names = ("tp", "pp", "vpp", "cp", "ep")
    degrees = " ".join(f"{name.upper()}{current[name]}" for name in names if name in current)
    gpu = f" {current['gpu']}" if current["gpu"] else " GPUs"
    return f"{current['gpus']:,}{gpu}: {degrees} ({current['kind']} recipe)"


def _tokens_words(row: Row) -> str:
    low, high = row["tokens"]
    if low == 0:
        return f"< {high // 1024}K"
    return f"{low // 1024}K-{high // 1024}K" if high else f"{low // 1024}K and more"


def _outside(question: GuideQuestion, rows: Iterable[Row]) -> list[str]:
    """The asked GPUs and degrees that no chosen row covers."""
    chosen = list(rows)
    if not chosen or question.total_params is None:
        return []
    asked: dict[str, Any] = {
        name: question.degrees[name] for name in ("tp", "pp", "cp") if name in question.degrees
    }
    if question.world is not None:
        asked["gpus"] = question.world
    words = []
    for name, value in asked.items():
        if not any(row[name][0] <= value <= row[name][1] for row in chosen):
            ranges = " or ".join(dict.fromkeys(span(row[name]) for row in chosen))
            label = f"{value:,} GPUs" if name == "gpus" else f"{name.upper()} {value}"
            words.append(f"{label} (the guide: {ranges})")
    return words


def _recipe_lines(question: GuideQuestion) -> list[str]:
    """What ships for this model and its twins, one line a layout, tuned ones first."""
    recipes = [r for r in recipes_of(question.model_names) if r.task == "pretrain" and not r.cannot_run]
    recipes.sort(key=lambda recipe: (recipe.kind != "perf", recipe.gpu != "H100", recipe.precision != "bf16"))
    shown = list(dict.fromkeys(f"  {recipe}, {recipe.seq_length:,} tokens" for recipe in recipes))
    if not shown:
        return []
    more = [f"  and {len(shown) - MOST_RECIPES} more"] if len(shown) > MOST_RECIPES else []
    return ["recipes that ship for it:", *shown[:MOST_RECIPES], *more]


def _expert_lines(question: GuideQuestion) -> list[str]:
    """Experts a GPU for the asked EP, or the EPs that divide the experts."""
    experts_count = question.model.num_experts if question.model else 0
    if not experts_count:
        return []
    ep = question.degrees.get("ep")
    if ep is None:
        legal = [d for d in range(1, min(experts_count, 256) + 1) if experts_count % d == 0]
        return [f"{experts_count} experts: EP can be {', '.join(map(str, legal))}"]
    if experts_count % ep:
        return [
            f"{experts_count} experts cannot be shared by EP {ep}: "
            f"{experts_count} % {ep} = {experts_count % ep}"
        ]
    return [f"{experts_count} experts over EP {ep}: {experts_count // ep} a GPU"]


def _count(wanted: Callable[[Recipe], bool]) -> int:
    return sum(map(wanted, all_recipes()))
