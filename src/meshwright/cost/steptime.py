"""Seconds of one training step, as a sum of named terms.

One formula for any number of layouts: T = M*t_max + (sum of stages - t_max)/vpp + per-step work, where
t is a stage's time for one micro-batch with its real contents. For vpp = 1 this is the exact length of
1F1B with instant messages: (M-1)*t_max + sum. Passes that fill and drain the pipeline have no other
micro-batch to hide expert exchange behind. `schedule` holds it against a simulation of events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.blocks import BLOCK_TERMS, block_costs
from meshwright.cost.evidence import beyond_measured, relative_of
from meshwright.cost.gradients import (
    flags,
    fsdp_seconds,
    gradient_seconds,
    optimizer_seconds,
    stage_parameters,
)
from meshwright.cost.keys import distinct_keys
from meshwright.cost.machine import machine_for
from meshwright.cost.network import Network, network_of
from meshwright.cost.packs import packs_wait
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView
from meshwright.facts import load_json
from meshwright.layout.table import Floats, LayoutTable

TERMS = (
    "gemm", "attention", "memory_bound", "recompute", "tp", "cp", "ep", "pp", "dp",
    "host", "offload", "bubble", "imbalance", "optimizer", "fixed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Step time of N layouts.

    terms  {name: [N]} seconds; they sum to the step. Compute and communication are those of the
           average stage; `imbalance` is what the slowest stage takes beyond it, `bubble` the idle
           time of filling and draining the pipeline, and what overlap cannot hide in it
    band   relative half width of the 80 % band
    stage  [N, D] seconds of each scored stage for one micro-batch, forward and backward
    sharding  [N] the part of `dp` that is paid beside every micro-batch: gathers and scatters of FSDP
    waits  [N] the part of `imbalance` that ranks wait for the one with the heaviest packs
    """

    terms: dict[str, Floats]
    band: float
    stage: Floats
    sharding: Floats
    waits: Floats

    @property
    def step(self) -> Floats:
        """Seconds of a step. [N]"""
        return np.asarray(np.sum(list(self.terms.values()), axis=0))


def step_time(question: Question, table: LayoutTable, view: StageView) -> TimeTable:
    """Step time of every layout of a table."""
    keys = distinct_keys(table)
    machine = machine_for(question, keys)
    held = view.counts[table.split].sum(axis=2, dtype=np.float64)  # [N, D, K]
    costs = block_costs(machine, (held > 0).any(axis=(0, 1)))  # [Q, K, T]
    multiplicity = view.multiplicity[table.split].astype(float)  # [N, D]
    forward, backward = (
        np.einsum("ndk,nk->nd", held, side.sum(axis=2)[keys.of_row])
        for side in (costs.forward, costs.backward)
    )
    own = stage_parameters(question, keys, held)
    stage = forward + backward
    fsdp = fsdp_seconds(question, table, machine.network, own, stage)
    stage = stage + fsdp
    micro = table.num_microbatches.astype(float)
    slowest = np.where(multiplicity > 0, stage, 0.0).max(axis=1)
    total = (stage * multiplicity).sum(axis=1)
    mean_blocks = np.einsum("nd,ndk->nk", multiplicity, held) / table.pp[:, None]
    average = np.einsum("nk,nkt->tn", mean_blocks, costs.both[keys.of_row])
    terms = {name: average[t] * micro for t, name in enumerate(BLOCK_TERMS)}
    reduced = gradient_seconds(question, table, machine.network, own, forward, backward)
    sharding = micro * (fsdp * multiplicity).sum(axis=1) / table.pp
    terms["dp"] = reduced + sharding
    terms["pp"] = boundary_seconds(question, table, machine.network)
    waits = packs_wait(question.job, table, average[BLOCK_TERMS.index("attention")], question.model.is_moe)
    terms["imbalance"] = micro * (slowest - total / table.pp) + waits
    hidden = np.einsum("ndk,nk->nd", held, costs.hidden[keys.of_row])
    terms["bubble"] = (total - slowest) / table.vpp + _unhidden(table, stage, hidden, multiplicity)
    terms["optimizer"] = optimizer_seconds(question, table, own)
    terms["fixed"] = _fixed(question, table, sum(terms.values()))
    whole = question.calibration.factor("all")
    return TimeTable(
        terms={name: terms[name] * whole for name in TERMS},
        band=_band(question),
        stage=stage * whole,
        sharding=sharding * whole,
        waits=waits * whole,
    )


def _band(question: Question) -> float:
    """Relative half width of the 80 % band: wider where the question lies outside what was measured."""
    dense, moe = question.calibration.time_band
    form = load_json("meshwright.cost", "kernels.json")
    wider = float(form["inherited"]["band"]) if relative_of(question) else 1.0
    return (moe if question.model.is_moe else dense) * wider + beyond_measured(question)


def _unhidden(table: LayoutTable, stage: Floats, hidden: Floats, multiplicity: Floats) -> Floats:
    """What overlap cannot hide while the pipeline fills and drains. [N]

    Each stage but the slowest runs once alone (a chunk's worth), the slowest as often as it has passes
    before its first pair: one, and pp for each further chunk.
    """
    slowest = np.argmax(np.where(multiplicity > 0, stage, 0.0), axis=1)
    own = hidden[np.arange(len(table)), slowest]
    before = np.minimum((table.vpp - 1) * table.pp + 1, table.num_microbatches * table.vpp)
    return np.asarray(((hidden * multiplicity).sum(axis=1) - own + before * own) / table.vpp)


def _fixed(question: Question, table: LayoutTable, rest: Floats) -> Floats:
    """A constant a step, and the waiting of many ranks for the slowest, which grows with their number. [N]"""
    form = load_json("meshwright.cost", "kernels.json")
    doublings = np.log2(np.maximum(table.world / form["jitter"]["from_gpus"], 1.0))
    factor = question.calibration.factor
    waits = form["jitter"]["per_doubling"] * factor("jitter") * doublings * rest
    return np.asarray(form["fixed"]["seconds"] * factor("fixed") + waits)


def boundary_message(
    question: Question, table: LayoutTable, network: Network | None = None
) -> tuple[Floats, Floats]:
    """Seconds of one message between stages, and the share of it for which a stage waits. [N], [N]

    Interleaved schedules send beside compute unless told otherwise; plain 1F1B waits.
    """
    if network is None:
        network = network_of(
            question.cluster, 1.0 / question.calibration.factor("network"), question.measured
        )
    whole = 2.0 * question.model.hidden * table.mbs * question.job.seq_length / table.cp
    scattered = flags(table, lambda e: e.scattered_messages) & ~table.sp & (table.tp > 1)
    message = whole / np.where(table.sp | scattered, table.tp, 1)
    crosses = table.world // table.pp >= question.cluster.nvlink_domain
    form = network.table["overlap"]["pp"]
    beside = flags(table, lambda e: "pp" in e.overlaps) | (table.vpp > 1)
    one = network.p2p(message, crosses.astype(float)) * question.calibration.factor("pp")
    if scattered.any():
        one = one + np.where(
            scattered, network.gather(network.group(table.tp, np.ones_like(table.tp)), whole), 0.0
        )
    return np.where(table.pp > 1, one, 0.0), np.where(beside, form["interleaved"], form["exposed"])


def boundary_seconds(question: Question, table: LayoutTable, network: Network) -> Floats:
    """Exposed messages between stages: one activation and one gradient a chunk and micro-batch. [N]"""
    one, exposed = boundary_message(question, table, network)
    return np.asarray(2.0 * one * table.vpp * exposed * (table.num_microbatches + table.pp - 1))
