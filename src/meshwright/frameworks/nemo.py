"""NeMo: the YAML of NeMo 1 (`trainer.*`, `model.*`) and the Python recipes of NeMo 2."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.frameworks import python_config, python_values, python_writing
from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import Flat, yaml_documents
from meshwright.frameworks.dotted import (
    is_option,
    megatron_name,
    nested,
    overrides,
    sort_options,
    write_paths,
    yaml_text,
)
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.precision import precision_of, switches
from meshwright.frameworks.reading import Plain, Reading, Source, Value
from meshwright.frameworks.recipes import model_of_recipe
from meshwright.frameworks.world import from_counts, launcher_of

RENAMED = {"num_nodes": "nodes", "num_gpus_per_node": "gpus_per_node"}


def matches_command(command: Command) -> bool:
    """NeMo 1's training scripts, started with Hydra words."""
    return "megatron_gpt" in command.program and any("trainer." in word for word in command.words)


def matches_document(flat: Flat) -> bool:
    return any(name.startswith("trainer.") for name in flat) and any(
        name.startswith("model.") and name.endswith("_parallel_size") for name in flat
    )


def read_command(command: Command) -> Reading:
    flat, open_, rest = overrides(command.arguments, command.unknowns)
    for word in rest:
        _, _, path = word.partition("=")
        if path.plain.endswith((".yaml", ".yml")) and (found := command.read_file(path.plain)) is not None:
            flat = {**yaml_documents(found[1].plain, found[0])[0], **flat}
    environment = {name: text.plain for name, text in command.environment.items() if text.is_known}
    reading = read_document(flat, environment)
    launcher, _ = launcher_of(command)
    if reading.launcher.world is None:
        reading = replace(reading, launcher=launcher)
    return replace(reading, unknowns=(*reading.unknowns, *open_), label=command.label)


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    done = sort_options("nemo", flat, environment)
    options = dict(done.options)
    optimizer = flat.get("model.optim.name")
    if optimizer is not None and "distributed" in str(optimizer.value):
        options.setdefault("use_distributed_optimizer", Value(True, optimizer.source))
    options |= _task_of_document(flat)
    _read_activation(options)
    _switch_off_alone(options)
    return Reading(
        framework="nemo",
        options=options,
        other=done.other,
        launcher=done.launcher,
        unknowns=tuple(done.unknowns),
    )


def _switch_off_alone(options: dict[str, Value]) -> None:
    """NeMo drops options that are given as null: they are unset."""
    for name in [name for name, value in options.items() if value.value is None]:
        del options[name]


def matches_python(text: str) -> bool:
    return "nemo_run" in text or "nemo.collections" in text or "nemo.lightning" in text


def read_python(text: str, file: str, environment: Mapping[str, str] | None = None) -> list[Reading]:
    """NeMo 2: recipes and `recipe.trainer.strategy.x = N`."""
    readings: list[Reading] = []
    configs = python_config.read(text, file, environment)
    elsewhere = [_machines(config) for config in configs]
    formats = {**_formats(text), **_task_of_python(text)}
    for config in configs:
        reading = read_document(config.flat, {})
        nodes, per_node = _machines(config)
        nodes, per_node = (
            nodes or _only(nodes for nodes, _ in elsewhere),
            per_node or _only(count for _, count in elsewhere),
        )
        strategy = {name: value for name, value in config.plain.items() if is_option(name)}
        if config.recipe is not None:
            source = Source(kind="recipe", name=str(config.recipe.value))
            strategy.setdefault("use_distributed_optimizer", Value(True, source))
        unknowns = (
            replace(u, option=megatron_name("nemo", u.option) or u.option) for u in config.open.values()
        )
        model = model_of_recipe(f"{config.recipe.value}_recipe") if config.recipe else None
        readings.append(
            replace(
                reading,
                options={**formats, **strategy, **reading.options},
                unknowns=(*reading.unknowns, *unknowns),
                launcher=from_counts(nodes, per_node),
                model=Value(model, config.recipe.source) if config.recipe and model else None,
                recipe=str(config.recipe.value) if config.recipe else None,
                label=config.name,
                notes=config.notes,
                complete=bool(reading.options),
            )
        )
    alone = ALONE | set(formats)
    return [reading for reading in readings if set(reading.options) - alone or reading.notes]


PLUGINS = re.compile(r"^[ \t]*(?:\w+\.)?trainer\.plugins *= *(?:\w+\.)*(\w+)\(\)", re.MULTILINE)


