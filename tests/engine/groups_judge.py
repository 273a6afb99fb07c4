"""Child process: the groups that Megatron Core itself builds for many worlds.

Reads a JSON list of worlds from stdin; writes for each the created groups by Megatron's name, in the
order of creation, those of a bare RankGenerator, or the error.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state as ps  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

logging.disable(logging.CRITICAL)

DECODER = ("tp", "cp", "dp", "dp-cp", "pp", "tp-cp", "tp-dp", "tp-dp-cp", "tp-pp")
EXPERT = {"ep": "ep", "etp": "tp", "edp": "dp", "tp-ep": "tp-ep", "tp-ep-pp": "tp-ep-pp"}


def judge(world: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, list[list[int]]] = {}
    original = ps.create_group

    def recording(ranks: list[int], *args: Any, group_desc: str, **kwargs: Any) -> Any:
        created.setdefault(group_desc, []).append(list(ranks))
        return original(ranks, *args, group_desc=group_desc, **kwargs)

    ps.create_group = recording
    dist.init_process_group("fake", store=FakeStore(), rank=world["rank"], world_size=world["world"])
    try:
        ps.initialize_model_parallel(create_gloo_process_groups=False, **world["arguments"])
        return {"created": created, "generated": generated(world)}
    except (AssertionError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        ps.create_group = original
        ps.destroy_model_parallel()
        dist.destroy_process_group()


def generated(world: dict[str, Any]) -> dict[str, list[list[int]]]:
    size, said = world["world"], world["arguments"]
    tp, pp = said["tensor_model_parallel_size"], said["pipeline_model_parallel_size"]
    cp, ep = said["context_parallel_size"], said["expert_model_parallel_size"]
    etp, order = said["expert_tensor_parallel_size"], said["order"]
    decoder = ps.RankGenerator(tp=tp, ep=1, dp=size // (tp * pp * cp), pp=pp, cp=cp, order=order)
    expert = ps.RankGenerator(tp=etp, ep=ep, dp=size // (etp * ep * pp), pp=pp, cp=1, order=order)
    found = {name: decoder.get_ranks(name) for name in DECODER}
    return found | {name: expert.get_ranks(token) for name, token in EXPERT.items()}


if __name__ == "__main__":
    print(json.dumps([judge(world) for world in json.load(sys.stdin)]))
