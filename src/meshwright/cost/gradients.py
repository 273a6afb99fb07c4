"""What a step costs beside its micro-batches: gradients, sharded weights, the optimizer.

All arrays are [N], or [N, D] with one column a scored stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.cost.network import Network
from meshwright.cost.parameters import rank_parameters
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.table import Bools, Floats, LayoutTable


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters of each scored stage on one rank: of the attention grid, of the experts. [N, D]

    blocks  how many blocks hold them: sharded weights are gathered block by block
    """

    dense: Floats
    expert: Floats
    blocks: Floats


def stage_parameters(question: Question, keys: Keys, held: Floats) -> StageParameters:
    """held  [N, D, K] blocks of each kind a stage holds"""
    per_block = rank_parameters(question.model, keys.tp, keys.ep, keys.etp)
    dense, expert = (
        np.asarray(np.einsum("ndk,nk->nd", held, p[keys.of_row].astype(float)))
        for p in (per_block.dense, per_block.expert)
    )
    return StageParameters(dense=dense, expert=expert, blocks=np.maximum(held.sum(axis=2), 1.0))


def flags(table: LayoutTable, read) -> Bools:  # type: ignore[no-untyped-def]
    """One boolean a row, read from its execution. [N]"""
    return np.asarray(table.flag([bool(read(e)) for e in table.executions])).astype(bool)


def exchange_seconds(
    table: LayoutTable, network: Network, own: StageParameters, width: float, kind: str
) -> Floats:
    """One reduce-scatter (or all-gather) of a stage's parameters at `width` bytes each. [N, D]"""
    total = np.zeros_like(own.dense)
    for inner, stride, _, parameters in _grids(table, own):
        message = np.maximum(width * parameters, 1.0)
        total = total + network.gather(network.group(inner, stride), message, kind) * (parameters > 0)
    return np.asarray(total)


def across_seconds(table: LayoutTable, network: Network, own: StageParameters, width: float) -> Floats:
    """All-reduce of each rank's shard across the instances of the sharding; 0 where there is one. [N, D]"""
    total = np.zeros_like(own.dense)
    for inner, stride, outer, parameters in _grids(table, own):
        if (outer > 1).any():
            message = np.maximum(width * parameters / inner, 1.0)
            found = network.all_reduce(network.group(outer, stride * inner), message)
            total = total + found * (parameters > 0)
    return total


def _grids(table: LayoutTable, own: StageParameters) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
    """Ranks that share a state, their stride, instances of the sharding, and parameters of a rank.

    [N, 1], [N, 1], [N, 1], [N, D]: of the attention grid, then of the experts.
    """
    instances = table.flag([e.optimizer_instances for e in table.executions]).astype(float)
    for size, stride, parameters in (
        (table.dp * table.cp, table.tp, own.dense),
        (table.edp, table.ep * table.etp, own.expert),
    ):
        outer = np.minimum(instances, size)
        yield (size / outer)[:, None], stride.astype(float)[:, None], outer[:, None], parameters


def gradient_width(question: Question) -> float:
    """Bytes a gradient element travels with."""
    return 4.0 if question.job.grad_dtype == "fp32" else 2.0


