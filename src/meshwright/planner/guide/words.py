"""Sections in words: code lines, cautions, the verification command, the list of corrections."""

from __future__ import annotations

from meshwright.layout.layout import Layout
from meshwright.planner.guide.spec import Section, degrees_of, guide


def code(layout: Layout) -> Section:
    """The configuration lines that set these degrees."""
    data = guide()["code"]
    lines = code_lines(layout)
    handed = ", ".join(data["initializer_arguments"])
    return Section(
        id="code",
        title="In code",
        lines=(
            *lines,
            f"or as arguments of {data['provider']}(tensor_model_parallel_size={layout.tp}, ...)",
            "data_parallel_size = world_size / (tensor_model_parallel_size * pipeline_model_parallel_size "
            "* context_parallel_size)",
            f"handed on to {data['initializer']}({handed}, ...)",
        ),
        guide_says="set the degrees on the model provider; Bridge passes them to the process groups",
        holds=tuple(data["anchors"]),
        source=guide()["source"],
        values={"lines": list(lines)},
    )


def code_lines(layout: Layout) -> tuple[str, ...]:
    """`cfg.model.<option> = <value>` for each degree above 1, TP always, and SP.

    ETP is spelled out wherever there are experts to divide, because its default differs by framework.
    """
    fields, degrees = guide()["code"]["fields"], degrees_of(layout)
    shown = [
        name for name in fields if name == "tp" or degrees[name] > 1 or (name == "etp" and layout.ep > 1)
    ]
    lines = [f"cfg.model.{fields[name]} = {degrees[name]}" for name in shown]
    return (*lines, f"cfg.model.sequence_parallel = {layout.sp}")


def cautions() -> Section:
    """The guide's eight cautions, each with what holds, and two that it lacks."""
    data = guide()["cautions"]
    words = {"holds": "holds", "refined": "holds, more exactly", "too-strict": "too strict"}
    lines = [
        f"{number}. {row['guide']}. [{words[row['status']]}] {row['holds']}"
        for number, row in enumerate(data, 1)
    ]
    lines += [f"+  {missing}" for missing in guide()["not_in_the_guide"]]
    return Section(
        id="cautions",
        title="Cautions",
        lines=tuple(lines),
        agrees=False,
        source=f"{guide()['source']}; Megatron Core, Megatron-LM and Megatron Bridge argument checks",
        values={"cautions": [dict(row) for row in data]},
    )


def verification() -> Section:
    """The smallest run that shows that combined parallelism initialises, and how to read it."""
    data = guide()["verification"]
    layout = Layout(tp=data["tp"], pp=data["pp"], sp=True)
    dp = layout.dp(data["gpus"])
    micro = layout.num_microbatches(data["gpus"], data["gbs"])
    return Section(
        id="verification",
        title="Check that it initialises",
        lines=(
            *verification_command(),
            f"({data['layers']} layers, {data['layers'] // layout.pp} a stage; "
            f"DP {dp}; {micro} micro-batches)",
            "success:",
            *(f"  {criterion}" for criterion in data["success"]),
            "without GPUs: meshwright verify runs the layout small on Megatron Core itself",
        ),
        guide_says="run the smallest recipe on 4 GPUs for 3 iterations with the degrees overridden",
        source=guide()["source"],
        values={"command": " ".join(line.removesuffix(" \\") for line in verification_command())},
    )


def verification_command() -> tuple[str, ...]:
    """The guide's command, one part a line, ready for a shell."""
    data, fields = guide()["verification"], guide()["code"]["fields"]
    devices = ",".join(map(str, range(data["gpus"])))
    parts = [
        f"CUDA_VISIBLE_DEVICES={devices} {data['launcher']} --nproc_per_node={data['gpus']}",
        f"  {data['script']} --recipe {data['recipe']}",
        f"  model.{fields['tp']}={data['tp']} model.{fields['pp']}={data['pp']}",
        "  model.sequence_parallel=True",
        *_three_a_line([f"{name}={value}" for name, value in data["overrides"].items()]),
    ]
    return (*(f"{part} \\" for part in parts[:-1]), parts[-1])


def _three_a_line(words: list[str]) -> list[str]:
    return ["  " + " ".join(words[start : start + 3]) for start in range(0, len(words), 3)]


def corrections() -> Section:
    """Every place where the guide is wrong or too coarse, with numbers."""
    rows = guide()["corrections"]
    return Section(
        id="corrections",
        title="Where the guide and what holds differ",
        lines=tuple(line for row in rows for line in (f"the guide: {row['guide']}", f"  {row['holds']}")),
        agrees=False,
        source=f"{guide()['source']}; {guide()['two_grids']['source']}",
        values={"corrections": [dict(row) for row in rows]},
    )
