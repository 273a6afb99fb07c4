"""Recipes of Megatron Bridge by name: what a recipe sets where a script does not override it."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from meshwright.frameworks.precision import switches
from meshwright.frameworks.reading import Plain, Reading, Source, Value
from meshwright.frameworks.spelling import plain_value

FACTS = ("recipe", "alias", "model", "hugging_face_id", "gpus", "gpu", "precision", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeOptions:
    """One shipped recipe: its model and the options that it sets, in Megatron's names."""

    recipe: str
    model: str
    hugging_face_id: str
    gpus: int
    gpu: str
    options: Mapping[str, Plain]
    source: str

    def values(self) -> dict[str, Value]:
        """The options with the recipe as their source."""
        source = Source(kind="recipe", name=self.recipe)
        return {name: Value(value, source) for name, value in self.options.items()}


@cache
def _all() -> dict[str, RecipeOptions]:
    text = resources.files("meshwright.frameworks").joinpath("data", "recipe_options.csv").read_text("utf-8")
    found: dict[str, RecipeOptions] = {}
    for row in csv.DictReader(text.splitlines()):
        recipe = _recipe(row)
        for name in (row["recipe"], *row["alias"].replace(";", " ").split()):
            found.setdefault(name, recipe)
    return found


def _recipe(row: Mapping[str, str]) -> RecipeOptions:
    options = {k: plain_value(v) for k, v in row.items() if k not in FACTS and v != ""}
    if modules := options.get("recompute_modules"):
        options["recompute_modules"] = tuple(re.split(r"[\s,;+|\[\]']+", str(modules).strip("[]' ")))
    options |= switches(row["precision"])
    return RecipeOptions(
        recipe=row["recipe"],
        model=row["model"],
        hugging_face_id=row["hugging_face_id"],
        gpus=int(row["gpus"] or 0),
        gpu=row["gpu"],
        options=options,
        source=row["source"],
    )


def recipe(name: str) -> RecipeOptions | None:
    """The recipe that a name (with or without `_config`, or a generic alias) stands for."""
    recipes = _all()
    for candidate in (name, f"{name}_config", f"{name}_pretrain_config", f"{name}_pretrain"):
        if candidate in recipes:
            return recipes[candidate]
    return None


def model_of_recipe(name: str) -> str | None:
    """Model of a recipe name that is not in the table: what stands before `_pretrain`, `_sft`, ..."""
    found = re.match(r"(.+?)_(pretrain|finetune|sft|peft|lora|recipe|config)", name)
    return found.group(1) if found else None


def with_recipe(reading: Reading, named: Value | None) -> Reading:
    """Fill in what the recipe sets and nothing overrides."""
    if named is None or not named.value:
        return reading
    name = str(named.value)
    found = recipe(name)
    if found is None:
        model = model_of_recipe(name)
        return replace(reading, recipe=name, model=Value(model, named.source) if model else reading.model)
    values = found.values()
    changed = {"num_layers", "hidden_size", "num_moe_experts"} & set(reading.options)
    if changed and "virtual_pipeline_model_parallel_size" not in reading.options:
        values.pop("pipeline_model_parallel_layout", None)
    filled = reading.with_options(values)
    model = found.hugging_face_id if "/" in found.hugging_face_id else found.model
    return replace(filled, recipe=name, model=Value(model, named.source))


def recipe_of_model(model: str, gpu: str = "", task: str = "pretrain") -> str | None:
    """A recipe of a model (its name or Hugging Face id) for a task: by its
    generic name, else for this GPU."""
    if not model:
        return None
    wanted, kind = model.lower(), {"lora": "_peft_"}.get(task, f"_{task}_")
    names = [
        (name == found.recipe, found.gpu.upper() not in gpu.upper(), len(name), name)
        for name, found in _all().items()
        if wanted in (found.hugging_face_id.lower(), found.model.lower()) and kind in found.recipe
    ]
    return min(names)[3] if names else None