def _formats(text: str) -> dict[str, Value]:
    """Number formats by the recipe of `trainer.plugins`, where a file names one."""
    words = {name: word for word, name in nemo2()["precisions"].items()}
    named = {words[found] for found in PLUGINS.findall(text) if found in words}
    if len(named) != 1:
        return {}
    source = Source(kind="recipe", name="trainer.plugins")
    return {name: Value(value, source) for name, value in switches(*named).items()}


SCHEME, RANK = "model.peft.peft_scheme", "model.peft.lora_tuning.adapter_dim"
"""What NeMo 1 trains (megatron_gpt_finetuning.py): adapters, or whole weights for `none`."""
ADAPTER_RANK = re.compile(r"\.peft\.dim *= *(\d{1,6})\b")


def _task_of_document(flat: Flat) -> dict[str, Value]:
    scheme, rank = flat.get(SCHEME), flat.get(RANK)
    if scheme is None:
        return {}
    lora = str(scheme.value).lower() == "lora"
    ranked = {"lora_rank": rank} if lora and rank is not None else {}
    return {"task": Value("lora" if lora else "sft", scheme.source), **ranked}


def _task_of_python(text: str) -> dict[str, Value]:
    """The task of the only kind of finetune_recipe that a file calls; adapters are its default."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = {id(call): (python_values.dotted(call.func) or "").split(".")[-1] for call in calls}
    found = {_tuned(call) for call in calls if named[id(call)] == "finetune_recipe"}
    if len(found) != 1 or None in found or "pretrain_recipe" in named.values():
        return {}
    task, source = str(found.pop()), Source(kind="recipe", name="finetune_recipe")
    rank = ADAPTER_RANK.search(text) if task == "lora" else None
    return {"task": Value(task, source)} | ({"lora_rank": Value(int(rank[1]), source)} if rank else {})


def _tuned(call: ast.Call) -> str | None:
    """What a finetune_recipe trains, None where the file leaves it open."""
    scheme = next((keyword.value for keyword in call.keywords if keyword.arg == "peft_scheme"), None)
    if scheme is None:
        return None if any(keyword.arg is None for keyword in call.keywords) else "lora"
    if not isinstance(scheme, ast.Constant):
        return None
    return "sft" if str(scheme.value).lower() == "none" else "lora"


ALONE = frozenset({"use_distributed_optimizer"})
"""What a recipe sets that nobody wrote anything about."""


def _machines(config: python_config.PythonConfig) -> tuple[Value | None, Value | None]:
    """(nodes, GPUs a node) that one function names."""
    counts = {RENAMED.get(name, name): value for name, value in config.plain.items()}
    nodes = _first(counts.get("nodes"), config.flat.get("trainer.num_nodes"))
    return nodes, _first(
        counts.get("gpus_per_node"),
        config.flat.get("trainer.devices"),
        counts.get("devices"),
        counts.get("ntasks_per_node"),
    )


def _only(values: Iterable[Value | None]) -> Value | None:
    """The one number that the functions of a file name, None where there are none or several."""
    known = [value for value in values if value is not None]
    return known[0] if len({value.value for value in known}) == 1 else None


def _first(*values: Value | None) -> Value | None:
    return next((value for value in values if value is not None and isinstance(value.value, int)), None)


def files(plan: Plan) -> dict[str, str]:
    """`config.yaml` of NeMo 1 and, for a model with a name, `recipe.py` of NeMo 2."""
    options = dict(plan.everything)
    untied = options.pop("untie_embeddings_and_output_weights", None)
    flat = write_paths("nemo", options)
    if untied is not None or plan.architecture:
        flat["model.share_embeddings_and_output_weights"] = untied is not True
    flat |= {"model.activation": name} if (name := _activation(options)) else {}
    flat |= {"model.openai_gelu": True} if name == "geglu" else {}
    flat = {"trainer.devices": plan.gpus_per_node, "trainer.num_nodes": plan.nodes, **flat}
    if options.get("bf16") is True:
        flat |= {"trainer.precision": "bf16", "model.megatron_amp_O2": True}
    flat["model.mcore_gpt"] = True
    if plan.task != "pretrain":
        flat[SCHEME] = "lora" if plan.task == "lora" else "none"
    if plan.task == "lora":
        flat[RANK] = plan.lora_rank
    if flat.pop("model.use_distributed_optimizer", None):
        flat["model.optim.name"] = "distributed_fused_adam"
    written = {"config.yaml": yaml_text(nested(flat), plan.heading)}
    return written | ({"recipe.py": _recipe(plan)} if plan.model else {})


ACTIVATIONS: Mapping[str, Mapping[str, Plain]] = {
    "swiglu": {"swiglu": True},
    "fast-swiglu": {"swiglu": True},
    "squared-relu": {"squared_relu": True},
    "geglu": {"gated_linear_unit": True},
    "fast-geglu": {"gated_linear_unit": True},
    "reglu": {"gated_linear_unit": True},
    "fast-reglu": {"gated_linear_unit": True},
}
"""NeMo 1's activations (nlp/parts/utils_funcs.py, activation_to_func) in Megatron's words."""
TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")
"""Hugging Face's names of the approximate GELU."""


