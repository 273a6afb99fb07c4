"""Where to start by the guide, and whether the layout that was asked for can start at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from meshwright.layout.layout import Layout
from meshwright.layout.rules.numbers import divisors_around, multiples_around
from meshwright.planner.guide.nearest import heads_allow, nearest_layouts
from meshwright.planner.guide.rows import (
    Row,
    dense_rows,
    moe_row,
    nearest_moe_row,
    network_of,
    sequence_rows,
    topology_row,
)
from meshwright.planner.guide.spec import GuideQuestion, Section, Starts, degree_words, guide, layout_of


def working_layout(question: GuideQuestion) -> tuple[Layout, str]:
    """The degrees to evaluate the formulas with, and where they come from."""
    if question.degrees:
        sp = question.degrees.get("tp", 1) > 1 if question.sp is None else question.sp
        return layout_of(question.degrees, sp), "as asked"
    return _starting_point(question)


def problems(question: GuideQuestion, layout: Layout) -> tuple[str, ...]:
    """Why training cannot start this way; empty when nothing speaks against it."""
    return (*_world_problems(question, layout), *_model_problems(question, layout))


def start(
    question: GuideQuestion, layout: Layout, source: str
) -> tuple[Section, Starts, tuple[Layout, ...], tuple[int, ...]]:
    """The verdict on the degrees, with the nearest layouts and GPU counts that can start."""
    found, world = problems(question, layout), question.world
    short = world is not None and world % layout.min_gpus != 0
    counts = multiples_around(layout.min_gpus, world) if world is not None and short else ()
    near = _near(question, layout) if found else ()
    words = degree_words(layout)
    name = words if source == "as asked" else f"{words} ({source})"
    on_gpus = f" on {world:,} GPUs" if world is not None else ""
    if found:
        lines = [f"{name} cannot start{on_gpus}:", *(f"  {problem}" for problem in found)]
    else:
        lines = [f"{name} {_can_words(question, layout)}"]
    if near:
        shipped = shipped_layouts(question)
        ships = {each: " (ships as a recipe)" for each in near if _plain(each) in shipped}
        lines.append(f"nearest layouts that can start{on_gpus}:")
        lines += [f"  {degree_words(each)}{ships.get(each, '')}" for each in near]
    if counts:
        lines.append(f"nearest GPU counts for {words}: {', '.join(f'{count:,}' for count in counts)}")
    section = Section(
        id="start",
        title="Can it start?",
        lines=(*lines, *warnings(question, layout)),
        source=guide()["two_grids"]["source"],
        values={"problems": list(found)},
    )
    return section, "no" if found else "yes", near, counts


def _near(question: GuideQuestion, layout: Layout) -> tuple[Layout, ...]:
    """Nearest layouts on the asked GPUs; without a GPU count, on the fewest of the asked layout."""
    world = question.world or layout.min_gpus
    shipped, domain = shipped_layouts(question), question.nvlink_domain
    found = nearest_layouts(
        layout,
        world,
        question.model,
        question.seq_length,
        shipped=shipped,
        most_tp=domain,
        moe=question.is_moe,
    )
    return tuple(each for each in found if each != layout)


def shipped_layouts(question: GuideQuestion) -> frozenset[Layout]:
    """Layouts of the model's recipes that the guide's MoE table knows, without VPP and SP."""
    row = moe_row(question.model_names)
    names = ("tp", "pp", "cp", "ep")
    return frozenset(
        Layout(**{name: current.get(name, 1) for name in names})
        for current in (row["current"] if row else ())
    )


def warnings(question: GuideQuestion, layout: Layout) -> list[str]:
    """What starts, but not as one might think."""
    words = []
    if layout.sp and layout.tp == 1:
        words.append("SP with TP 1: Megatron-LM and Megatron Bridge switch it off, raw Megatron Core raises")
    if question.is_moe and "etp" not in question.degrees and layout.tp > 1:
        words.append(
            f"ETP is taken as 1, as Megatron Bridge does; unset, Megatron-LM makes it TP: {layout.tp}, "
            f"which needs {_with_etp(layout):,} GPUs"
        )
    return words


def _with_etp(layout: Layout) -> int:
    return Layout(tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep, etp=layout.tp).min_gpus


def _world_problems(question: GuideQuestion, layout: Layout) -> Iterator[str]:
    world = question.world
    if world is not None and world % layout.min_gpus:
        reason = "fewer than" if world < layout.min_gpus else "not a multiple of"
        yield (
            f"{world:,} GPUs are {reason} the {layout.min_gpus:,} it needs: PP {layout.pp} x "
            f"lcm(TP {layout.tp} x CP {layout.cp}, EP {layout.ep} x ETP {layout.etp})"
        )


def _model_problems(question: GuideQuestion, layout: Layout) -> Iterator[str]:
    model, length = question.model, question.seq_length
    if question.is_moe is False and layout.ep > 1:
        yield f"EP {layout.ep} on a dense model: Megatron Core and Megatron-LM refuse it; use EP 1"
    if question.is_moe and layout.tp > 1 and not layout.sp:
        yield f"experts with TP {layout.tp} need SP in training: without it the first forward pass raises"
    if length is not None and layout.cp > 1 and length % (2 * layout.cp):
        below, *above = multiples_around(2 * layout.cp, length)
        near = " or ".join(f"{value:,}" for value in (below, *above))
        yield f"{length:,} tokens are not a multiple of 2 x CP {layout.cp} = {2 * layout.cp}; nearest: {near}"
    if model is None:
        return
    if model.num_experts and model.num_experts % layout.ep:
        near = " or ".join(map(str, divisors_around(model.num_experts, layout.ep)))
        yield f"{model.num_experts} experts cannot be shared evenly by EP {layout.ep}; nearest: {near}"
    if not heads_allow(model, layout.tp):
        legal = [tp for tp in range(1, 129) if heads_allow(model, tp)]
        yield (
            f"the attention heads of {model.name} do not divide over TP {layout.tp}; possible: "
            + ", ".join(map(str, legal))
        )
    if layout.pp * layout.vpp > model.num_layers + 2 + len(model.mtp):
        yield f"{model.num_layers} layers cannot fill PP {layout.pp} x VPP {layout.vpp} stages"


def _can_words(question: GuideQuestion, layout: Layout) -> str:
    world = question.world
    if world is None:
        return f"can start on {layout.min_gpus:,} GPUs and any multiple"
    sizes = f"DP {layout.dp(world):,}" + (f", EDP {layout.edp(world):,}" if layout.expert_grid > 1 else "")
    return (
        f"can start on {world:,} GPUs: {sizes}; "
        "whether it fits in memory is another question (meshwright estimate)"
    )


def _plain(layout: Layout) -> Layout:
    return Layout(tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep)


def _starting_point(question: GuideQuestion) -> tuple[Layout, str]:
    """The guide's own starting point: a row of a size table, then CP by sequence and TP by network."""
    row, source = _size_row(question)
    if row is None:
        example = guide()["scaling_example"]
        return Layout(tp=example["tp"], ep=example["ep"], sp=True), "the guide's example of growth"
    end = _end(question, row)
    degrees = {name: _pick(row.get(name, 1), end) for name in ("tp", "pp", "cp", "ep")}
    if question.seq_length is not None:
        degrees["cp"] = max(degrees["cp"], sequence_rows(question.seq_length)[0]["cp"][0])
    network = network_of(question)
    if network is not None:
        degrees["tp"] = min(degrees["tp"], topology_row(network)["tp"])
    return layout_of(degrees, sp=degrees["tp"] > 1), source


def _size_row(question: GuideQuestion) -> tuple[Row | None, str]:
    if question.is_moe:
        row = moe_row(question.model_names)
        if row is not None:
            return row, f"the guide's MoE table, {row['model']}"
        if question.total_params or question.active_params:
            near = nearest_moe_row(question.total_params, question.active_params)
            return near, f"the guide's MoE table, nearest row: {near['model']}"
        return None, ""
    rows = dense_rows(question.total_params) if question.total_params else ()
    if rows:
        low, high = rows[0]["billions"]
        return rows[0], f"the guide's dense table, {low}-{high}B"
    last = guide()["dense_table"]["rows"][-1]
    return (
        (last, "the guide's dense table ends at 500B; its last row") if question.total_params else (None, "")
    )


def _end(question: GuideQuestion, row: Row) -> int:
    """Which end of a row's ranges: 0 for the smaller half of its sizes, 1 for the larger (in log scale)."""
    if "billions" not in row or not question.total_params:
        return 0
    low, high = row["billions"]
    return int(question.total_params / 1e9 >= math.sqrt(max(low, 0.1) * high))


def _pick(value: int | Sequence[int], end: int) -> int:
    return value if isinstance(value, int) else value[end]
