"""Megatron-DeepSpeed: Megatron-LM's arguments plus a DeepSpeed JSON, started by `deepspeed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.errors import QuestionError
from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import Flat, json_document
from meshwright.frameworks.megatron_lm import reading_of, words_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Note, Plain, Reading, Value
from meshwright.frameworks.spelling import table


def matches_command(command: Command) -> bool:
    return any(word in ("--deepspeed", "--deepspeed_config", "--deepspeed-config") for word in command.words)


def matches_document(flat: Flat) -> bool:
    """The JSON that --deepspeed_config names."""
    return any(name in flat for name in BATCH) and any(
        name.startswith(("zero_optimization", "bf16.", "fp16.", "gradient_", "steps_per_print"))
        or name == "train_micro_batch_size_per_gpu"
        for name in flat
    )


BATCH = {
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
}


def read_document(flat: Flat, environment: Mapping[str, str]) -> Reading:
    """Batch and precision of a DeepSpeed JSON, which a command completes."""
    options = {ours: flat[theirs] for theirs, ours in BATCH.items() if theirs in flat}
    for name in ("bf16", "fp16"):
        enabled = flat.get(f"{name}.enabled")
        if enabled is not None and isinstance(enabled.value, bool):
            options[name] = enabled
    known = {*BATCH, "bf16.enabled", "fp16.enabled"}
    return Reading(
        framework="megatron-deepspeed",
        options={name: value for name, value in options.items() if value.value != "auto"},
        other={name: value for name, value in flat.items() if name not in known},
        notes=tuple(_own_batch(flat)),
        complete=False,
    )


def _own_batch(flat: Flat) -> Iterator[Note]:
    """train_batch_size = micro batch x accumulation steps x data-parallel ranks, as DeepSpeed demands."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    values = [flat[name].value for name in names if name in flat]
    whole = [value for value in values if isinstance(value, int) and value > 0]
    if len(whole) < 3:
        return
    batch, micro, steps = whole
    if batch % (micro * steps):
        yield Note(
            id="deepspeed-batch",
            severity="error",
            message=f"train_batch_size {batch} is no multiple of train_micro_batch_size_per_gpu {micro} x "
            f"gradient_accumulation_steps {steps} = {micro * steps}",
            fix=f"train_batch_size {max(batch // (micro * steps), 1) * micro * steps}, or leave "
            "gradient_accumulation_steps out",
        )


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
    for key, option in BATCH.items():
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

    lacks = set(table()["lacks"]["megatron-deepspeed"])
    known = {name: value for name, value in plan.runnable().items() if name not in lacks}
    words = [*words_of(known), "--deepspeed", "--deepspeed_config", "ds_config.json"]
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
