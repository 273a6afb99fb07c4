"""Megatron Bridge: `run_recipe.py --recipe NAME a.b=c`, YAML of overrides, Python recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from meshwright.errors import LayoutError
from meshwright.facts import load_json
from meshwright.frameworks import bridge_performance, python_config, python_writing, scripts
from meshwright.frameworks.commands import Command, value_of
from meshwright.frameworks.documents import Flat, yaml_documents
from meshwright.frameworks.dotted import nested, overrides, sort_options, write_paths, yaml_text
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.precision import mixed_precision, of_mixed_precision
from meshwright.frameworks.reading import Plain, Reading, Unknown, Value
from meshwright.frameworks.recipes import recipe, recipe_of_model, with_recipe
from meshwright.frameworks.spelling import spelled
from meshwright.frameworks.world import launcher_of

GROUPS = (
    "model",
    "train",
    "dataset",
    "optimizer",
    "scheduler",
    "checkpoint",
    "ddp",
    "logger",
    "comm_overlap",
)
CONFIG_FLAGS = ("--config-file", "--config_file", "--config", "--yaml")
RECIPE_FLAGS = ("--recipe", "--recipe-name", "--recipe_name", "--model-recipe-name", "-r")


def matches_command(command: Command) -> bool:
    """run_recipe.py, or any program with --recipe or Bridge's dotted overrides."""
    words = command.words
    if bridge_performance.matches_command(command):
        return True
    if "run_recipe" in command.program or "megatron.bridge" in command.program:
        return True
    dotted = sum(word.split(".")[0].lstrip("+") in GROUPS[:7] and "=" in word for word in words)
    return any(word in RECIPE_FLAGS for word in words) or dotted >= 2


def matches_document(flat: Flat) -> bool:
    """`model` with parallel sizes beside `train`, and nothing of NeMo's trainer."""
    sizes = [name for name in flat if name.startswith("model.") and name.endswith("_parallel_size")]
    groups = {name.split(".")[0] for name in flat}
    return (
        (bool(sizes) or "model.num_layers" in flat)
        and "trainer" not in groups
        and bool(groups & set(GROUPS[1:]))
    )


def read_command(command: Command) -> Reading:
    if bridge_performance.matches_command(command):
        return bridge_performance.read_command(command)
    flat, open_, rest = overrides(command.arguments, command.unknowns)
    named: Value | None = None
    for at, word in enumerate(rest):
        flag, equals, value = word.partition("=")
        following = value if equals else (rest[at + 1] if at + 1 < len(rest) else None)
        if following is None:
            continue
        if flag.plain in RECIPE_FLAGS:
            read = value_of("recipe", following, command.unknowns, "str")
            named = read if isinstance(read, Value) else named
        elif flag.plain in CONFIG_FLAGS and (found := command.read_file(following.plain)) is not None:
            for document in yaml_documents(found[1].plain, found[0])[:1]:
                flat = {**document, **flat}
    reading = read_document(flat, _plain_environment(command))
    launcher, unsettled = launcher_of(command)
    unknowns = [Unknown(option=_name(u), needs=u.needs, how=u.how, line=u.line) for u in open_]
    reading = replace(
        reading,
        launcher=launcher,
        unknowns=(*reading.unknowns, *unknowns, *unsettled),
        label=command.label,
        complete=True,
    )
    return with_recipe(reading, named)


def _name(unknown: Unknown) -> str:
    from meshwright.frameworks.dotted import megatron_name

    return megatron_name("megatron-bridge", unknown.option) or unknown.option


def _plain_environment(command: Command) -> dict[str, str]:
    return {name: text.plain for name, text in command.environment.items() if text.is_known}


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """A YAML of overrides, or the whole configuration a run has saved."""
    done = sort_options("megatron-bridge", flat, environment)
    options = dict(done.options)
    if (rank := flat.get(RANK)) is not None:
        options.setdefault("lora_rank", rank)
    mixed = flat.get("mixed_precision")
    if mixed is not None and isinstance(mixed.value, str):
        for name, value in (of_mixed_precision(mixed.value) or {}).items():
            options.setdefault(name, Value(value, mixed.source))
    return Reading(
        framework="megatron-bridge",
        options=options,
        other=done.other,
        unknowns=tuple(done.unknowns),
        complete=False,
    )


def read_python(text: str, file: str, environment: Mapping[str, str] | None = None) -> list[Reading]:
    """Python recipes: `cfg.model.x = N`, `GPTModelProvider(...)`, `initialize_model_parallel(...)`."""
    readings: list[Reading] = []
    for config in python_config.read(text, file, environment):
        reading = read_document(config.flat, {})
        plain = {name: value for name, value in config.plain.items() if name not in python_config.MACHINES}
        reading = replace(
            reading,
            label=config.name,
            notes=config.notes,
            options={**plain, **reading.options},
            unknowns=(*reading.unknowns, *(replace(u, option=_name(u)) for u in config.open.values())),
            model=config.model,
        )
        if reading.options or reading.unknowns or reading.notes:
            readings.append(with_recipe(reading, config.recipe))
    return readings