def gradient_seconds(
    question: Question,
    table: LayoutTable,
    network: Network,
    own: StageParameters,
    forward: Floats,
    backward: Floats,
) -> Floats:
    """Exposed gradient reduction and parameter gather of a step. [N]

    FSDP does both beside every micro-batch; what is left is the reduction across its instances.

    forward, backward  [N, D] seconds of one micro-batch on each stage, which can hide them: the last
                       micro-batch's backward the reduction, the first one's forward the gather. An
                       interleaved schedule is done with a chunk a round of pp micro-batches earlier
    """
    if question.job.task == "lora":
        return np.zeros(len(table))
    fsdp = flags(table, lambda e: e.fsdp)[:, None]
    width = gradient_width(question)
    scatter = exchange_seconds(table, network, own, width, "reduce_scatter")
    gather = exchange_seconds(table, network, own, 2.0, "all_gather")
    reduce = np.where(fsdp, 0.0, scatter) + across_seconds(table, network, own, width)
    sharded = flags(table, lambda e: e.distributed_optimizer)[:, None]
    both_ways = np.where(sharded, gather, scatter)  # an all-reduce is a scatter and a gather
    both_ways = np.where(fsdp, 0.0, both_ways)
    rounds = np.where(table.vpp > 1, np.minimum(table.pp, table.num_microbatches) * (1 - 1 / table.vpp), 1.0)
    window = np.maximum(rounds, 1.0)[:, None]
    form = network.table["overlap"]["dp"]
    floor = form["floor"] * question.calibration.factor("dp:floor")
    exposed = [
        np.maximum(floor * seconds, seconds - form["hidden"] * window * beside)
        for seconds, beside in ((reduce, backward), (both_ways, forward))
    ]
    overlapped = flags(table, lambda e: "dp" in e.overlaps)[:, None]
    seconds = np.where(overlapped, exposed[0] + exposed[1], reduce + both_ways).max(axis=1)
    return np.asarray(seconds * question.calibration.factor("dp"))


def fsdp_seconds(
    question: Question, table: LayoutTable, network: Network, own: StageParameters, stage: Floats
) -> Floats:
    """Exposed gathers (forward, backward) and gradient scatter of sharded weights, a micro-batch. [N, D]

    Block by block, beside the compute of the block before; what is hidden still slows that compute, since
    it takes some of the processors. Sharding without the weights (optim_grads) gathers once a step, and is
    charged half.
    """
    fsdp = flags(table, lambda e: e.fsdp)[:, None]
    if not fsdp.any():
        return np.zeros_like(stage)
    block = StageParameters(dense=own.dense / own.blocks, expert=own.expert / own.blocks, blocks=own.blocks)
    gather = own.blocks * exchange_seconds(table, network, block, 2.0, "all_gather")
    scatter = own.blocks * exchange_seconds(table, network, block, gradient_width(question), "reduce_scatter")
    passes = table.flag([_gathers(e) for e in table.executions]).astype(float)[:, None]
    form = network.table["overlap"]["fsdp"]
    seconds = passes * gather + (0.0 if question.job.task == "lora" else 1.0) * scatter
    floor = form["floor"] * question.calibration.factor("fsdp:floor")
    exposed = np.maximum(floor * seconds, seconds - form["hidden"] * stage)
    return np.where(fsdp, exposed, 0.0) * question.calibration.factor("fsdp")


def _gathers(execution: Execution) -> float:
    return 2.0 if execution.fsdp_sharding == "optim_grads_params" else 1.0


def optimizer_seconds(question: Question, table: LayoutTable, own: StageParameters) -> Floats:
    """The optimizer step on a rank's shard, and casting low-precision weights. [N]

    The offloaded fraction is updated by the CPU, which its node's ranks share.
    """
    if question.job.task == "lora":
        return np.zeros(len(table))
    form = load_json("meshwright.cost", "kernels.json")["optimizer"]
    sharded = flags(table, lambda e: e.distributed_optimizer or e.fsdp)[:, None]
    shard = sum(parameters / inner for inner, _, _, parameters in _grids(table, own))
    parameters = np.where(sharded, shard, own.dense + own.expert).max(axis=1)
    bandwidth = question.cluster.gpu.hbm * form["efficiency"]
    away = table.flag([e.optimizer_offload for e in table.executions]).astype(float)
    seconds = form["bytes_per_parameter"] * parameters * (1 - away) / bandwidth
    seconds = seconds + form["offload_seconds_per_parameter"] * parameters * away
    if recipe_for(question.job.precision, question.cluster.gpu).quantised:
        seconds = seconds + form["cast_bytes"] * (own.dense + own.expert).max(axis=1) / bandwidth
    return np.asarray(seconds * question.calibration.factor("optimizer"))
