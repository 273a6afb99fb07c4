"""Memory of one rank of each pipeline stage, as a sum of named terms. Bytes.

One formula for any number of layouts: arrays are [N, D], a row a layout, a column a scored stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.activations import saved_bytes, transient_bytes
from meshwright.cost.keys import Keys, distinct_keys
from meshwright.cost.parameters import adapter_parameters, embedding_copy, rank_parameters
from meshwright.cost.precision import Recipe, recipe_for
from meshwright.cost.question import Question
from meshwright.cost.stages import StageView, in_flight
from meshwright.facts import load_json
from meshwright.layout.stages import describe_kinds
from meshwright.layout.table import Bools, Floats, LayoutTable

TERMS = ("weights", "gradients", "optimizer", "activations", "other")
GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory of N layouts at D scored stages.

    terms       {name: [N, D]} bytes; their sum is what is held against the card
    allocated   [N, D] what torch.cuda.max_memory_allocated would show
    parameters  [N, D] trained parameters a rank holds [count]
    exists      [N, D] False where a layout has fewer scored stages
    usable      bytes the card offers
    band        relative half width of the uncertainty of a total
    """

    terms: dict[str, Floats]
    allocated: Floats
    parameters: Floats
    exists: Bools
    usable: float
    band: float

    @property
    def total(self) -> Floats:
        """[N, D] bytes."""
        return np.sum(list(self.terms.values()), axis=0)

    @property
    def peak(self) -> Floats:
        """Bytes of the fullest stage. [N]"""
        return np.asarray(np.where(self.exists, self.total, 0.0).max(axis=1))

    @property
    def may_fit(self) -> Bools:
        """False where even the low end of the band exceeds the card. [N]"""
        return np.asarray(self.peak * (1 - self.band) <= self.usable)

    def verdicts(self) -> NDArray[np.str_]:
        """fits | tight | does-not-fit. [N]"""
        sure = self.peak * (1 + self.band) <= self.usable
        return np.where(sure, "fits", np.where(self.may_fit, "tight", "does-not-fit"))


def memory(question: Question, table: LayoutTable, view: StageView) -> MemoryTable:
    """Memory of every layout of a table at every stage of the view."""
    keys = distinct_keys(table)
    constants = load_json("meshwright.cost", "memory.json")
    recipe = recipe_for(question.job.precision, question.cluster.gpu)
    counts = view.counts[table.split].astype(np.float64)  # [N, D, C, K]
    held = counts.sum(axis=2)  # [N, D, K]
    terms, parameters = _state(question, table, view, keys, recipe, held)

    kept = saved_bytes(question.model, question.job, recipe, keys)
    by_chunk = np.einsum("ndck,nk->ndc", counts, kept[keys.of_row])
    terms["activations"] = (by_chunk * in_flight(table, view)).sum(axis=2)
    transient = _transient(question, keys, kept)[keys.of_row][:, None, :]  # [N, 1, K]
    workspace = constants["workspace_bytes"]["value"] + (transient * (held > 0)).max(axis=2)
    workspace = workspace + _boundary(question, table)[:, None] + _unsharded_layer(table, terms, held)
    allocated = np.sum(list(terms.values()), axis=0) + workspace
    outside = constants["context_bytes"]["value"] + _nccl(table, constants)[:, None]
    fragmentation = constants["fragmentation"]["value"] * (terms["activations"] + workspace)
    terms["other"] = workspace + outside + fragmentation
    return MemoryTable(
        terms=terms,
        allocated=allocated,
        parameters=parameters,
        exists=view.exists[table.split],
        usable=question.cluster.gpu.usable_memory,
        band=question.calibration.memory_band,
    )


def _state(
    question: Question, table: LayoutTable, view: StageView, keys: Keys, recipe: Recipe, held: Floats
) -> tuple[dict[str, Floats], Floats]:
    """Weights, gradients and optimizer state of each stage, and its trained parameters. [N, D]"""
    per_block = rank_parameters(question.model, keys.tp, keys.ep, keys.etp)
    dense, expert, linear = (_stage_sum(held, x, keys) for x in (per_block.dense, per_block.expert, per_block.linear))
    copies = _embedding_copies(question, table, view, held) * embedding_copy(question.model, keys.tp)[keys.of_row][:, None]
    dense = dense + copies
    quantised = linear + expert
    shards = (table.dp * table.cp)[:, None], table.edp[:, None]
    fsdp = table.flag([e.fsdp for e in table.executions]).astype(bool)[:, None]

    weight = 2.0 * (dense + expert - quantised) + recipe.weight * quantised
    weight_shard = np.where(fsdp, _mean_shard(dense, expert, shards), 1.0)
    if question.job.task == "lora":
        adapters = adapter_parameters(question.model, keys, question.job.lora_rank)
        trained_dense, trained_expert = _stage_sum(held, adapters, keys), np.zeros_like(expert)
        weight = 2.0 * (dense + expert + trained_dense)
    else:
        trained_dense, trained_expert = dense, expert
    gradient = GRADIENT_BYTES[question.job.grad_dtype] * np.where(
        fsdp, trained_dense / shards[0] + trained_expert / shards[1], trained_dense + trained_expert
    )
    terms = {
        "weights": weight * weight_shard,
        "gradients": gradient,
        "optimizer": _optimizer(question, table, trained_dense, trained_expert, shards),
    }
    return terms, trained_dense + trained_expert


