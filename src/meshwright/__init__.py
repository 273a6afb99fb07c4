"""Meshwright: plans, checks and proves the parallel layout of large-model training on Megatron Core.

    >>> import meshwright as mw
    >>> answer = mw.plan("llama3-70b", "64xH100")            # doctest: +SKIP
    >>> answer.best.layout.tp                                # doctest: +SKIP

Names are imported when they are first used, so that `import meshwright` is quick.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from meshwright._version import __version__

_WHERE = {
    "advise": "meshwright.api.guide",
    "check": "meshwright.api.checking",
    "compare": "meshwright.api.comparing",
    "convert": "meshwright.api.writing",
    "converted": "meshwright.api.writing",
    "diagnose": "meshwright.api.memory",
    "Estimate": "meshwright.planner.answer",
    "estimate": "meshwright.api.planning",
    "estimate_again": "meshwright.api.planning",
    "explain": "meshwright.api.rules",
    "fit": "meshwright.api.fitting",
    "framework_names": "meshwright.api.writing",
    "gpus": "meshwright.api.catalogs",
    "html_report": "meshwright.api.reporting",
    "judge": "meshwright.api.verifying",
    "LayoutError": "meshwright.errors",
    "MeshwrightError": "meshwright.errors",
    "models": "meshwright.api.catalogs",
    "most_that_fits": "meshwright.api.fitting",
    "Options": "meshwright.api.asking",
    "pictures": "meshwright.api.picturing",
    "plan": "meshwright.api.planning",
    "Plans": "meshwright.planner.answer",
    "QuestionError": "meshwright.errors",
    "ranking": "meshwright.api.picturing",
    "ranks": "meshwright.api.ranks",
    "rescale": "meshwright.api.comparing",
    "resume": "meshwright.api.comparing",
    "rules": "meshwright.api.rules",
    "scaling": "meshwright.api.picturing",
    "sizes_around": "meshwright.api.reporting",
    "sweep": "meshwright.api.sweeping",
    "timeline": "meshwright.api.picturing",
    "trace": "meshwright.api.picturing",
    "verify": "meshwright.api.verifying",
    "why_not": "meshwright.api.sweeping",
    "with_budget": "meshwright.api.explaining",
    "with_explanation": "meshwright.api.explaining",
    "write": "meshwright.api.writing",
    "written": "meshwright.api.writing",
}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'meshwright' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package: a public name stays what it is when a room of that name (`verify`) is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
