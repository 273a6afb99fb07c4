"""NeMo-RL: YAML with `policy.megatron_cfg`, started with Hydra-like overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import Flat, yaml_documents
from meshwright.frameworks.dotted import nested, overrides, sort_options, write_paths, yaml_text
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Plain, Reading, Value


def matches_command(command: Command) -> bool:
    return any(word.lstrip("+").startswith(("policy.", "cluster.num_nodes")) for word in command.words) or (
        "run_grpo" in command.program or "run_sft" in command.program or "run_dpo" in command.program
    )


def matches_document(flat: Flat) -> bool:
    return any(name.startswith("policy.megatron_cfg.") for name in flat)


def read_command(command: Command) -> Reading:
    flat, open_, rest = overrides(command.arguments, command.unknowns)
    for at, word in enumerate(rest):
        flag, equals, inline = word.partition("=")
        path = inline if equals else (rest[at + 1] if at + 1 < len(rest) else inline)
        if flag.plain == "--config" and (found := command.read_file(path.plain)) is not None:
            flat = {**yaml_documents(found[1].plain, found[0])[0], **flat}
    environment = {name: text.plain for name, text in command.environment.items() if text.is_known}
    reading = read_document(flat, environment)
    return replace(reading, unknowns=(*reading.unknowns, *open_), label=command.label)


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """All GPUs train; rollout engines share them unless `colocated` is off."""
    done = sort_options("nemo-rl", flat, environment)
    options = dict(done.options)
    checkpointing = options.pop("activation_checkpointing", None)
    if checkpointing is not None and checkpointing.value is True:
        # megatron_policy_worker.py turns the switch into full recompute, one layer at a time.
        full: dict[str, Plain] = {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
        for name, value in full.items():
            options.setdefault(name, Value(value, checkpointing.source))
    options |= _task(flat)
    packed = flat.get("policy.sequence_packing.enabled")
    if packed is not None:
        options["sequence_packing"] = packed
    return Reading(
        framework="nemo-rl",
        options={name: value for name, value in options.items() if value.value is not None},
        other=done.other,
        launcher=done.launcher,
        unknowns=tuple(done.unknowns),
        model=done.model,
    )


PEFT = "policy.megatron_cfg.peft"


def _task(flat: Flat) -> dict[str, Value]:
    """What is trained: adapters where peft is on, whole weights on answers below `sft`."""
    on, rank = flat.get(f"{PEFT}.enabled"), flat.get(f"{PEFT}.dim")
    if on is not None and on.value is True:
        return {"task": Value("lora", on.source), **({"lora_rank": rank} if rank is not None else {})}
    tuned = next((value for name, value in flat.items() if name.startswith("sft.")), None)
    return {"task": Value("sft", tuned.source)} if tuned is not None else {}


def files(plan: Plan) -> dict[str, str]:
    """`grpo.yaml` or `sft.yaml`, to be laid over NeMo-RL's own base config."""
    flat = write_paths("nemo-rl", plan.options)
    flat["policy.megatron_cfg.activation_checkpointing"] = plan.options.get("recompute_granularity") == "full"
    flat = {"policy.model_name": plan.checkpoint, "policy.megatron_cfg.enabled": True, **flat}
    flat |= {"cluster.gpus_per_node": plan.gpus_per_node, "cluster.num_nodes": plan.nodes}
    if plan.task == "lora":
        flat |= {f"{PEFT}.enabled": True, f"{PEFT}.dim": plan.lora_rank}
    tuned = plan.task in ("sft", "lora")
    if tuned:
        flat["sft.max_num_epochs"] = 1
    return {"sft.yaml" if tuned else "grpo.yaml": yaml_text(nested(flat), plan.heading)}
