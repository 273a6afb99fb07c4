"""Configurations in Python: values as objects take them, and a function that applies a plan to a recipe."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.frameworks.python_values import DTYPES
from meshwright.frameworks.reading import Plain

TYPES: Mapping[str, str] = {word: name for name, word in DTYPES.items()}


def shown(path: str, value: Plain) -> str:
    """A value in Python: an object's `_dtype` is torch's, for only command lines turn words into one."""
    if path.endswith(("exp_avg_dtype", "exp_avg_sq_dtype")) and isinstance(value, str):
        return TYPES.get(value, repr(value))
    return repr(value)


def write(flat: Mapping[str, Plain], heading: str, recipe_name: str) -> str:
    """A Python function that applies the options to a Bridge recipe."""
    lines = [f"# {line}" for line in heading.splitlines()]
    typed = any(shown(path, value).startswith("torch.") for path, value in flat.items())
    lines += ["import torch"] if typed else []
    lines += ["", "", "def apply(cfg):", f'    """Set the plan on a configuration of {recipe_name}."""']
    lines += [f"    cfg.{path} = {shown(path, value)}" for path, value in flat.items()]
    return "\n".join([*lines, "    return cfg", ""])
