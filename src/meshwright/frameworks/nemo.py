"""NeMo: the YAML of NeMo 1 (`trainer.*`, `model.*`) and the Python recipes of NeMo 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from meshwright.frameworks import python_config
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
from meshwright.frameworks.reading import Reading, Source, Value
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
                options={**strategy, **reading.options},
                unknowns=(*reading.unknowns, *unknowns),
                launcher=from_counts(nodes, per_node),
                model=Value(model, config.recipe.source) if config.recipe and model else None,
                recipe=str(config.recipe.value) if config.recipe else None,
                label=config.name,
                notes=config.notes,
                complete=bool(reading.options),
            )
        )
    return [reading for reading in readings if set(reading.options) - ALONE or reading.notes]


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
    flat = write_paths("nemo", plan.everything)
    flat = {"trainer.devices": plan.gpus_per_node, "trainer.num_nodes": plan.nodes, **flat}
    if flat.pop("model.use_distributed_optimizer", None):
        flat["model.optim.name"] = "distributed_fused_adam"
    written = {"config.yaml": yaml_text(nested(flat), plan.heading)}
    return written | ({"recipe.py": _recipe(plan)} if plan.model else {})


def _recipe(plan: Plan) -> str:
    """A function that configures NeMo 2's own recipe of the model, where one is known."""
    lines = [f"# {line}" for line in plan.heading.splitlines()]
    lines += ["from nemo.collections import llm", "", "", "def configure():"]
    head = f"num_nodes={plan.nodes}, num_gpus_per_node={plan.gpus_per_node}"
    lines.append(f"    recipe = llm.{_module(plan)}.pretrain_recipe({head})")
    for name, value in plan.options.items():
        group = next((group for group, names in NEMO2.items() if name in names), None)
        if group is not None:
            lines.append(f"    recipe.{group}.{name} = {value!r}")
    return "\n".join([*lines, "    return recipe", ""])


def _module(plan: Plan) -> str:
    """`meta-llama/Meta-Llama-3-70B` -> llama3_70b, as NeMo names its recipes."""
    name = plan.model.rsplit("/", 1)[-1].lower().removeprefix("meta-").replace("llama-3", "llama3")
    return "".join(char if char.isalnum() else "_" for char in name)


NEMO2 = {
    "trainer.strategy": (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
        "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
        "sequence_parallel", "pipeline_model_parallel_layout",
    ),
    "data": ("micro_batch_size", "global_batch_size", "seq_length"),
    "trainer.strategy.ddp": ("overlap_grad_reduce", "overlap_param_gather"),
    "optim.config": ("use_distributed_optimizer",),
    "model.config": (
        "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
        "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "cp_comm_type", "tp_comm_overlap",
        "overlap_moe_expert_parallel_comm", "moe_expert_capacity_factor", "cuda_graph_impl",
        "cuda_graph_modules",
    ),
}  # fmt: skip
"""Which of NeMo 2's objects holds an option (nemo/lightning/pytorch/strategies/megatron_strategy.py)."""
