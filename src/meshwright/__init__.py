"""Meshwright: plans, checks and proves the parallel layout of large-model training on Megatron Core.

    >>> import meshwright as mw
    >>> answer = mw.plan("llama3-70b", "64xH100")            # doctest: +SKIP
    >>> answer.best.layout.tp                                # doctest: +SKIP

Names are imported when they are first used, so that `import meshwright` is quick.
"""

from __future__ import annotations

from typing import Any

from meshwright._version import __version__

_WHERE = {
    "Estimate": "meshwright.planner.answer",
    "LayoutError": "meshwright.errors",
    "MeshwrightError": "meshwright.errors",
    "Options": "meshwright.api.asking",
    "Plans": "meshwright.planner.answer",
    "QuestionError": "meshwright.errors",
    "advise": "meshwright.api.guide",
    "compare": "meshwright.api.comparing",
    "rescale": "meshwright.api.comparing",
    "resume": "meshwright.api.comparing",
    "convert": "meshwright.api.writing",
    "framework_names": "meshwright.api.writing",
    "write": "meshwright.api.writing",
    "check": "meshwright.api.checking",
    "estimate": "meshwright.api.planning",
    "estimate_again": "meshwright.api.planning",
    "explain": "meshwright.api.rules",
    "rules": "meshwright.api.rules",
    "fit": "meshwright.api.planning",
    "gpus": "meshwright.api.catalogs",
    "models": "meshwright.api.catalogs",
    "ranks": "meshwright.api.ranks",
    "judge": "meshwright.api.verifying",
    "plan": "meshwright.api.planning",
    "sweep": "meshwright.api.sweeping",
    "verify": "meshwright.api.verifying",
    "why_not": "meshwright.api.sweeping",
}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'meshwright' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