def files(plan: Plan) -> dict[str, str]:
    """`train.sh` with overrides, `overrides.yaml` and `recipe.py`: the same plan three times."""
    known = plan.recipe or recipe_of_model(plan.model, plan.gpu, plan.task)
    _require_recipe(known, plan)
    latent = plan.architecture.get("multi_latent_attention") is True
    name = known or (VANILLA_LATENT if latent else VANILLA)
    options = {**_undone(name, plan), **(plan.options if known else plan.everything)}
    if not known and latent:
        options = {"num_moe_experts": None, "mtp_num_layers": None, **options}
    said = _said(options)
    flat = {_place(name, path): value for path, value in write_paths("megatron-bridge", said).items()}
    flat["mixed_precision"] = mixed_precision(plan.options)
    if "seq_length" in plan.options:
        flat["dataset.seq_length"] = plan.options["seq_length"]
    if plan.task == "lora":
        flat[RANK] = plan.lora_rank
    if plan.options.get("cuda_graph_impl") == "full_iteration":
        flat["rerun_state_machine.check_for_nan_in_loss"] = False  # config.py, ConfigContainer.validate
    if plan.task != "pretrain":
        flat["checkpoint.pretrained_checkpoint"] = WEIGHTS
    head = f"{scripts.torchrun(plan)} scripts/training/run_recipe.py"
    lines = [["--recipe", name], *([f"{path}={spelled(value)}"] for path, value in flat.items())]
    return {
        "train.sh": scripts.script(plan, head, lines),
        "overrides.yaml": yaml_text(nested(flat), plan.heading),
        "recipe.py": python_writing.write(flat, plan.heading, name),
    }


RANK = "peft.dim"
"""Rank of the adapters in Bridge's configuration (peft/lora.py)."""
WEIGHTS = "PRETRAINED_CHECKPOINT"
"""A word to be replaced by the folder of the weights that are tuned (recipes/common.py)."""


def _require_recipe(known: str | None, plan: Plan) -> None:
    """LayoutError where weights are tuned and Bridge ships no such recipe of the model."""
    if known is None and plan.task != "pretrain":
        able = [task for task in ("sft", "lora") if recipe_of_model(plan.model, plan.gpu, task)]
        others = f"; it has one for --task {able[0]}" if able else ""
        raise LayoutError(
            f"Megatron Bridge ships no recipe for --task {plan.task} of {plan.model or plan.name}{others}; "
            "--to nemo or ms-swift can say it"
        )


@cache
def _with_comm_overlap() -> frozenset[str]:
    return frozenset(load_json("meshwright.frameworks", "bridge_recipes.json")["comm_overlap"])


def _place(name: str, path: str) -> str:
    """Where a recipe takes an overlap: in its comm_overlap, or in the model where it has none."""
    group, _, last = path.partition(".")
    found = recipe(name)
    held = found is not None and found.recipe in _with_comm_overlap()
    return f"model.{last}" if group == "comm_overlap" and not held else path


def _undone(name: str, plan: Plan) -> dict[str, Plain]:
    """Options that the recipe sets and the plan does not want, switched off."""
    found = recipe(name)
    undone: dict[str, Plain] = {}
    for option, value in (found.options if found is not None else {}).items():
        idle = value is None or value is False or (value == 1 and value is not True)
        if option not in plan.options and option not in KEPT and not idle:
            undone[option] = False if isinstance(value, bool) else None
    return undone


VANILLA = "vanilla_gpt_pretrain_config"
"""The recipe that leaves everything at Megatron's defaults, for models that no recipe trains."""
VANILLA_LATENT = "deepseek_v2_lite_pretrain_config"
"""A recipe of a model with multi-head latent attention, for such models that no recipe trains."""
KEPT = frozenset(
    {"mtp_num_layers", "expert_model_parallel_size", "expert_tensor_parallel_size", "micro_batch_size"}
)
"""Options of a recipe that belong to its model, or that mean nothing where the plan leaves them out."""


def _said(options: Mapping[str, Plain]) -> dict[str, Plain]:
    """Options by Bridge's own fields where those say the opposite."""
    said = dict(options)
    for ours, theirs in OPPOSITE.items():
        if isinstance(value := said.pop(ours, None), bool):
            said[theirs] = not value
    if said.pop("quick_geglu", None) is True:
        said |= {"activation_func": "quick_gelu", "gated_linear_unit": True}
    if said.pop("squared_relu", None) is True:
        said |= {"activation_func": "squared_relu"}
    if said.get("swiglu") is True:
        said = {"activation_func": "silu", "gated_linear_unit": True, **said}
    if said.get("position_embedding_type") == "yarn":
        said = {f"yarn_{name}" if name in YARN else name: value for name, value in said.items()}
    return said


YARN = ("rotary_scaling_factor", "mscale", "mscale_all_dim")
"""What carries another name in YaRN of ordinary attention (gpt_provider.py)."""


OPPOSITE = {
    "untie_embeddings_and_output_weights": "share_embeddings_and_output_weights",
    "grad_reduce_in_bf16": "grad_reduce_in_fp32",
}