def _activation(options: Mapping[str, Plain]) -> str | None:
    """NeMo 1's name of the activation; None where it has none."""
    named = options.get("activation_func")
    if options.get("squared_relu") is True:
        return "squared-relu"
    if options.get("swiglu") is True:
        return "swiglu" if named is None else ("geglu" if named in TANH else None)
    return "gelu" if options.get("hidden_size") and not options.get("quick_geglu") else None


def _read_activation(options: dict[str, Value]) -> None:
    named, tanh = options.get("activation"), options.get("openai_gelu")
    if named is None:
        return
    for name, value in ACTIVATIONS.get(str(named.value), {}).items():
        options.setdefault(name, Value(value, named.source))
    if str(named.value).endswith("geglu") and tanh is not None and tanh.value is True:
        options.setdefault("activation_func", Value(TANH[0], tanh.source))


@cache
def nemo2() -> dict[str, Any]:
    """Objects that hold NeMo 2's options, and its recipes (`nemo2.json`)."""
    data: dict[str, Any] = load_json("meshwright.frameworks", "nemo2.json")
    return data


def _recipe(plan: Plan) -> str:
    """A function that configures NeMo 2's own recipe of the model, where one is known."""
    lines = [f"# {line}" for line in plan.heading.splitlines()]
    module, known = _module(plan)
    if not known:
        lines.append(f"# NeMo {VERSION} has no recipe of this model: llm.{module} is to be written")
    if "exp_avg_dtype" in plan.options:
        lines.append("import torch")
    lines.append("from nemo.collections import llm")
    plugin = nemo2()["precisions"].get(precision_of(plan.options))
    if plugin is not None:
        lines.append(f"from nemo.collections.llm.recipes.precision.mixed_precision import {plugin}")
    lines += ["", "", "def configure():"]
    head = f"num_nodes={plan.nodes}, num_gpus_per_node={plan.gpus_per_node}"
    if plan.task == "pretrain":
        lines.append(f"    recipe = llm.{module}.pretrain_recipe({head})")
    else:
        scheme = "lora" if plan.task == "lora" else "none"
        lines.append(f'    recipe = llm.{module}.finetune_recipe({head}, peft_scheme="{scheme}")')
    if plan.task == "lora":
        lines.append(f"    recipe.peft.dim = {plan.lora_rank}")
    table = nemo2()
    for name, value in {**UNSET, **table["unset"].get(module, {}), **plan.options}.items():
        name = table["renamed"].get(name, name)
        group = next((group for group, names in table["groups"].items() if name in names), None)
        if group is not None:
            shown = repr([*value]) if isinstance(value, tuple) else python_writing.shown(name, value)
            lines.append(f"    recipe.{group}.{name} = {shown}")
    lines += [f"    recipe.trainer.plugins = {plugin}()"] if plugin is not None else []
    return "\n".join([*lines, "    return recipe", ""])


VERSION = "2.5"
UNSET: Mapping[str, Plain] = {"virtual_pipeline_model_parallel_size": None, "sequence_parallel": False}
"""What recipes set and a plan leaves out where it does not want it."""


def _module(plan: Plan) -> tuple[str, bool]:
    """NeMo's recipe of the model, and whether there is one: `meta-llama/Meta-Llama-3-70B` -> llama3_70b."""
    from meshwright.model import catalog

    recipes: dict[str, str] = nemo2()["recipes"]
    try:
        found = recipes.get(catalog.resolve(plan.model))
    except QuestionError:
        found = None
    if found is not None:
        return found, True
    name = plan.model.rsplit("/", 1)[-1].lower()
    return "".join(char if char.isalnum() else "_" for char in name), False
