"""Model FLOPs of a question's tokens: what MFU counts, without recomputation."""

from __future__ import annotations

from meshwright.cost.question import Question
from meshwright.model.flops import flops_by_part

LORA_SHARE = 2 / 3
"""Of the FLOPs of pretraining: forward and input gradients only, since frozen weights take no gradient."""


def trained_share(question: Question) -> float:
    """The share of a pretraining token's FLOPs that a token of this job takes."""
    return LORA_SHARE if question.job.task == "lora" else 1.0


def job_flops(question: Question) -> tuple[float, float]:
    """FLOPs a token of the attention core (scores and values, scans), and of everything. [FLOP]

    Packed samples attend within themselves only, so that the core is averaged over their lengths.
    """
    core = whole = 0.0
    for length, share in question.job.packing or ((question.job.seq_length, 1.0),):
        parts = flops_by_part(question.model, length)
        core += share * parts.get("core", 0.0)
        whole += share * sum(parts.values())
    return core, whole
