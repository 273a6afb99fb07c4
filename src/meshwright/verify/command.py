"""Level 3: the guide's own command, which needs GPUs and Megatron Bridge."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
from pathlib import Path

from meshwright.layout.layout import Layout
from meshwright.verify.log_judge import Expected, judge_log
from meshwright.verify.logs import read_log
from meshwright.verify.shrink import small_layout
from meshwright.verify.subject import Subject
from meshwright.verify.verification import Outcome

DENSE_RECIPE, MOE_RECIPE = "llama32_1b_pretrain_config", "moonlight_16b_pretrain_config"
"""The guide's recipe, and the smallest published one with experts."""

SCRIPT = "scripts/training/run_recipe.py"
SECONDS = 1800.0


def smoke_command(
    layout: Layout, ranks: int, recipe: str = DENSE_RECIPE, script: str = SCRIPT
) -> tuple[str, ...]:
    """The guide's quick check of a combination of degrees: three iterations of a small recipe.

    Source: the guide, section on verification.
    """
    micro_batches = 2 * layout.pp
    overrides = {
        "model.tensor_model_parallel_size": layout.tp,
        "model.pipeline_model_parallel_size": layout.pp,
        **({"model.virtual_pipeline_model_parallel_size": layout.vpp} if layout.vpp > 1 else {}),
        **({"model.context_parallel_size": layout.cp} if layout.cp > 1 else {}),
        **({"model.expert_model_parallel_size": layout.ep} if layout.ep > 1 else {}),
        **({"model.expert_tensor_parallel_size": layout.etp} if layout.ep > 1 or layout.etp > 1 else {}),
        "model.sequence_parallel": layout.sp,
        "train.train_iters": 3,
        "train.global_batch_size": max(8, micro_batches * layout.mbs * layout.dp(ranks)),
        "train.micro_batch_size": layout.mbs,
        "scheduler.lr_warmup_iters": 0,
        "validation.eval_iters": 0,
        "validation.eval_interval": 0,
        "checkpoint.save_interval": 0,
        "logger.log_interval": 1,
    }
    return (
        "python", "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", script, "--recipe", recipe,
        *(f"{name}={value}" for name, value in overrides.items()),
    )  # fmt: skip


def on_gpus(subject: Subject, recipe: str | None = None, script: str = SCRIPT) -> Outcome:
    """Run the command where GPUs and the framework are at hand; elsewhere print it, as skipped."""
    gpus = gpus_here()
    layout, ranks = small_layout(subject, 2, max(gpus, 16))
    if layout is None:
        return Outcome("skipped", f"{subject.layout} has no copy of 16 ranks")
    recipe = recipe or (MOE_RECIPE if subject.model.is_moe else DENSE_RECIPE)
    command = smoke_command(layout, ranks, recipe, script)
    evidence = {"command": shlex.join(command), "ranks": ranks, "gpus_here": gpus}
    missing = what_is_missing(gpus, ranks, script)
    if missing:
        return Outcome("skipped", f"{missing}; run: {shlex.join(command)}", evidence)
    log, status = execute(command)
    expected = Expected(
        degrees={"tp": layout.tp, "pp": layout.pp, "dp": layout.dp(ranks)}, world=ranks, iterations=3
    )
    judgement = judge_log(read_log(log), expected)
    evidence |= {"exit_status": status, "judgement": judgement.as_dict()}
    if status or not judgement.passed:
        reasons = [*judgement.reasons, *([f"exit status {status}"] if status else [])]
        return Outcome("fail", reasons[0], evidence)
    return Outcome("pass", f"three iterations on {ranks} GPUs: {'; '.join(judgement.remarks)}", evidence)


def what_is_missing(gpus: int, ranks: int, script: str) -> str:
    """Why the command cannot run here; empty where it can."""
    if gpus == 0:
        return "no GPU here"
    if gpus < ranks:
        return f"{gpus} GPUs here, the copy needs {ranks}"
    if importlib.util.find_spec("megatron") is None or not Path(script).exists():
        return f"Megatron Bridge's {script} is not here"
    return ""


def gpus_here() -> int:
    """GPUs that nvidia-smi lists; 0 without it."""
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def execute(command: tuple[str, ...]) -> tuple[str, int]:
    """Its output and exit status; 124 when it takes too long."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return said.decode(errors="replace") if isinstance(said, bytes) else said, 124
    return done.stdout, done.returncode
