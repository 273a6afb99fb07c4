"""The two grids of a layout in words: minimum GPUs, data parallelism, growth, nodes, the MoE checklist."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from meshwright.layout.layout import Layout
from meshwright.planner.guide.rows import sequence_rows
from meshwright.planner.guide.spec import GuideQuestion, Section, degree_words, guide

MAX_FORMULA = "min_gpus = PP * max(TP*CP, EP*ETP)"
LCM_FORMULA = "PP * lcm(TP*CP, EP*ETP)"
PRODUCT = "PP*TP*CP*EP*ETP"


def minimum(layout: Layout, layout_source: str) -> Section:
    """Fewest GPUs, term by term, beside the guide's formula and the product that is wrong."""
    agrees = layout.min_gpus == layout.guide_min_gpus
    grids = guide()["two_grids"]
    lines = [
        f"for {degree_words(layout)} ({layout_source}):",
        f"dense grid of a stage: TP {layout.tp} x CP {layout.cp} = {layout.dense_grid:,}; "
        f"expert grid: EP {layout.ep} x ETP {layout.etp} = {layout.expert_grid:,}",
        "both grids lie over the same GPUs of a stage, and each must divide them: "
        f"lcm({layout.dense_grid:,}, {layout.expert_grid:,}) = {_stage(layout):,}",
        f"times PP {layout.pp}: {layout.min_gpus:,} GPUs at least "
        f"(the guide's formula: {layout.guide_min_gpus:,})",
        _product_line(layout),
        *_table(),
    ]
    return Section(
        id="minimum",
        title="Fewest GPUs",
        lines=tuple(lines),
        guide_says=f"{MAX_FORMULA}; the two grids: {grids['cited']}",
        holds=(_lcm_words(layout),),
        agrees=agrees,
        source=grids["source"],
        values={
            "dense_grid": layout.dense_grid,
            "expert_grid": layout.expert_grid,
            "min_gpus": layout.min_gpus,
            "guide_min_gpus": layout.guide_min_gpus,
            "wrong_product": layout.wrong_product,
            "examples": [dict(row) for row in guide()["min_gpu_examples"]],
        },
    )


def data_parallel(layout: Layout, world: int | None) -> Section:
    """Both data-parallel sizes, evaluated, and what more GPUs do to them."""
    lines = [*_evaluated(layout, world)] if world is not None else []
    lines.append(f"growing from the minimum of {layout.min_gpus:,} GPUs:")
    rows = growth(layout)
    lines += [
        f"  {row['gpus']:,} GPUs: DP {row['dp']:,}, EDP {row['edp']:,}"
        + (f"; global batch x{row['batch']} at the same micro-batches a rank" if row["batch"] > 1 else "")
        for row in rows
    ]
    return Section(
        id="data-parallel",
        title="Data parallelism follows from the rest",
        lines=tuple(lines),
        guide_says="data_parallel_size = world_size / (TP*PP*CP) for the dense path, "
        "expert_data_parallel_size = world_size / (PP*EP*ETP) for MoE; more GPUs grow DP, EDP or both, "
        "and at the minimum the larger grid has 1 of them",
        holds=(
            "the global batch grows with DP only if the micro-batches a rank stay the same; "
            "at a fixed global batch they become fewer and the pipeline bubble grows",
        ),
        source="megatron/core/parallel_state.py, initialize_model_parallel",
        values={"growth": list(rows), **_sizes(layout, world)},
    )


def nodes(layout: Layout, question: GuideQuestion) -> Section:
    """What goes into `--nodes` of a Slurm script."""
    per_node = question.gpus_per_node
    needed = layout.min_gpus
    if needed < per_node:
        lines = [f"--nodes=1 --ntasks-per-node={needed} (part of a node of {per_node})"]
        count = 1
    else:
        whole = math.lcm(needed, per_node)
        count = whole // per_node
        lines = [
            f"--nodes={count} --ntasks-per-node={per_node}"
            + (
                f" for the minimum of {needed:,} GPUs"
                if whole == needed
                else f": {needed:,} GPUs do not fill nodes of {per_node}; {whole:,} GPUs do"
            )
        ]
    lines.append(f"for more throughput through DP and EDP: multiples of it ({2 * count}, {4 * count}, ...)")
    if question.world is not None:
        lines.append(f"{question.world:,} GPUs are {_node_count(question.world, per_node)} of {per_node}")
    return Section(
        id="nodes",
        title="Slurm",
        lines=tuple(lines),
        guide_says="compute --nodes from min_gpus, or a multiple of it for throughput",
        source=guide()["source"],
        values={"nodes": count, "gpus_per_node": per_node},
    )


def checklist(layout: Layout, question: GuideQuestion) -> Section:
    """The points that the guide wants in every answer about an MoE layout, each with its numbers."""
    lines = [
        f"minimum GPUs: PP * max(TP*CP, EP*ETP) = {layout.pp} * max({layout.dense_grid}, "
        f"{layout.expert_grid}) = {layout.guide_min_gpus:,}; exactly, {LCM_FORMULA} = {layout.min_gpus:,}"
        f" ({_node_count(layout.min_gpus, question.gpus_per_node)} of {question.gpus_per_node})",
        _product_line(layout),
        "both DP formulas: "
        + "; ".join(_evaluated(layout, question.world or layout.min_gpus))
        + ("" if question.world else f" (on the minimum of {layout.min_gpus:,} GPUs)"),
        _tp_line(layout, question),
        _sp_line(layout),
        _cp_line(layout, question.seq_length),
        _length_line(question.seq_length),
    ]
    return Section(
        id="checklist",
        title="MoE checklist",
        lines=tuple(f"[x] {line}" for line in lines),
        guide_says="answers about MoE layouts give the minimum, refuse the full product, "
        "give both DP formulas, and mention TP topology, SP, CP divisibility and CP for long sequences",
        source=guide()["source"],
    )


