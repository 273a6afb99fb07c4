"""The fewest GPUs that train a model: sizes from small to large, each searched whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.facts import load_json
from meshwright.model.parameters import count_parameters
from meshwright.planner.capacity import surely
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes

Sized = tuple[Question, Found]


def sizes(cluster: Cluster, most: int) -> Iterator[Cluster]:
    """Powers of two inside a node, then whole nodes, up to `most` GPUs."""
    inside = 1
    while inside < cluster.gpus_per_node and inside <= most:
        yield _sized(cluster, 1, inside)
        inside *= 2
    for nodes in range(1, most // cluster.gpus_per_node + 1):
        yield _sized(cluster, nodes, cluster.gpus_per_node)


def _sized(cluster: Cluster, nodes: int, per_node: int) -> Cluster:
    world = nodes * per_node
    return replace(
        cluster, nodes=nodes, gpus_per_node=per_node, nvlink_domain=min(cluster.gpu.nvlink_domain, world)
    )


def least_state_bytes(question: Question) -> float:
    """Bytes of weights, gradients and optimizer state that exist once, however they are spread."""
    state = load_json("meshwright.cost", "memory.json")["optimizer_state"][question.job.optimizer]
    gradient = 4.0 if question.job.grad_dtype == "fp32" else 2.0
    trained = 0.0 if question.job.task == "lora" else 1.0
    per_parameter = 2.0 + trained * (gradient + state["master"] + state["moments"])
    return float(per_parameter * count_parameters(question.model).total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """The smallest clusters that train a model.

    fits   some layout surely fits there (the upper end of the memory band is inside the card), and what was
           found; None up to the most that was tried
    tight  a smaller one, on which memory may suffice; None where the next smaller one is too small
    """

    fits: Sized | None
    tight: Sized | None


def fewest_gpus(question: Question, axes: Axes, *, most: int) -> Fewest:
    """The smallest cluster on which some layout surely fits, and the smallest on which it is tight.

    Sizes that cannot even hold the state once are passed over without a search.
    """
    needed = least_state_bytes(question) * (1 - axes.execution.optimizer_offload)
    tight: Sized | None = None
    for cluster in sizes(question.cluster, most):
        if cluster.world * cluster.gpu.usable_memory < needed:
            continue
        here = replace(question, cluster=cluster)
        found = search(surely(here), axes)
        if found.fitting:
            return Fewest(fits=(here, found), tight=tight)
        if tight is None and (found := search(here, axes)).fitting:
            tight = here, found
    return Fewest(fits=None, tight=tight)
