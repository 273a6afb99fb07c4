"""Writing a plan in a framework's language, and converting what somebody has."""

from __future__ import annotations

from dataclasses import replace

from meshwright.errors import QuestionError, did_you_mean
from meshwright.frameworks.adapters import ADAPTERS, adapter
from meshwright.frameworks.environment import advised
from meshwright.frameworks.plan import Plan, plan_from
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.tasks import require_task
from meshwright.frameworks.written import Written, written

TITLES = {"slurm": "Megatron-LM", "kubernetes": "Megatron-LM"}
"""Whose words stand in scripts and manifests."""


def writers() -> tuple[str, ...]:
    """Names of the frameworks that a plan can be written for."""
    return tuple(one.name for one in ADAPTERS if one.files is not None)


def write(framework: str, plan: Plan) -> dict[str, str]:
    """{file name: text} of a plan for a framework; QuestionError for one that is not known.

    Environment variables that this GPU, dispatcher and overlap want are exported where the framework
    leaves that to the script.
    """
    return dict(compose(framework, plan).files)


def compose(framework: str, plan: Plan) -> Written:
    """The same with what the framework has no word for; each file says it in a comment, too."""
    chosen = adapter(framework)
    if chosen is None or chosen.files is None:
        near = did_you_mean(framework, writers()) or "."
        raise QuestionError(f"unknown framework {framework!r}{near} Known: {', '.join(writers())}")
    require_task(chosen.name, TITLES.get(chosen.name, chosen.title), plan)
    environment = {
        **{name: value for name, (value, _) in advised(framework, plan).items()},
        **plan.environment,
    }
    plan = replace(plan, environment=environment)
    return written(chosen.name, TITLES.get(chosen.name, chosen.title), plan, chosen.files(plan))


def convert(reading: Reading, framework: str) -> dict[str, str]:
    """What a reading says, in another framework's language."""
    return write(framework, plan_from(reading))