def _mean_shard(dense: Floats, expert: Floats, shards: tuple[Floats, Floats]) -> Floats:
    """Fraction of a stage's weights that one rank keeps when they are sharded."""
    whole = np.maximum(dense + expert, 1.0)
    return np.asarray((dense / shards[0] + expert / shards[1]) / whole)


def _optimizer(
    question: Question, table: LayoutTable, dense: Floats, expert: Floats, shards: tuple[Floats, Floats]
) -> Floats:
    """Master weights and moments; the distributed optimizer shards dense ones over dp*cp, experts over edp.

    Source: Megatron-LM, docs/user-guide/features/dist_optimizer.md (bf16 parameters, fp32 states: 12/d).
    """
    state = load_json("meshwright.cost", "memory.json")["optimizer_state"][question.job.optimizer]
    sharded = table.flag([e.distributed_optimizer or e.fsdp for e in table.executions]).astype(bool)[:, None]
    on_gpu = 1.0 - table.flag([e.optimizer_offload for e in table.executions]).astype(float)[:, None]
    parameters = np.where(sharded, dense / shards[0] + expert / shards[1], dense + expert)
    return np.asarray((state["master"] + state["moments"]) * parameters * on_gpu)


def _stage_sum(held: Floats, per_block: NDArray[np.int64], keys: Keys) -> Floats:
    """Sum over the blocks of a stage. [N, D, K] x [Q, K] -> [N, D]"""
    return np.asarray(np.einsum("ndk,nk->nd", held, per_block[keys.of_row].astype(float)))


def _embedding_copies(question: Question, table: LayoutTable, view: StageView, held: Floats) -> Floats:
    """Copies of the embedding matrix beyond the first stage's: a tied head's, and MTP's. [N, D]

    Source: megatron/core/models/gpt/gpt_model.py (pre_process or mtp_process builds an embedding;
    a tied output layer holds its own copy unless it shares the first stage).
    """
    has_embedding = held[:, :, view.kind("embedding")] > 0
    copies = np.zeros_like(held[:, :, 0])
    if question.model.tied:
        copies += (held[:, :, view.kind("head")] > 0) & ~has_embedding
    mtp = [i for i, kind in enumerate(describe_kinds(question.model)) if kind.role == "mtp"]
    if mtp:
        copies += (held[:, :, mtp].sum(axis=2) > 0) & ~has_embedding
    return copies


def _transient(question: Question, keys: Keys, kept: Floats) -> Floats:
    """Short-lived bytes of each block kind; a recomputed layer holds its plain activations once. [Q, K]"""
    short = transient_bytes(question.model, question.job, keys)
    kinds = describe_kinds(question.model)
    for column, kind in enumerate(kinds):
        if kind.recomputed:
            plain = next(i for i, k in enumerate(kinds) if (k.role, k.layer, k.recomputed) == (kind.role, kind.layer, False))
            short[:, column] += kept[:, plain]
    return short


def _boundary(question: Question, table: LayoutTable) -> Floats:
    """Send and receive buffers between stages: two tensors each way. [N]"""
    per_rank = np.where(table.sp, table.tp, 1)
    tensor = 2.0 * question.model.hidden * table.mbs * question.job.seq_length / table.cp / per_rank
    return np.asarray(np.where(table.pp > 1, 4.0 * tensor, 0.0))


def _unsharded_layer(table: LayoutTable, terms: dict[str, Floats], held: Floats) -> Floats:
    """FSDP: two layers' whole weights and one layer's whole gradient are gathered at a time. [N, D]"""
    fsdp = table.flag([e.fsdp for e in table.executions]).astype(bool)[:, None]
    blocks = np.maximum(held.sum(axis=2), 1.0)
    shards = (table.dp * table.cp)[:, None]
    return np.asarray(np.where(fsdp, (2.0 * terms["weights"] + terms["gradients"]) * shards / blocks, 0.0))


def _nccl(table: LayoutTable, constants: dict[str, dict[str, float]]) -> Floats:
    """Buffers of the communicators a rank opens, one for each parallel axis in use. [N]"""
    axes = sum((axis > 1).astype(float) for axis in (table.tp, table.pp, table.cp, table.ep, table.dp, table.edp))
    return np.asarray(constants["nccl_bytes_per_axis"]["value"] * axes)
