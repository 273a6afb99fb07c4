"""Primus: YAML whose `modules.pre_trainer.overrides` carry Megatron-LM's names, with `${VAR:default}`."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.frameworks.documents import Flat
from meshwright.frameworks.dotted import nested, sort_options, write_paths, yaml_text
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Reading


def matches_document(flat: Flat) -> bool:
    return any(name.startswith("modules.pre_trainer.") for name in flat)


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """The world is given to the launcher, not to this file."""
    done = sort_options("primus", flat, environment)
    model = done.other.get("modules.pre_trainer.model")
    named = model if model is not None and not str(model.value).startswith("language_model") else None
    return Reading(
        framework="primus",
        options={name: value for name, value in done.options.items() if value.value is not None},
        other=done.other,
        unknowns=tuple(done.unknowns),
        model=named,
        complete=False,
    )


def files(plan: Plan) -> dict[str, str]:
    """`exp.yaml`."""
    head = {
        "exp_name": plan.name,
        "modules.pre_trainer.framework": "megatron",
        "modules.pre_trainer.config": "pre_trainer.yaml",
        "modules.pre_trainer.model": "language_model.yaml",
    }
    return {"exp.yaml": yaml_text(nested({**head, **write_paths("primus", plan.everything)}), plan.heading)}
