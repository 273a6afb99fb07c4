"""The guide's memory example, reproduced, and the real numbers beside it."""

from __future__ import annotations

from typing import Any

from meshwright.layout.layout import Layout
from meshwright.planner.guide.spec import GuideQuestion, Section, billions, degree_words, guide

GB = 1e9
STATE = ("parameters", "gradients", "optimizer")


def guide_estimate(parameters: float, layout: Layout, activations_gb: float) -> dict[str, float]:
    """What the guide would say a GPU holds [GB]: 8 bytes a parameter and activations, over TP*PP.

    It divides by TP*PP only, and leaves data parallelism and in-flight micro-batches out.
    """
    per_parameter, share = _example()["guide_bytes_per_parameter"], layout.tp * layout.pp
    parts = {name: parameters * per_parameter[name] / share / GB for name in STATE}
    parts["activations"] = activations_gb / share
    return {**parts, "total": sum(parts.values())}


def real_state(
    parameters: float,
    layout: Layout,
    dp: int,
    *,
    distributed_optimizer: bool = True,
    bf16_gradients: bool = False,
) -> dict[str, float]:
    """State that a GPU holds in mixed-precision Adam training of a dense model [GB].

    18 bytes a parameter (2 weight, 4 gradient, 12 optimizer); with the distributed optimizer 6 + 12/(DP*CP).
    Embeddings, which sit on the first and last stage, are spread over all stages here.
    Source: megatron/training/theoretical_memory_usage.py; Megatron Bridge theoretical_memory_utils.py.
    """
    per_parameter = _example()["real_bytes_per_parameter"]
    mine = parameters / (layout.tp * layout.pp) / GB
    parts = {
        "parameters": mine * per_parameter["parameters"],
        "gradients": mine * per_parameter["gradients_bf16" if bf16_gradients else "gradients"],
        "optimizer": mine * per_parameter["optimizer"] / (dp * layout.cp if distributed_optimizer else 1),
    }
    return {**parts, "total": sum(parts.values())}


def real_activations(unsharded_gb: float, layout: Layout) -> float:
    """Activations of the fullest GPU [GB]: 1F1B keeps PP micro-batches in flight, so PP does not help.

    Interleaving keeps 1 + (PP-1)/(PP*VPP) of that.
    """
    interleaved = 1 + (layout.pp - 1) / (layout.pp * layout.vpp) if layout.vpp > 1 else 1.0
    return unsharded_gb / layout.tp * interleaved


def memory(question: GuideQuestion, layout: Layout) -> Section:
    """The 70B example of the guide and its corrections; then the same for the model that was asked for."""
    example = _example()
    parameters, world = example["parameters"], example["gpus"]
    shape = Layout(tp=example["tp"], pp=example["pp"], sp=True)
    unsharded = guide_estimate(parameters, Layout(), example["guide_activations_gb"])
    sharded = guide_estimate(parameters, shape, example["guide_activations_gb"])
    values = example_values()
    activations = values["activations_gb"]
    lines = [
        f"{billions(parameters)}, one GPU: the guide's estimate is {_sum(unsharded)}",
        f"{degree_words(shape)} DP{example['dp']} on {world} GPUs: "
        f"the guide's estimate a GPU is {_sum(sharded)}",
        f"real state a GPU: {values['distributed_optimizer_gb']:.1f} GB with the distributed optimizer, "
        f"{values['distributed_optimizer_bf16_gradients_gb']:.1f} GB if gradients are bf16 too, "
        f"{values['plain_gb']:.1f} GB without; the guide counts {values['guide_state_gb']:.1f} GB",
        f"real total a GPU: {values['distributed_optimizer_gb'] + activations:.1f} GB, with "
        f"{activations:.0f} GB of activations on the first stage (48 GB / TP: PP does not lower the peak)",
        f"real state in all: {values['unsharded_gb']:,.0f} GB, 18 bytes a parameter",
        *_own_lines(question, layout),
    ]
    return Section(
        id="memory",
        title="Memory",
        lines=tuple(lines),
        guide_says="70B in FP16 takes 608 GB; with TP4 PP4 DP4 on 64 GPUs about 38 GB a GPU",
        holds=(*example["findings"], example["real_activations"]["note"]),
        agrees=False,
        source=example["real_bytes_per_parameter"]["source"],
        values=values,
    )


def example_values() -> dict[str, Any]:
    """The numbers of the 70B example, the guide's and the real ones [GB]."""
    example = _example()
    parameters, dp = example["parameters"], example["dp"]
    shape = Layout(tp=example["tp"], pp=example["pp"], sp=True)
    sharded = guide_estimate(parameters, shape, example["guide_activations_gb"])
    return {
        "guide_unsharded_gb": guide_estimate(parameters, Layout(), example["guide_activations_gb"]),
        "guide_sharded_gb": sharded,
        "guide_state_gb": sum(sharded[name] for name in STATE),
        "unsharded_gb": real_state(parameters, Layout(), 1, distributed_optimizer=False)["total"],
        "plain_gb": real_state(parameters, shape, dp, distributed_optimizer=False)["total"],
        "distributed_optimizer_gb": real_state(parameters, shape, dp)["total"],
        "distributed_optimizer_bf16_gradients_gb": real_state(parameters, shape, dp, bf16_gradients=True)[
            "total"
        ],
        "activations_gb": real_activations(example["guide_activations_gb"], shape),
    }


def _own_lines(question: GuideQuestion, layout: Layout) -> list[str]:
    """State of the asked model under the asked layout; experts need the engine's own split."""
    parameters, world = question.total_params, question.world or layout.min_gpus
    if parameters is None or world % layout.min_gpus:
        return []
    if question.is_moe:
        return [f"{question.subject}: experts and the rest are sharded differently; see meshwright estimate"]
    theirs = guide_estimate(parameters, layout, 0.0)["total"]
    ours = real_state(parameters, layout, layout.dp(world))["total"]
    return [
        f"{question.subject}, {degree_words(layout)} on {world:,} GPUs, state a GPU: "
        f"{theirs:.1f} GB by the guide's way of counting, {ours:.1f} GB with the distributed optimizer "
        "(stage by stage: meshwright estimate)"
    ]


def _sum(parts: dict[str, float]) -> str:
    terms = " + ".join(f"{parts[name]:,.4g}" for name in (*STATE, "activations"))
    return f"{terms} = {parts['total']:,.4g} GB (parameters, gradients, Adam, activations)"


def _example() -> Any:
    return guide()["memory_example"]
