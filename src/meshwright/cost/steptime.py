"""Seconds of one training step, as a sum of named terms.

One formula for any number of layouts: T = M*t_max + (sum of stages - t_max)/vpp + per-step work, where
t is a stage's time for one micro-batch with its real contents. For vpp = 1 this is the exact length of
1F1B with instant messages: (M-1)*t_max + sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.blocks import BLOCK_TERMS, block_costs
from meshwright.cost.keys import distinct_keys
from meshwright.cost.network import Network, network_of
from meshwright.cost.operations import machine_for
from meshwright.cost.parameters import rank_parameters
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView
from meshwright.facts import load_json
from meshwright.layout.table import Floats, LayoutTable

TERMS = (
    "gemm", "attention", "memory_bound", "recompute", "tp", "cp", "ep", "pp", "dp",
    "host", "bubble", "imbalance", "optimizer", "fixed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Step time of N layouts.

    terms  {name: [N]} seconds; they sum to the step. Compute and communication are those of the
           average stage; `imbalance` is what the slowest stage takes beyond it, `bubble` the idle
           time of filling and draining the pipeline
    band   relative half width of the 80 % band
    stage  [N, D] seconds of each scored stage for one micro-batch, forward and backward
    """

    terms: dict[str, Floats]
    band: float
    stage: Floats

    @property
    def step(self) -> Floats:
        """Seconds of a step. [N]"""
        return np.asarray(np.sum(list(self.terms.values()), axis=0))


def step_time(question: Question, table: LayoutTable, view: StageView) -> TimeTable:
    """Step time of every layout of a table."""
    keys = distinct_keys(table)
    costs = block_costs(machine_for(question, keys)).both  # [Q, K, T]
    held = view.counts[table.split].sum(axis=2, dtype=np.float64)  # [N, D, K]
    multiplicity = view.multiplicity[table.split].astype(float)  # [N, D]
    stage = np.einsum("ndk,nk->nd", held, costs.sum(axis=2)[keys.of_row])
    fsdp = _fsdp_seconds(question, table, view, stage)
    stage = stage + fsdp
    micro = table.num_microbatches.astype(float)
    slowest = np.where(multiplicity > 0, stage, 0.0).max(axis=1)
    total = (stage * multiplicity).sum(axis=1)
    mean_blocks = np.einsum("nd,ndk->nk", multiplicity, held) / table.pp[:, None]
    average = np.einsum("nk,nkt->tn", mean_blocks, costs[keys.of_row])
    terms = {name: average[t] * micro for t, name in enumerate(BLOCK_TERMS)}
    network = network_of(question.cluster)
    terms["dp"] = _gradient_seconds(question, table, view, network, slowest) + micro * (
        (fsdp * multiplicity).sum(axis=1) / table.pp
    )
    terms["pp"] = _boundary_seconds(question, table, network)
    terms["imbalance"] = micro * (slowest - total / table.pp)
    terms["bubble"] = (total - slowest) / table.vpp
    terms["optimizer"] = _optimizer_seconds(question, table, view)
    terms["fixed"] = np.full(len(table), load_json("meshwright.cost", "kernels.json")["fixed"]["seconds"])
    dense, moe = question.calibration.time_band
    return TimeTable(
        terms={name: terms[name] for name in TERMS}, band=moe if question.model.is_moe else dense, stage=stage
    )


def _stage_parameters(question: Question, table: LayoutTable, view: StageView) -> tuple[Floats, Floats]:
    """Dense and expert parameters of each scored stage. [N, D]"""
    keys = distinct_keys(table)
    held = view.counts[table.split].sum(axis=2, dtype=np.float64)
    per_block = rank_parameters(question.model, keys.tp, keys.ep, keys.etp)
    dense, expert = (
        np.einsum("ndk,nk->nd", held, p[keys.of_row].astype(float)) for p in (per_block.dense, per_block.expert)
    )
    return np.asarray(dense), np.asarray(expert)


