"""Bytes that one GPU sends in a step, by kind of group and by the link they go over.

Averages over the ranks of a pipeline. Collectives are taken as rings (an all-gather or reduce-scatter of
B bytes over n ranks sends B*(n-1)/n) in the order of their ranks; all-to-alls send to every member alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.cost.parameters import rank_parameters
from meshwright.cost.question import Question
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.layout.ranks import RankGrid
from meshwright.layout.table import Ints
from meshwright.model.spec import Attention, Mla, Mlp, Model, Moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one GPU sends in a step for one kind of group.

    near, far  bytes inside its NVLink domain, and out of it
    """

    group: str
    size: int
    carries: str
    near: float
    far: float


def traffic(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout, grid: RankGrid
) -> tuple[Traffic, ...]:
    """One row for each kind of group that has more than one member."""
    job, world = question.job, question.cluster.world
    micro = layout.num_microbatches(world, job.global_batch)
    tokens = layout.mbs * job.seq_length / layout.cp  # of one micro-batch on one rank of the cp group
    rows = [
        *_tensor(question.model, layout, execution, tokens * micro),
        *_context(question.model, layout, execution, tokens * micro),
        *_experts(question.model, layout, tokens * micro),
        *_messages(question.model, layout, tokens * micro),
        *_gradients(question, layout, execution, pipeline, grid),
    ]
    return tuple(_placed(grid, *row) for row in rows)


Row = tuple[str, str, float, bool]
"""Group, what it carries, bytes sent, whether to every member alike (all-to-all)."""


def _placed(grid: RankGrid, group: str, carries: str, sent: float, everywhere: bool) -> Traffic:
    members = grid.groups[group]
    away = _away(members, members // (grid.nvlink_domain or grid.gpus_per_node), everywhere, group == "pp")
    size = members.shape[1]
    return Traffic(group=group, size=size, carries=carries, near=sent * (1 - away), far=sent * away)


def _away(members: Ints, domain: Ints, everywhere: bool, chain: bool) -> float:
    """Share of what the members of a kind of group send that leaves their NVLink domain, on average.

    members, domain  [groups, size] ranks, and the domain of each
    everywhere       to every member alike; else to the next one, around the ring (a chain has no way back)
    """
    size = members.shape[1]
    if size < 2:
        return 0.0
    if everywhere:
        ordered = np.sort(domain, axis=1)
        starts = np.concatenate([np.ones((len(ordered), 1), bool), np.diff(ordered, axis=1) != 0], axis=1)
        place = np.cumsum(starts.ravel()) - 1
        together = np.bincount(place)[place]  # members of the same group in the same domain
        return float(np.mean((size - together) / (size - 1)))
    crossing = domain != np.roll(domain, -1, axis=1)
    return float(np.mean(crossing[:, :-1] if chain else crossing))


def _tensor(model: Model, layout: Layout, execution: Execution, tokens: float) -> Iterator[Row]:
    """Around each region (mixer; MLP or shared experts): with SP an all-gather and a reduce-scatter each
    way and the input gathered again for the weight gradient; without, one all-reduce each way.

    Source: megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
    """
    if layout.tp == 1:
        return
    regions = 1.0  # the head, with the embedding
    for kind, layer in zip(*np.unique(model.pattern, return_counts=True), strict=True):
        one = model.kinds[int(kind)]
        shared = isinstance(one.ffn, Moe) and bool(one.ffn.shared_ffn or one.ffn.parallel_ffn)
        regions += float(layer) * ((one.mixer is not None) + (isinstance(one.ffn, Mlp) or shared))
    again = 2.0 if execution.recompute.granularity == "full" else 0.0
    passes = (5.0 if layout.sp else 4.0) + again
    sent = passes * regions / layout.pp * 2.0 * model.hidden * tokens * (layout.tp - 1) / layout.tp
    yield "tp", "activations of every layer", sent, False


def _context(model: Model, layout: Layout, execution: Execution, tokens: float) -> Iterator[Row]:
    """p2p and allgather: keys and values pass every rank forward, twice that backward. a2a: q, k, v and
    the output change hands once each way.
    """
    if layout.cp == 1:
        return
    width = 0.0
    for kind, count in zip(*np.unique(model.pattern, return_counts=True), strict=True):
        mixer = model.kinds[int(kind)].mixer
        if isinstance(mixer, Attention):
            kv, q = 2.0 * mixer.kv_heads * mixer.head_dim, 2.0 * mixer.heads * mixer.head_dim
        elif isinstance(mixer, Mla):
            kv = float(mixer.heads * (mixer.qk_nope + mixer.qk_rope + mixer.v_head))
            q = kv
        else:
            continue
        if execution.cp_comm == "a2a":
            width += float(count) * 2.0 * (kv + q) / layout.cp
        else:
            width += float(count) * 3.0 * kv
    sent = width * 2.0 * tokens / layout.tp / layout.pp * (layout.cp - 1)
    yield "cp", "keys and values of attention", sent, execution.cp_comm == "a2a"


def _experts(model: Model, layout: Layout, tokens: float) -> Iterator[Row]:
    """Tokens to their experts and back, forward and backward, in bf16."""
    if layout.ep == 1:
        return
    routed = 0.0
    for kind, count in zip(*np.unique(model.pattern, return_counts=True), strict=True):
        ffn = model.kinds[int(kind)].ffn
        if isinstance(ffn, Moe):
            routed += float(count) * ffn.top_k
    own = tokens / layout.tp if layout.sp else tokens
    sent = 4.0 * routed / layout.pp * 2.0 * model.hidden * own * (layout.ep - 1) / layout.ep
    yield "ep", "tokens to their experts and back", sent, True


def _messages(model: Model, layout: Layout, tokens: float) -> Iterator[Row]:
    """One activation and one gradient over every boundary between chunks."""
    if layout.pp == 1:
        return
    own = tokens / layout.tp if layout.sp else tokens
    boundaries = (layout.pp * layout.vpp - 1) / layout.pp
    yield "pp", "activations and their gradients between stages", 4.0 * boundaries * model.hidden * own, False


def _gradients(
    question: Question, layout: Layout, execution: Execution, pipeline: PipelineLayout, grid: RankGrid
) -> Iterator[Row]:
    """Gradients reduced and parameters gathered once a step (FSDP gathers twice a micro-batch)."""
    if question.job.task == "lora":
        return
    held = pipeline.counts(question.model, execution.recompute).sum(axis=(0, 1)).astype(float) / layout.pp
    one = [np.array([value]) for value in (layout.tp, layout.ep, layout.etp)]
    per_block = rank_parameters(question.model, *one)
    dense, expert = (float((held * side[0]).sum()) for side in (per_block.dense, per_block.expert))
    grads = 4.0 if question.job.grad_dtype == "fp32" else 2.0
    micro = layout.num_microbatches(question.cluster.world, question.job.global_batch)
    width = (grads + 4.0) * micro if execution.fsdp else grads + 2.0
    for name, parameters, size in (("dp-cp", dense, grid.dp * layout.cp), ("edp", expert, grid.edp)):
        if size > 1 and parameters > 0:
            part = "experts" if name == "edp" else "dense part"
            yield (
                name,
                f"gradients and parameters of the {part}",
                width * parameters * (size - 1) / size,
                False,
            )
