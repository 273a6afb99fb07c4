"""Activations that ranks keep, as the engine itself saves them: level 1 of `verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.verify.process import EngineProcess
from meshwright.verify.subject import Subject

MODELLED = "modelled on the tensors that Transformer Engine saves; expert load balanced, nothing dropped"
"""What the figures are: the engine's modules and schedule, over stand-ins for GPU-only kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActivations:
    """What one rank keeps between forward and backward passes [bytes].

    stage              its pipeline rank
    peak_bytes         most that is kept after any forward pass of the step
    microbatch_bytes   kept by the first forward pass alone (of the first chunk)
    parts              that, by part: "embedding", "layer3", "mtp0", "final_norm", "output_layer",
                       "ends" (loss, and what is saved outside the parts)
    """

    rank: int
    stage: int
    peak_bytes: int
    microbatch_bytes: int
    parts: Mapping[str, int]


def saved_bytes(
    engine: EngineProcess,
    subject: Subject,
    *,
    stages: Sequence[int] | None = None,
    num_microbatches: int | None = None,
    until_steady: bool = False,
    timeout: float = 600.0,
) -> tuple[SavedActivations, ...]:
    """Saved activations of one rank of each stage (None: of all), under the plan's own schedule.

    num_microbatches  None takes the plan's, and no more than fill the pipeline
    until_steady      end each stage once forward and backward passes alternate (not with vpp, whose
                      chunks differ): the peak is the same and takes half the time
    Raises CannotBuild or EngineError where the engine does not run the plan. Takes 1 to 20 s a stage.
    """
    pp, vpp = subject.layout.pp, subject.layout.vpp
    if num_microbatches is None:
        full = 2 * pp if vpp > 1 or until_steady else pp
        asked = subject.global_batch // (subject.layout.mbs * subject.layout.dp(subject.world))
        num_microbatches = min(asked, full) or full
    chosen = list(range(pp)) if stages is None else list(stages)
    ranks = [stage * (subject.world // pp) for stage in chosen]
    answers = engine.ask(
        "activations",
        ranks=ranks,
        seq_length=subject.seq_length,
        micro_batch_size=subject.layout.mbs,
        num_microbatches=num_microbatches,
        until_steady=until_steady and vpp == 1,
        timeout=timeout,
        **subject.config().request(),
    )
    return tuple(
        SavedActivations(
            rank=answer["rank"],
            stage=answer["pp"],
            peak_bytes=answer["peak_saved_bytes"],
            microbatch_bytes=answer["microbatch_bytes"],
            parts=answer["parts"],
        )
        for answer in answers
    )