def _tp_line(layout: Layout, question: GuideQuestion) -> str:
    domain = question.nvlink_domain
    stays = "stays" if layout.tp <= domain else "does not stay"
    return (
        f"TP topology: TP {layout.tp} {stays} inside one NVLink domain (of {domain} GPUs), where TP belongs; "
        "grow across nodes with PP, EP or DP"
    )


def _sp_line(layout: Layout) -> str:
    state = "on (sequence_parallel=True)" if layout.sp else "off"
    if layout.tp == 1:
        return f"SP: {state}; it needs TP > 1"
    needs = "MoE with TP > 1 trains only with SP on" if layout.sp else "turn it on: MoE with TP > 1 needs SP"
    return f"SP: {state}; {needs}"


def _cp_line(layout: Layout, length: int | None) -> str:
    rule = "CP divisibility: seq_length % (2 * CP) == 0"
    if layout.cp == 1:
        return f"{rule} for CP > 1; CP 1 has nothing to divide"
    step = 2 * layout.cp
    if length is None:
        return f"{rule}: with CP {layout.cp} a multiple of {step}"
    return f"{rule}: {length:,} % {step} = {length % step}" + ("" if length % step == 0 else ", not legal")


def _length_line(length: int | None) -> str:
    words = "long sequences: from 2K tokens SP, from 8K add CP=2, from 32K CP=4-8 (a2a+p2p for large CP)"
    if length is None:
        return words
    uses = " or ".join(row["use"] for row in sequence_rows(length))
    return f"{words}; {length:,} tokens: {uses}"


def growth(layout: Layout, factors: tuple[int, ...] = (1, 2, 4)) -> tuple[dict[str, int], ...]:
    """DP and EDP at multiples of the minimum; `batch` is the growth of the global batch."""
    return tuple(
        {
            "gpus": factor * layout.min_gpus,
            "dp": layout.dp(factor * layout.min_gpus),
            "edp": layout.edp(factor * layout.min_gpus),
            "batch": factor,
        }
        for factor in factors
    )


def _evaluated(layout: Layout, world: int) -> tuple[str, str]:
    """Both formulas with numbers in them; a fraction shows that the world does not fit."""
    dense, expert = layout.pp * layout.dense_grid, layout.pp * layout.expert_grid
    pp = layout.pp
    return (
        f"dense DP = world_size / (TP * PP * CP) = {world:,} / ({layout.tp} * {pp} * {layout.cp}) = "
        f"{_quotient(world, dense)}",
        f"MoE EDP = world_size / (PP * EP * ETP) = {world:,} / ({pp} * {layout.ep} * {layout.etp}) = "
        f"{_quotient(world, expert)}",
    )


def _quotient(world: int, divisor: int) -> str:
    share = Fraction(world, divisor)
    return f"{share.numerator:,}" if share.denominator == 1 else f"{share} (not whole)"


def _sizes(layout: Layout, world: int | None) -> dict[str, Any]:
    if world is None or world % layout.min_gpus:
        return {"dp": None, "edp": None}
    return {"dp": layout.dp(world), "edp": layout.edp(world)}


def _stage(layout: Layout) -> int:
    return layout.min_gpus // layout.pp


def _product_line(layout: Layout) -> str:
    words = f"{PRODUCT} = {layout.wrong_product:,}"
    if min(layout.dense_grid, layout.expert_grid) == 1:
        return f"{words} is the same here only because one grid is 1; it is not usable as a rule"
    return f"{words} is not usable: it multiplies two grids that share their GPUs"


def _lcm_words(layout: Layout) -> str:
    known = guide()["counter_example"]
    example = Layout(**known)
    words = f"the minimum is {LCM_FORMULA}"
    if layout.min_gpus != layout.guide_min_gpus:
        return (
            f"{words} = {layout.min_gpus:,}; the guide's formula gives {layout.guide_min_gpus:,}, "
            "on which it cannot start"
        )
    return (
        f"{words}; the guide's formula is the same here, where one grid divides the other, and too small "
        f"otherwise (TP{example.tp} EP{example.ep}: {example.min_gpus}, not {example.guide_min_gpus})"
    )


def _table() -> list[str]:
    """The guide's six examples."""
    lines = ["the guide's examples (product -> minimum):"]
    for row in guide()["min_gpu_examples"]:
        layout = Layout(**{name: row[name] for name in ("pp", "tp", "cp", "ep", "etp")})
        degrees = " ".join(f"{name.upper()}{row[name]}" for name in ("pp", "tp", "cp", "ep", "etp"))
        lines.append(f"  {degrees}: {layout.wrong_product} -> {layout.min_gpus}")
    return lines


def _node_count(world: int, per_node: int) -> str:
    whole, rest = divmod(world, per_node)
    if not whole:
        return "part of one node"
    return f"{whole:,} node{'s' if whole > 1 else ''}" + (f" and {rest} GPUs" if rest else "")
