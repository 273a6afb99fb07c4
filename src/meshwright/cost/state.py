"""State that a rank of each stage holds from step to step: weights, gradients, optimizer. Bytes.

Source: megatron/core/distributed/param_and_grad_buffer.py, megatron/core/optimizer (distrib_optimizer.py,
optimizer_config.py); Megatron-LM docs/user-guide/features/dist_optimizer.md (bf16, fp32 states: 6 + 12/d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.keys import Keys
from meshwright.cost.parameters import adapter_parameters, embedding_copy, rank_parameters
from meshwright.cost.precision import Recipe, recipe_for
from meshwright.cost.question import Question
from meshwright.cost.stages import Flight
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.stages import describe_kinds
from meshwright.layout.table import Bools, Floats, LayoutTable
from meshwright.model.spec import Model
from meshwright.model.weights import norm_elements

HOST_COPIES = 4.0 + 4.0 + 8.0
"""Bytes a parameter in host memory where its optimizer step runs there: fp32 weight, gradient, moments.

Source: megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py.
"""
GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of N layouts at D stages. [N, D]

    parameters  trained parameters of a rank [count]
    moments     of `optimizer`, what is allocated by the first optimizer step only
    update      bytes that the optimizer step needs beside the state: fp32 copies of low-precision gradients
    unsharded   whole weights and gradients that FSDP gathers at a time [bytes]
    host        optimizer state kept in host memory [bytes]
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    moments: Floats
    parameters: Floats
    update: Floats
    unsharded: Floats
    host: Floats

    @property
    def total(self) -> Floats:
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """How many ranks share one copy of dense and expert state, and which parts of it they share. [N, 1]"""

    dense: Floats
    expert: Floats
    weights: Bools
    gradients: Bools
    optimizer: Bools


def rank_state(question: Question, table: LayoutTable, keys: Keys, flying: Flight) -> State:
    """State of every stage."""
    quantised_bytes = weight_bytes(question, table)
    per_block = rank_parameters(question.model, keys.tp, keys.ep, keys.etp)
    dense, expert, linear = (
        flying.total(flying.held, counts, keys)
        for counts in (per_block.dense, per_block.expert, per_block.linear)
    )
    copies = flying.spread(embedding_copies(question.model, flying))
    dense = dense + copies * embedding_copy(question.model, keys.tp)[keys.of_row][:, None]
    dense = dense + flying.spread(moved_norms(question.model, flying))
    quantised = linear + expert
    shards = _shards(table)
    plain = 2.0 * (dense + expert - quantised) + quantised_bytes * quantised
    if question.job.task == "lora":
        adapters = flying.total(
            flying.held, adapter_parameters(question.model, keys, question.job.lora_rank), keys
        )
        trained_dense, trained_expert = adapters, np.zeros_like(expert)
        plain = plain + 2.0 * adapters
    else:
        trained_dense, trained_expert = dense, expert
    whole = trained_dense + trained_expert
    share = trained_dense / shards.dense + trained_expert / shards.expert
    grads = GRADIENT_BYTES[question.job.grad_dtype]
    held_weights = plain * np.where(shards.weights, _mean_share(dense, expert, shards), 1.0)
    gradients = grads * np.where(shards.gradients, share, whole)
    owned = np.where(shards.optimizer, share, whole)
    master, moments = _state_bytes(question, quantised, trained_dense + trained_expert)
    offloaded = table.flag([e.optimizer_offload for e in table.executions]).astype(float)[:, None]
    low_precision = grads < 4 and question.job.optimizer != "adam-precision-aware"
    masters = master * (1 - offloaded * _masters_move(question))
    return State(
        weights=held_weights,
        gradients=gradients,
        optimizer=(masters + moments * (1 - offloaded)) * owned,
        moments=moments * (1 - offloaded) * owned,
        parameters=whole,
        update=owned * (4.0 if low_precision else 0.0) * (1 - offloaded),
        unsharded=_unsharded(table, plain, grads * whole, flying, shards),
        host=HOST_COPIES * owned * offloaded,
    )


def _masters_move(question: Question) -> bool:
    """Whether an offloaded optimizer takes its fp32 master weights along to the host.

    It does where the optimizer is precision-aware, which Megatron-LM demands of an offloaded one: then the
    hybrid optimizer makes them. Else the distributed optimizer keeps its shard of them on the GPU: a run
    whose optimizer was offloaded in quarters freed two thirds of it (Megatron Bridge,
    nemo-mbridge-perf-cpu-offloading card).
    Source: megatron/core/optimizer/distrib_optimizer.py (shard_main_param); optimizer_config.py
    (use_precision_aware_optimizer_no_fp8_or_ds_fp8); megatron/training/arguments.py, validate_args.
    """
    return question.stack.framework == "megatron-lm" or question.job.optimizer == "adam-precision-aware"


def weight_bytes(question: Question, table: LayoutTable) -> Floats:
    """Bytes of a quantised linear layer's parameter: its copies that stay between steps. [N, 1]"""
    recipe = recipe_for(question.job.precision, question.cluster.gpu)
    return table.flag([kept_weight(recipe, e) for e in table.executions]).astype(float)[:, None]


