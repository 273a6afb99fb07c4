"""The command line that does what a server does not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.planner.answer import Estimate

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp")


def verify_command(answer: Estimate, given: Mapping[str, Any], levels: str) -> str:
    """`meshwright verify` of an answer: in options for a model of the catalog, else from the saved JSON."""
    parts = ["meshwright", "verify"]
    if given.get("config"):
        return shlex.join([*parts, "--from", "plan.json", "--level", levels])
    layout, execution = answer.layout, answer.execution
    parts += [str(given["model"]), "--gpus", str(given["gpus"])]
    for name in DEGREES:
        if getattr(layout, name) > 1:
            parts += [f"--{name}", str(getattr(layout, name))]
    parts += ["--mbs", str(layout.mbs), "--seq-length", str(answer.question.job.seq_length)]
    parts += ["--global-batch-size", str(layout.gbs)]
    if layout.tp > 1 and not layout.sp:
        parts.append("--no-sp")
    if answer.pipeline_layout:
        parts += ["--pipeline-layout", answer.pipeline_layout]
    parts += ["--recompute", execution.recompute.granularity]
    if execution.recompute.modules:
        parts += ["--recompute-modules", ",".join(execution.recompute.modules)]
    if answer.question.model.is_moe:
        parts += ["--dispatcher", execution.dispatcher]
    if layout.cp > 1:
        parts += ["--cp-comm", execution.cp_comm]
    return shlex.join([*parts, "--level", levels])
