"""The rollout engine of `--task rl` from what was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.errors import QuestionError, did_you_mean

NAMES = {
    "rollout_gpus": "gpus",
    "rollout_memory": "memory_share",
    "colocated": "colocated",
    "rollout_sleep": "sleeps",
    "reference": "reference",
}
OFFLOADED = ("weights", "gradients", "optimizer", "reference")


def read_rollout(said: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the rollout engine that were given."""
    found: dict[str, Any] = {field: said[name] for name, field in NAMES.items() if name in said}
    if "sync_bucket_gb" in said:
        found["sync_bucket"] = float(said["sync_bucket_gb"]) * 1e9
    if "rl_offload" in said:
        found |= _offloaded(str(said["rl_offload"]))
    return found


def _offloaded(text: str) -> dict[str, bool]:
    words = [word for word in text.replace(" ", ",").split(",") if word and word != "none"]
    for word in words:
        if word not in OFFLOADED:
            raise QuestionError(
                f"--rl-offload {word[:40]!r} is not known{did_you_mean(word[:40], OFFLOADED) or '.'} "
                f"Known: {', '.join(OFFLOADED)}, none"
            )
    return {f"offloads_{name}": name in words for name in OFFLOADED}