def kept_weight(recipe: Recipe, execution: Execution) -> float:
    """Bytes a parameter: quantised copies, and the bf16 one unless only quantised weights are kept."""
    said = execution.fp8_param_gather
    only_quantised = recipe.low_precision_weights if said is None else said
    return recipe.weight if only_quantised or not recipe.quantised else 2.0 + recipe.weight


def _shards(table: LayoutTable) -> _Shards:
    instances = table.flag([e.optimizer_instances for e in table.executions]).astype(float)[:, None]
    fsdp = table.flag([e.fsdp for e in table.executions]).astype(bool)[:, None]
    distributed = table.flag([e.distributed_optimizer for e in table.executions]).astype(bool)[:, None]
    level = table.flag([_LEVEL[e.fsdp_sharding] for e in table.executions]).astype(int)[:, None]
    dense, expert = (table.dp * table.cp)[:, None].astype(float), table.edp[:, None].astype(float)
    return _Shards(
        dense=np.maximum(dense / instances, 1.0),
        expert=np.maximum(expert / instances, 1.0),
        weights=fsdp & (level >= 3),
        gradients=fsdp & (level >= 2),
        optimizer=fsdp | distributed,
    )


_LEVEL = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def _mean_share(dense: Floats, expert: Floats, shards: _Shards) -> Floats:
    """Fraction of a stage's weights that one rank keeps when they are sharded."""
    whole = np.maximum(dense + expert, 1.0)
    return np.asarray((dense / shards.dense + expert / shards.expert) / whole)


def _state_bytes(question: Question, linear: Floats, whole: Floats) -> tuple[float, Floats | float]:
    """Bytes a parameter of master weights and of moments. Muon keeps one moment of what it orthogonalises."""
    states = load_json("meshwright.cost", "memory.json")["optimizer_state"]
    row = states[question.job.optimizer]
    master, moments = float(row["master"]), float(row["moments"])
    if question.job.optimizer != "muon":
        return master, moments
    matrices = np.clip(linear / np.maximum(whole, 1.0), 0.0, 1.0)
    adam = float(states["adam"]["moments"])
    return master, np.asarray(adam + (moments - adam) * matrices)


def _unsharded(
    table: LayoutTable, weights: Floats, gradients: Floats, flying: Flight, shards: _Shards
) -> Floats:
    """FSDP: two layers' whole weights are gathered at a time, and one layer's (or two buffers of) gradients.

    Source: megatron/core/distributed/fsdp (units of one layer, gathered one ahead; fsdp_double_buffer).
    """
    if not shards.weights.any() and not shards.gradients.any():
        return np.zeros_like(weights)
    blocks = flying.spread(np.maximum(flying.held.sum(axis=2), 1.0))
    buffers = table.flag([2.0 if e.fsdp_double_buffer else 1.0 for e in table.executions]).astype(float)
    gathered = np.where(shards.weights, 2.0 * weights, 0.0)
    reduced = np.where(shards.gradients, buffers[:, None] * gradients, 0.0)
    return np.asarray((gathered + reduced) / blocks)


def moved_norms(model: Model, flying: Flight) -> Floats:
    """Parameters of the final norm that a stage holds more or less than its blocks have. [F, D]

    Among the blocks it is part of the head; a model with MTP modules has it beside its last decoder layer.
    Source: megatron/core/transformer/transformer_block.py, has_final_layernorm_in_this_stage.
    """
    if not model.mtp or not model.final_norm:
        return np.zeros(flying.last.shape)
    head = flying.held[:, :, flying.kinds.index("head")] > 0
    norm = norm_elements(model.normalization, model.hidden)
    return norm * (flying.last.astype(np.float64) - head)


def embedding_copies(model: Model, flying: Flight) -> Floats:
    """Copies of the embedding matrix beyond the first stage's: a tied head's, and MTP's. [F, D]

    Source: megatron/core/models/gpt/gpt_model.py (pre_process or mtp_process builds an embedding;
    a tied output layer holds its own copy unless it shares the first stage).
    """
    roles = [kind.role for kind in describe_kinds(model)]
    held = {role: flying.held[:, :, [r == role for r in roles]].sum(axis=2) > 0 for role in set(roles)}
    elsewhere = ~held["embedding"]
    copies = (held["head"] & elsewhere) * (1.0 if model.tied else 0.0)
    if model.mtp:
        copies = copies + (held["mtp"] & elsewhere)
    return np.asarray(copies, dtype=np.float64)
