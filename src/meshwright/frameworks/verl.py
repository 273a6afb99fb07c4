"""verl: Hydra command lines (`python -m verl.trainer.main_ppo a.b=c`) and YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.frameworks import scripts
from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.dotted import megatron_name, overrides, sort_options, write_paths
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Reading, Source, Unknown, Value
from meshwright.frameworks.spelling import spelled

OVERRIDES = ("override_transformer_config", "override_ddp_config")


def matches_command(command: Command) -> bool:
    return command.program.startswith("verl.") or any(
        word.lstrip("+").startswith("actor_rollout_ref.") for word in command.words
    )


def matches_document(flat: Flat) -> bool:
    return any(name.startswith("actor_rollout_ref.") for name in flat)


def read_command(command: Command) -> Reading:
    flat, open_, _ = overrides(command.arguments, command.unknowns)
    environment = {name: text.plain for name, text in command.environment.items() if text.is_known}
    reading = read_document(flat, environment)
    named = [(megatron_name("verl", unknown.option), unknown) for unknown in open_]
    unknowns = [Unknown(option=n, needs=u.needs, how=u.how, line=u.line) for n, u in named if n]
    return replace(reading, unknowns=(*reading.unknowns, *unknowns), label=command.label)


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """The actor trains; the rollout's own tensor size is another thing and stays in `other`."""
    done = sort_options("verl", flat, environment)
    options = {name: value for name, value in done.options.items() if value.value is not None}
    # ppo_micro_batch_size_per_gpu counts samples of one micro-batch; train and mini batch are prompts.
    tp = options.get("tensor_model_parallel_size")
    if tp is not None and isinstance(tp.value, int) and tp.value > 1:
        # megatron_actor.yaml: sequence_parallel True, switched off for TP 1.
        options.setdefault("sequence_parallel", Value(True, Source(kind="default", name="verl")))
    return Reading(
        framework="verl",
        options=options,
        other=done.other,
        launcher=done.launcher,
        unknowns=tuple(done.unknowns),
        model=done.model,
    )


def files(plan: Plan) -> dict[str, str]:
    """`run.sh`: main_ppo with the Megatron trainer."""
    flat = write_paths("verl", plan.options)
    words = ["--config-name=ppo_megatron_trainer", f"actor_rollout_ref.model.path={plan.checkpoint}"]
    words += [f"{_added(path)}{path}={spelled(value)}" for path, value in flat.items()]
    words += [f"trainer.n_gpus_per_node={plan.gpus_per_node}", f"trainer.nnodes={plan.nodes}"]
    return {"run.sh": scripts.script(plan, "python3 -m verl.trainer.main_ppo", [[word] for word in words])}


def _added(path: str) -> str:
    """Hydra's mark of a key that the config may have or not: `+` refuses those that it has."""
    return "++" if any(f".{group}." in path for group in OVERRIDES) else ""