def _data_parallel(table: LayoutTable, network: Network, dense: Floats, expert: Floats, width: float) -> Floats:
    """Seconds of one reduce-scatter (or all-gather) of a stage's parameters at `width` bytes each. [N, D]"""
    dense_group = network.group((table.dp * table.cp)[:, None], table.tp[:, None])
    expert_group = network.group(table.edp[:, None], (table.ep * table.etp)[:, None])
    return np.asarray(
        network.gather(dense_group, width * dense) + network.gather(expert_group, width * np.maximum(expert, 0.0)) * (expert > 0)
    )


def _gradient_seconds(
    question: Question, table: LayoutTable, view: StageView, network: Network, slowest: Floats
) -> Floats:
    """Exposed gradient reduction and parameter gather of a step. [N]

    With overlap only the last micro-batch's backward and the first one's forward hide it.
    """
    dense, expert = _stage_parameters(question, table, view)
    width = 4.0 if question.job.grad_dtype == "fp32" else 2.0
    if question.job.task == "lora":
        return np.zeros(len(table))
    seconds = (_data_parallel(table, network, dense, expert, width) + _data_parallel(table, network, dense, expert, 2.0)).max(axis=1)
    seconds = seconds * question.calibration.factor("dp", question.cluster.gpu.architecture)
    form = network.table["overlap"]
    overlapped = table.flag(["dp" in e.overlaps for e in table.executions]).astype(bool)
    hidden = np.maximum(form["dp_floor"] * seconds, seconds - form["dp_hidden"] * slowest)
    fsdp = table.flag([e.fsdp for e in table.executions]).astype(bool)
    return np.where(fsdp, 0.0, np.where(overlapped, hidden, seconds))


def _fsdp_seconds(question: Question, table: LayoutTable, view: StageView, stage: Floats) -> Floats:
    """Exposed gathers (forward, backward) and gradient scatter of sharded weights, a micro-batch. [N, D]"""
    fsdp = table.flag([e.fsdp for e in table.executions]).astype(bool)[:, None]
    if not fsdp.any():
        return np.zeros_like(stage)
    network = network_of(question.cluster)
    dense, expert = _stage_parameters(question, table, view)
    gathers = 2 * _data_parallel(table, network, dense, expert, 2.0)
    scatter = _data_parallel(table, network, dense, expert, 4.0 if question.job.grad_dtype == "fp32" else 2.0)
    form = network.table["overlap"]
    seconds = gathers + scatter
    exposed = np.maximum(form["fsdp_floor"] * seconds, seconds - form["fsdp_hidden"] * stage)
    return np.where(fsdp, exposed, 0.0)


def _boundary_seconds(question: Question, table: LayoutTable, network: Network) -> Floats:
    """Exposed messages between stages: one activation and one gradient a chunk and micro-batch. [N]"""
    shared = np.where(table.sp, table.tp, 1)
    message = 2.0 * question.model.hidden * table.mbs * question.job.seq_length / table.cp / shared
    crosses = table.world // table.pp >= question.cluster.nvlink_domain
    one = network.p2p(message, crosses)
    form = network.table["overlap"]
    exposed = np.where(table.flag(["pp" in e.overlaps for e in table.executions]).astype(bool), form["pp_exposed"], 1.0)
    seconds = 2.0 * one * table.vpp * exposed * (table.num_microbatches + table.pp - 1)
    return np.asarray(np.where(table.pp > 1, seconds, 0.0))


def _optimizer_seconds(question: Question, table: LayoutTable, view: StageView) -> Floats:
    """The optimizer step on a rank's shard: bytes over the sustained memory bandwidth. [N]"""
    if question.job.task == "lora":
        return np.zeros(len(table))
    form = load_json("meshwright.cost", "kernels.json")["optimizer"]
    dense, expert = _stage_parameters(question, table, view)
    sharded = table.flag([e.distributed_optimizer or e.fsdp for e in table.executions]).astype(bool)[:, None]
    shard = dense / (table.dp * table.cp)[:, None] + expert / table.edp[:, None]
    parameters = np.where(sharded, shard, dense + expert).max(axis=1)
    return np.asarray(form["bytes_per_parameter"] * parameters / (question.cluster.gpu.hbm * form["efficiency"]))
