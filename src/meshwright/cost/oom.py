"""What an out-of-memory message says: where in the step it happened, why, and what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.cluster.spec import GIB
from meshwright.errors import QuestionError
from meshwright.facts import load_json

SIGNS = (
    r"out of memory|OutOfMemory|\bOOM\b|CUBLAS_STATUS_ALLOC_FAILED|Failed to CUDA calloc|DefaultCPUAllocator"
    r"|oom-kill|(?:code|status) 137|SIGKILL|signal 9\b"
)
OF_GPU = r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|CUDA calloc"
"""Signs of the GPU's memory: a process that is killed afterwards is a consequence."""
BEFORE, AFTER = 30_000, 3_000
"""Characters around an error that belong to its traceback and its message."""
UNITS = {
    "B": 1.0,
    "BYTES": 1.0,
    "KIB": 2.0**10,
    "MIB": 2.0**20,
    "GIB": 2.0**30,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
}
SIZE = r"([\d.]+)\s*([KMG]?i?B|bytes)"
LONGEST_MESSAGE = 4_000_000
"""Characters of a log that are looked at: its end, where the traceback stands."""
FRAGMENTED = 0.1
"""Share of the reserved memory that is free inside it, from which fragmentation is named as a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """An out-of-memory error, read. Sizes in bytes; None where the message does not say.

    stage       part of the step, in the words of data/oom.json, or `unknown`
    causes      likeliest first
    remedies    what helps, likeliest first
    tried       size of the allocation that failed
    capacity    memory of the device
    allocated   held by tensors
    reserved    held by torch's allocator, tensors included
    free        free on the device
    device      index of the device
    rank        global rank, where the log names one
    """

    stage: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    tried: float | None = None
    capacity: float | None = None
    allocated: float | None = None
    reserved: float | None = None
    free: float | None = None
    device: int | None = None
    rank: int | None = None

    @property
    def fragmented(self) -> bool:
        """The request would have fitted into what the allocator had reserved and not handed out."""
        if self.tried is None or self.reserved is None or self.allocated is None:
            return False
        idle = self.reserved - self.allocated
        return idle >= self.tried and idle >= FRAGMENTED * self.reserved

    def as_dict(self) -> dict[str, Any]:
        """JSON form: sizes in bytes."""
        sizes = {
            f"{name}_bytes": getattr(self, name)
            for name in ("tried", "capacity", "allocated", "reserved", "free")
        }
        return {
            "stage": self.stage, "causes": list(self.causes), "remedies": list(self.remedies), **sizes,
            "device": self.device, "rank": self.rank, "fragmented": self.fragmented,
        }  # fmt: skip


def read_out_of_memory(log: str) -> OutOfMemory:
    """The last out-of-memory error of a log or message; QuestionError where there is none."""
    text = log[-LONGEST_MESSAGE:]
    if not has_out_of_memory(text):
        raise QuestionError(
            "the text has no out-of-memory error (looked for torch's, NCCL's and the kernel's words)"
        )
    text = _around(text)
    facts = load_json("meshwright.cost", "oom.json")
    stage, cause = _stage(text, facts)
    sizes = _sizes(text)
    found = OutOfMemory(stage=stage, causes=(), remedies=(), device=_device(text), rank=_rank(text), **sizes)
    causes, remedies = _causes(found, cause), list(facts["remedies"].get(stage, facts["remedies"]["unknown"]))
    if found.fragmented:
        remedies.insert(0, "expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)")
    return OutOfMemory(
        stage=stage,
        causes=tuple(causes),
        remedies=tuple(remedies),
        device=found.device,
        rank=found.rank,
        **sizes,
    )


def has_out_of_memory(text: str) -> bool:
    """Whether a text holds any sign of an out-of-memory error."""
    return re.search(SIGNS, text, re.IGNORECASE) is not None


def _around(text: str) -> str:
    """The last error of the GPU's memory (else of the host's) with its traceback.

    What a log says long before and after belongs to other parts of the run.
    """
    signs = [*re.finditer(OF_GPU, text)] or [*re.finditer(SIGNS, text, re.IGNORECASE)]
    last = signs[-1]
    before = text[max(last.start() - BEFORE, 0) : last.start()]
    start = before.rfind("Traceback (most recent call last)")
    line = before.rfind("\n", 0, max(start, 0)) + 1 if start >= 0 else 0  # the rank stands before the words
    after = text[last.start() : last.start() + AFTER]
    following = after.find("Traceback (most recent call last)", 1)
    return before[line:] + (after if following < 0 else after[:following])


def _stage(text: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    """The first stage, in the order of the facts, that the text names, and its usual cause."""
    of_gpu = re.search(OF_GPU, text) is not None
    for row in facts["stages"]:
        if of_gpu and row["stage"] == "host memory":
            continue  # a process that is killed after the GPU's error is a consequence
        if any(re.search(pattern, text, re.IGNORECASE) for pattern in row["patterns"]):
            return row["stage"], row["cause"]
    return "unknown", "the message has no traceback that names a part of the step"


def _sizes(text: str) -> dict[str, float | None]:
    """Sizes of torch's message, in its old form (before 2.1) and its new one."""

    def size(*patterns: str) -> float | None:
        for pattern in patterns:
            matches = re.findall(pattern, text)
            if matches:
                number, unit = matches[-1]
                return float(number) * UNITS[unit.upper()]
        return None

    allocated = size(rf"{SIZE} already allocated", rf"{SIZE} is allocated by PyTorch")
    idle = size(rf"{SIZE} is reserved by PyTorch but unallocated")
    reserved = size(rf"{SIZE} reserved in total by PyTorch")
    if reserved is None and allocated is not None and idle is not None:
        reserved = allocated + idle
    return {
        "tried": size(rf"Tried to allocate {SIZE}", rf"you tried to allocate {SIZE}"),
        "capacity": size(rf"{SIZE} total capacity", rf"total capacity of {SIZE}"),
        "allocated": allocated,
        "reserved": reserved,
        "free": size(rf"{SIZE} free;", rf"of which {SIZE} is free"),
    }


def _device(text: str) -> int | None:
    found = re.findall(r"GPU (\d+)", text)
    return int(found[-1]) if found else None


def _rank(text: str) -> int | None:
    found = re.findall(r"\[?rank[\s:=]*(\d+)\]?", text, re.IGNORECASE)
    return int(found[-1]) if found else None


def _causes(found: OutOfMemory, usual: str) -> list[str]:
    causes = [usual]
    if found.fragmented and found.reserved is not None and found.allocated is not None:
        idle = (found.reserved - found.allocated) / GIB
        causes.insert(
            0, f"fragmentation: torch had {idle:.1f} GiB reserved that no tensor used, in pieces too small"
        )
    if found.capacity is not None and found.reserved is not None and found.free is not None:
        others = found.capacity - found.reserved - found.free
        if others > 0.1 * found.capacity:
            causes.append(
                f"{others / GIB:.1f} GiB of the device are outside torch: communicators, other processes"
            )
    return causes
