"""`verify`: run a plan small on the real engine, or judge the log of a real run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshwright.api.asking import Options
from meshwright.api.planning import estimate
from meshwright.cluster.spec import Cluster
from meshwright.errors import LayoutError, QuestionError
from meshwright.model.spec import Model
from meshwright.planner.answer import Estimate
from meshwright.verify.log_judge import Expected, Judgement, judge_log
from meshwright.verify.logs import read_log
from meshwright.verify.subject import subject_of
from meshwright.verify.verification import Verification
from meshwright.verify.verify import verify as run_verify

LEVELS = (0, 1, 2, 3)
LARGEST_LOG = 500_000_000


def verify(
    model: str | Model,
    gpus: str | Cluster,
    options: Options | None = None,
    *,
    levels: Sequence[int] = LEVELS,
    fault: str | None = None,
) -> Verification:
    """Run the layout of an estimate small on Megatron Core, in a child process, level by level."""
    answer = estimate(model, gpus, options)
    return verify_answer(answer, levels=levels, fault=fault)


def verify_answer(
    answer: Estimate, *, levels: Sequence[int] = LEVELS, fault: str | None = None
) -> Verification:
    """The same for an estimate; what the rules refuse, the engine is asked all the same."""
    kept = None
    if answer.memory is not None and answer.question.job.precision == "bf16":
        kept = {stage.stage: float(stage.activations_bytes) for stage in answer.memory.per_stage}
    return run_verify(subject_of(answer), levels=levels, fault=fault, predicted_activations=kept)


def judge(path: str | Path, expected: Expected | None = None) -> Judgement:
    """The verdict on the log of a real run (Megatron-LM, Megatron Bridge, NeMo)."""
    file = Path(path)
    if not file.is_file():
        raise QuestionError(f"there is no log {path}")
    if file.stat().st_size > LARGEST_LOG:
        raise QuestionError(f"{path} is larger than {LARGEST_LOG:,} bytes; cut it to the part that matters")
    with file.open(encoding="utf-8", errors="replace") as lines:
        return judge_log(read_log(lines), expected)


def expected_of(answer: Estimate) -> Expected:
    """What the log of a run of this estimate should show."""
    if answer.time is None:
        raise LayoutError("a layout that cannot start has no expected log")
    row = answer.layout
    names = ("tp", "pp", "cp", "ep", "dp")
    return Expected(
        degrees={name: int(getattr(row, name)) for name in names},
        world=answer.question.cluster.world,
        step_seconds=(answer.time.step_seconds, answer.time.high_seconds),
    )
