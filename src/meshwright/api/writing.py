"""`write` and `convert`: a plan, or somebody's config, in a framework's language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from meshwright.api.comparing import one_run
from meshwright.errors import QuestionError
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.write import convert as convert_reading
from meshwright.frameworks.write import write as write_plan
from meshwright.frameworks.write import writers
from meshwright.layout.layout import DEGREES, Layout
from meshwright.planner.answer import Estimate


def framework_names() -> tuple[str, ...]:
    """Names of the frameworks that a plan can be written for."""
    return writers()


def write(answer: Estimate, framework: str) -> dict[str, str]:
    """{file name: text} of an estimate (or of a plan's best) for a framework."""
    return write_plan(framework, plan_of_answer(answer))


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
    return convert_reading(one_run(file, environment, arguments), framework)


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
