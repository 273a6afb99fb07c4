"""Runs of reinforcement learning as their configs state them: trained sequences and the rollout engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.cluster.spec import Cluster
from meshwright.cost.rl import engine_gpus
from meshwright.frameworks.reading import Plain, Reading
from meshwright.job.spec import Rollout
from meshwright.model.spec import Model

REINFORCING = ("verl", "nemo-rl", "slime")
"""Frameworks whose runs hold a rollout engine beside the trainer."""
ROLLOUT = "actor_rollout_ref.rollout."
PROMPT, RESPONSE = "data.max_prompt_length", "data.max_response_length"


def trained(reading: Reading, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the longest trained sequence and its batch, where a run of verl states them.

    A sequence is a prompt and its response; a step trains on `rollout.n` responses of every prompt.
    """
    if reading.framework != "verl":
        return options
    more: dict[str, Any] = {}
    lengths = [_whole(_said(reading, name)) for name in (PROMPT, RESPONSE)]
    if not _whole(options.get("seq_length")) and all(lengths):
        more["seq_length"] = sum(lengths)
    prompts = _whole(options.get("rl_train_batch_size"))
    if not _whole(options.get("global_batch_size")) and prompts:
        more["global_batch_size"] = prompts * max(_whole(_said(reading, f"{ROLLOUT}n")), 1)
    return {**options, **more}


def rollout_of(reading: Reading, model: Model, cluster: Cluster) -> Rollout | None:
    """The engine of a run, where it is one of reinforcement learning; what is not said is usual there.

    verl: rollout.tensor_model_parallel_size, rollout.gpu_memory_utilization, rollout.free_cache_engine,
    actor.megatron.{param,grad,optimizer}_offload, actor.use_kl_loss (a reference policy is held).
    """
    if reading.framework not in REINFORCING:
        return None
    share = _said(reading, f"{ROLLOUT}gpu_memory_utilization")
    share = float(share) if isinstance(share, float) and 0.0 < share <= 1.0 else 0.5
    gpus = _whole(_said(reading, f"{ROLLOUT}tensor_model_parallel_size"))
    return Rollout(
        gpus=gpus if 0 < gpus <= cluster.world else engine_gpus(model, cluster, share),
        memory_share=share,
        sleeps=_on(_said(reading, f"{ROLLOUT}free_cache_engine"), True),
        offloads_weights=_on(_said(reading, "param_offload"), False),
        offloads_gradients=_on(_said(reading, "grad_offload"), False),
        offloads_optimizer=_on(_said(reading, "optimizer_offload"), False),
        reference=_on(_said(reading, "actor_rollout_ref.actor.use_kl_loss"), False),
    )


def _said(reading: Reading, name: str) -> Plain:
    found = reading.options.get(name) or reading.other.get(name)
    return None if found is None else found.value


def _whole(value: object) -> int:
    """A count; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else 0


def _on(value: Plain, usual: bool) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes", "on")
    return usual if value is None else bool(value)
