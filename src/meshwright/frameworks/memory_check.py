"""Does it fit: the memory estimate of what a file states, as findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.cluster.spec import GIB
from meshwright.frameworks.estimating import estimate_of
from meshwright.frameworks.reading import Reading
from meshwright.layout.rules import Finding, View

if TYPE_CHECKING:
    from meshwright.planner.answer import Memory


def memory_of(reading: Reading, view: View) -> Memory | None:
    """Estimated memory of the stated run; None when model, layout or cluster are not settled."""
    estimate = estimate_of(reading, view)
    return estimate.memory if estimate is not None else None


def memory_findings(reading: Reading, view: View) -> tuple[list[Finding], Memory | None]:
    """An error where weights, gradients and optimizer alone exceed the card, a warning where all does."""
    memory = memory_of(reading, view)
    if memory is None or view.cluster is None:
        return [], memory
    stage = max(memory.per_stage, key=lambda s: s.weights_bytes + s.gradients_bytes + s.optimizer_bytes)
    static = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
    name, usable = view.cluster.gpu.name, memory.usable_bytes
    # A recipe has flags that are not all known here: what it needs is less certain than what a script states.
    surely = reading.recipe is None
    if static > usable:
        found = _static(view, stage, static, usable, name)
        return [found if surely else replace(found, severity="warn")], memory
    if memory.low_bytes > usable:
        fullest = max(memory.per_stage, key=lambda s: s.total_bytes)
        message = (
            f"about {fullest.total_bytes / GIB:.0f} GiB on stage {fullest.stage} (weights, gradients and "
            f"optimizer {static / GIB:.0f}, activations {fullest.activations_bytes / GIB:.0f}), "
            f"a {name} offers {usable / GIB:.0f}"
        )
        fix = "more TP, PP or CP, recompute, or a smaller micro-batch"
        found = Finding(
            rule="memory-estimate",
            severity="warn" if surely else "advice",
            message=message,
            fix=fix,
            enforced_by="CUDA",
        )
        return [found], memory
    return [], memory


def _static(view: View, stage: Any, static: int, usable: int, name: str) -> Finding:
    tp, pp, dp = view.tp, view.pp, view.dp
    message = (
        f"out of memory: {stage.parameters / 1e9:.1f}e9 parameters a GPU (TP {tp} x PP {pp}, DP {dp}) take "
        f"{static / GIB:.0f} GiB of weights ({stage.weights_bytes / GIB:.0f}), gradients "
        f"({stage.gradients_bytes / GIB:.0f}) and optimizer ({stage.optimizer_bytes / GIB:.0f}) on stage "
        f"{stage.stage}; a {name} offers {usable / GIB:.0f} GiB"
    )
    times = -(-static // usable)
    factor = 1 << max(times - 1, 1).bit_length()
    fix = (
        f"divide the model further: about {factor} times the TP x PP ({tp * pp * factor} GPUs a replica), "
        "or more DP"
    )
    line = view.lines.get("tensor_model_parallel_size")
    return Finding(
        rule="memory-static", severity="error", message=message, fix=fix, enforced_by="CUDA", line=line
    )
