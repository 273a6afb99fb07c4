"""One rank's view of a world of any size: a fake process group under the real initialize_model_parallel."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from megatron.core import parallel_state

GROUP_NAMES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp-cp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EMBEDDING_GROUP": "embd",
    "POSITION_EMBEDDING_GROUP": "pos-embd",
    "MODEL_PARALLEL_GROUP": "tp-pp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp-dp",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp-dp-cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp-cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "tp-ep",
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "tp-ep-pp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "intra-dp-cp",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "dist-opt",
}
"""Megatron Core's names of its groups, and ours."""


class Recorder:
    """Every group that initialize_model_parallel asks for, by name, in the order of creation."""

    def __init__(self) -> None:
        self.groups: dict[str, list[list[int]]] = {}

    def note(self, description: str | None, ranks: list[int]) -> None:
        self.groups.setdefault(description or "", []).append(list(ranks))


def enter(world: int, rank: int, mesh: dict[str, Any], recorder: Recorder | None = None) -> None:
    """Become `rank` of `world` ranks with the groups of `mesh` (arguments of initialize_model_parallel).

    Groups that do not hold this rank are recorded, not made: real ones would cost a second a thousand ranks.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    leave()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    plain_new_group = dist.new_group

    def new_group(ranks: Any = None, **kwargs: Any) -> Any:
        if recorder is not None:
            recorder.note(kwargs.get("group_desc"), ranks)
        if ranks is not None and rank not in ranks:
            return dist.GroupMember.NON_GROUP_MEMBER
        return plain_new_group(ranks=ranks, **kwargs)

    torch_distributed: Any = dist
    torch_distributed.new_group = new_group
    remember_rank_lists()
    try:
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False, **mesh)
    finally:
        torch_distributed.new_group = plain_new_group


def leave() -> None:
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def remember_rank_lists() -> None:
    """Compute Megatron Core's rank lists once for all ranks of a request: a pure function of the degrees."""
    generator = parallel_state.RankGenerator
    if hasattr(generator, "plain_get_ranks"):
        return
    generator.plain_get_ranks = generator.get_ranks

    @functools.cache
    def ranks(key: tuple[Any, ...], token: str) -> list[list[int]]:
        tp, ep, dp, pp, cp, order, offset = key
        fresh = generator(tp=tp, ep=ep, dp=dp, pp=pp, cp=cp, order=order, rank_offset=offset)
        return fresh.plain_get_ranks(token)  # type: ignore[no-any-return]

    def get_ranks(self: Any, token: str) -> list[list[int]]:
        key = (self.tp, self.ep, self.dp, self.pp, self.cp, self.order, self.rank_offset)
        return [list(group) for group in ranks(key, token)]

    generator.get_ranks = get_ranks


def groups(request: dict[str, Any]) -> dict[str, list[list[int]]]:
    """All groups of all ranks, by our names; hierarchical ones as "hcp-0", "hcp-1", ... (innermost first)."""
    recorder = Recorder()
    enter(request["world"], 0, request["mesh"], recorder)
    named: dict[str, list[list[int]]] = {}
    for description, lists in recorder.groups.items():
        name = GROUP_NAMES.get(description)
        kind, _, level = description.rpartition("_L")
        if kind == "HIERARCHICAL_CONTEXT_PARALLEL_GROUP":
            name = f"hcp-{level}"
        elif kind == "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP":
            name = ("intra-edp", "inter-edp")[int(level)]
        if name:
            named[name] = sorted(lists)
    named.setdefault("intra-dp-cp", named.get("dp-cp", []))
    named.setdefault("intra-edp", named.get("edp", []))
    return named
