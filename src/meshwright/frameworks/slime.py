"""slime: Megatron-LM's arguments plus Ray's actors (`--actor-num-nodes 4 --actor-num-gpus-per-node 8`).

Its own options (`--actor-num-*`, `--colocate`, `--hf-checkpoint`, `--use-dynamic-batch-size`) are recalled:
no index carries the framework (a package of that name is another one). Megatron-LM's are checked.
"""

from __future__ import annotations

from dataclasses import replace

from meshwright.frameworks import scripts
from meshwright.frameworks.arguments import read_arguments
from meshwright.frameworks.commands import Command
from meshwright.frameworks.megatron_lm import reading_of, words_of
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Reading, Source, Value
from meshwright.frameworks.world import from_counts


def matches_command(command: Command) -> bool:
    return any(word.startswith("--actor-num-") for word in command.words)


def read_command(command: Command) -> Reading:
    """The world is that of the actors; the rollout's GPUs are its own unless `--colocate`."""
    said = read_arguments(command.arguments, command.unknowns)
    reading = replace(reading_of(command, said), framework="slime")
    nodes, per_node = (_count(said.other.get(f"actor_num_{key}")) for key in ("nodes", "gpus_per_node"))
    dynamic = said.other.get("use_dynamic_batch_size")
    options = dict(reading.options)
    if dynamic is not None and dynamic.value is True:
        # Micro-batches are packed up to --max-tokens-per-gpu: their number is not fixed.
        options["use_dynamic_batch_size"] = dynamic
    # slime always shards the optimizer and trains in bf16 (slime/backends/megatron_utils/arguments.py).
    for name in ("use_distributed_optimizer", "bf16"):
        options.setdefault(name, Value(True, Source(kind="default", name="slime")))
    loss = said.other.get("loss_type")
    if loss is not None and loss.value == "sft_loss":
        options["task"] = Value("sft", loss.source)
    model = next((said.other[key] for key in ("hf_checkpoint", "ref_load") if key in said.other), None)
    programs = reading.launcher.programs
    return replace(reading, options=options, launcher=from_counts(nodes, per_node, programs), model=model)


def _count(value: Value | None) -> Value | None:
    return value if value is not None and isinstance(value.value, int) else None


def files(plan: Plan) -> dict[str, str]:
    """`run.sh`: a Ray job with the training arguments; rollout options stay the user's."""
    lines = [
        ["--actor-num-nodes", str(plan.nodes)],
        ["--actor-num-gpus-per-node", str(plan.gpus_per_node)],
        ["--colocate"],
        ["--hf-checkpoint", plan.checkpoint],
        *([["--loss-type", "sft_loss"], ["--debug-train-only"]] if plan.task == "sft" else []),
        *scripts.grouped(words_of(plan.everything)),
    ]
    return {"run.sh": scripts.script(plan, "ray job submit -- python3 train.py", lines)}
