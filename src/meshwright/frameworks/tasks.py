"""What is trained: whole weights from the start, whole weights on answers, adapters, by reinforcement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.errors import LayoutError

if TYPE_CHECKING:
    from meshwright.frameworks.plan import Plan

MEGATRON = frozenset({"pretrain", "sft"})
WRITES: Mapping[str, frozenset[str]] = {
    "megatron-lm": MEGATRON,
    "slurm": MEGATRON,
    "kubernetes": MEGATRON,
    "megatron-bridge": frozenset({"pretrain", "sft", "lora"}),
    "nemo": frozenset({"pretrain", "sft", "lora"}),
    "ms-swift": frozenset({"pretrain", "sft", "lora"}),
    "nemo-rl": frozenset({"pretrain", "sft", "lora", "rl"}),
    "verl": frozenset({"pretrain", "rl"}),
    "slime": frozenset({"pretrain", "sft", "rl"}),
}
"""Tasks that can be written; others pre-train only.

Megatron-LM has --sft and no argument for adapters; slime's --loss-type sft_loss trains whole weights.
The RL frameworks write what pre-trains as the trainer of an RL job: its memory is the same.
"""
BY_RL = frozenset({"nemo-rl", "verl", "slime"})
"""Frameworks whose files start an RL job where nothing else is asked for."""
NAMES = {"sft": "supervised fine-tuning", "lora": "LoRA", "rl": "reinforcement learning"}


def tasks_of(framework: str) -> frozenset[str]:
    """Tasks that can be written for a framework."""
    return WRITES.get(framework, frozenset({"pretrain"}))


def require_task(framework: str, title: str, plan: Plan) -> None:
    """LayoutError where a framework has no word for what is trained, with those that have one."""
    if plan.task in tasks_of(framework):
        return
    able = ", ".join(name for name in WRITES if plan.task in WRITES[name])
    raise LayoutError(
        f"{NAMES.get(plan.task, plan.task)} (--task {plan.task}) cannot be written for {title}; "
        f"it can for {able}"
    )


def task_warning(framework: str, plan: Plan) -> str | None:
    """What to hear where an RL framework is given a plan of something else."""
    if framework not in BY_RL or plan.task != "pretrain":
        return None
    return (
        f"{framework} starts an RL job; this plan was priced as pre-training, without a rollout engine "
        "(--task rl prices both)"
    )
