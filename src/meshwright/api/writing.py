"""`write` and `convert`: a plan, or somebody's config, in a framework's language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from meshwright.api.comparing import one_run, rescale
from meshwright.api.expressing import expressed
from meshwright.errors import QuestionError
from meshwright.frameworks.check import check_reading
from meshwright.frameworks.plan import Plan, plan_from, plan_of
from meshwright.frameworks.rescale import Batch
from meshwright.frameworks.tasks import task_warning
from meshwright.frameworks.write import compose, writers
from meshwright.frameworks.written import Written
from meshwright.layout.layout import DEGREES, Layout
from meshwright.planner.answer import Estimate

GIB = 1024**3


def framework_names() -> tuple[str, ...]:
    """Names of the frameworks that a plan can be written for."""
    return writers()


def write(answer: Estimate, framework: str) -> dict[str, str]:
    """{file name: text} of an estimate (or of a plan's best) for a framework."""
    return dict(written(answer, framework).files)


def written(answer: Estimate, framework: str, *, force: bool = False) -> Written:
    """The same with what the framework has no word for, and a warning where the plan does not fit.

    LayoutError where that is a degree, FSDP, recompute, ...: it would be another plan (`force` writes it).
    """
    plan = plan_of_answer(answer)
    done = expressed(compose(framework, plan), plan, force=force)
    more = task_warning(framework, plan)
    return replace(done, warnings=(*_fits(answer), *((more,) if more else ()), *done.warnings))


def _fits(answer: Estimate) -> Iterator[str]:
    memory = answer.memory
    if memory is None or memory.verdict == "fits":
        return
    need, usable = memory.peak_bytes / GIB, memory.usable_bytes / GIB
    says = "does not fit" if memory.verdict == "does-not-fit" else "is tight"
    yield (
        f"this plan {says}: about {need:.0f} GiB on the fullest GPU, "
        f"{answer.question.cluster.gpu.name} offers {usable:.0f}"
    )


def plan_of_answer(answer: Estimate) -> Plan:
    """An estimate as what is written."""
    question, row = answer.question, answer.layout
    if not answer.valid:
        raise QuestionError("a layout that cannot start is not written; see its findings")
    uneven = any(a.option == "--pipeline-layout" for a in answer.assumptions)
    return plan_of(
        question.model,
        question.cluster,
        question.job,
        Layout(**{name: getattr(row, name) for name in DEGREES}, sp=row.sp),
        answer.execution,
        pipeline_layout=answer.pipeline_layout if uneven else None,
        reasons=answer.binding,
    )


def convert(
    file: str | Path,
    framework: str,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
) -> dict[str, str]:
    """{file name: text}: what a launch script or config says, in another framework's language."""
    return dict(converted(file, framework, environment=environment, arguments=arguments).files)


def converted(
    file: str | Path,
    framework: str,
    *,
    gpus: str | int | None = None,
    batch: Batch = "hold",
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
    force: bool = False,
) -> Written:
    """The same with what is left out, and a warning where what was read cannot run; `gpus` rescales first.

    LayoutError as in `written`.
    """
    if gpus is not None:
        answer = rescale(file, gpus, batch=batch, environment=environment)
        plan = plan_from(answer.after.reading)
        return expressed(compose(framework, plan), plan, force=force)
    reading = one_run(file, environment, arguments)
    result = check_reading(reading)
    wrong = [finding.message for finding in result.findings if finding.severity == "error"]
    plan = plan_from(reading)
    done = expressed(compose(framework, plan), plan, force=force)
    said = (f"what was read cannot run: {message}" for message in wrong)
    return replace(done, warnings=(*said, *done.warnings))


def save(files: Mapping[str, str], folder: Path) -> Iterable[Path]:
    """Write the files into a folder, which is made; files that exist are not overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise QuestionError(f"{folder / taken[0]} exists already; name another folder with --out")
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        yield path
