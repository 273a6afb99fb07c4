"""Megatron-DeepSpeed: Megatron-LM's arguments plus a DeepSpeed JSON, started by `deepspeed`."""

from __future__ import annotations

from dataclasses import replace

from meshwright.errors import QuestionError
from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import json_document
from meshwright.frameworks.megatron_lm import reading_of, words_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Note, Plain, Reading, Value


def matches_command(command: Command) -> bool:
    return any(word in ("--deepspeed", "--deepspeed_config", "--deepspeed-config") for word in command.words)


def read_command(command: Command) -> Reading:
    """Arguments, and whether the JSON beside the script says the same batch."""
    said = read_arguments(command.arguments, command.unknowns)
    reading = replace(reading_of(command, said), framework="megatron-deepspeed")
    options = dict(reading.options)
    full = options.pop("recompute_full", None)
    if full is not None:
        # --checkpoint-activations is full recompute of one layer at a time.
        whole: dict[str, Plain] = {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
        for name, value in whole.items():
            options.setdefault(name, Value(value, full.source))
    config = options.pop("deepspeed_config", None)
    notes = _batch_notes(command, options, config)
    return replace(reading, options=options, notes=(*reading.notes, *notes))


def _batch_notes(command: Command, options: dict[str, Value], config: Value | None) -> tuple[Note, ...]:
    """Where the JSON states another batch than the arguments."""
    found = command.read_file(str(config.value)) if config is not None else None
    if found is None:
        return ()
    try:
        stated = json_document(found[1].plain, found[0])
    except QuestionError:
        return ()
    notes: list[Note] = []
    pairs = (
        ("train_batch_size", "global_batch_size"),
        ("train_micro_batch_size_per_gpu", "micro_batch_size"),
    )
    for key, option in pairs:
        ours, theirs = options.get(option), stated.get(key)
        if ours is None or theirs is None or ours.value == theirs.value or not isinstance(theirs.value, int):
            continue
        notes.append(
            Note(
                id="deepspeed-batch",
                severity="error",
                message=f"{found[0]} says {key} {theirs.value}, the arguments say {option} {ours.value}",
                fix=f"write the same number in both places ({ours.value})",
                line=ours.line,
            )
        )
    return tuple(notes)


def files(plan: Plan) -> dict[str, str]:
    """`train.sh` and the DeepSpeed JSON it names."""
    import json

    words = [*words_of(plan.runnable()), "--deepspeed", "--deepspeed_config", "ds_config.json"]
    head = f"deepspeed --num_nodes {plan.nodes} --num_gpus {plan.gpus_per_node} pretrain_gpt.py"
    config = {
        "train_batch_size": plan.options.get("global_batch_size"),
        "train_micro_batch_size_per_gpu": plan.options.get("micro_batch_size", 1),
        "zero_optimization": {"stage": 1 if plan.options.get("use_distributed_optimizer") else 0},
        "bf16": {"enabled": bool(plan.options.get("bf16", True))},
    }
    return {
        "train.sh": scripts.script(plan, head, scripts.grouped(words)),
        "ds_config.json": json.dumps(config, indent=2) + "\n",
    }
