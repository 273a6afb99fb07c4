"""The frameworks, each with the functions that recognise, read and write its language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.frameworks import (
    kubernetes,
    megatron_bridge,
    megatron_deepspeed,
    megatron_lm,
    ms_swift,
    nemo,
    nemo_rl,
    primus,
    scripts,
    slime,
    torchtitan,
    verl,
)
from meshwright.frameworks.commands import Command
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Reading

MEGATRON_FLAGS = (
    "--tensor-model-parallel-size",
    "--tensor_model_parallel_size",
    "--pipeline-model-parallel-size",
    "--num-layers",
    "--micro-batch-size",
    "--use-mcore-models",
)


@dataclass(frozen=True)
class Adapter:
    """One framework's language. Functions that a framework has no use for are None."""

    name: str
    title: str
    matches_command: Callable[[Command], bool] | None = None
    read_command: Callable[[Command], Reading] | None = None
    matches_document: Callable[[Flat], bool] | None = None
    read_document: Callable[[Flat, Mapping[str, str]], Reading] | None = None
    files: Callable[[Plan], dict[str, str]] | None = None


def _megatron_command(command: Command) -> bool:
    return any(word.partition("=")[0] in MEGATRON_FLAGS for word in command.words)


def _slurm(plan: Plan) -> dict[str, str]:
    """`train.sbatch`: srun torchrun with Megatron-LM's arguments."""
    head = f"{scripts.torchrun(plan, slurm=True)} pretrain_gpt.py"
    body = scripts.command_text(head, scripts.grouped(megatron_lm.words_of(plan.runnable())))
    return {"train.sbatch": scripts.sbatch(plan, body)}


def _kubernetes(plan: Plan) -> dict[str, str]:
    words = ["pretrain_gpt.py", *megatron_lm.words_of(plan.runnable())]
    return {"pytorchjob.yaml": kubernetes.manifest(plan, words)}


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("torchtitan", "torchtitan", torchtitan.matches_command, torchtitan.read_command,
            torchtitan.matches_document, torchtitan.read_document, torchtitan.files),
    Adapter("verl", "verl", verl.matches_command, verl.read_command,
            verl.matches_document, verl.read_document, verl.files),
    Adapter("nemo-rl", "NeMo-RL", nemo_rl.matches_command, nemo_rl.read_command,
            nemo_rl.matches_document, nemo_rl.read_document, nemo_rl.files),
    Adapter("primus", "Primus", None, None, primus.matches_document, primus.read_document, primus.files),
    Adapter("slime", "slime", slime.matches_command, slime.read_command, None, None, slime.files),
    Adapter("ms-swift", "ms-swift", ms_swift.matches_command, ms_swift.read_command,
            None, None, ms_swift.files),
    Adapter("megatron-deepspeed", "Megatron-DeepSpeed", megatron_deepspeed.matches_command,
            megatron_deepspeed.read_command, megatron_deepspeed.matches_document,
            megatron_deepspeed.read_document, megatron_deepspeed.files),
    Adapter("nemo", "NeMo", nemo.matches_command, nemo.read_command,
            nemo.matches_document, nemo.read_document, nemo.files),
    Adapter("megatron-bridge", "Megatron Bridge", megatron_bridge.matches_command,
            megatron_bridge.read_command, megatron_bridge.matches_document, megatron_bridge.read_document,
            megatron_bridge.files),
    Adapter("megatron-lm", "Megatron-LM", _megatron_command, megatron_lm.read, None, None, megatron_lm.files),
    Adapter("slurm", "Slurm", files=_slurm),
    Adapter("kubernetes", "Kubernetes PyTorchJob", files=_kubernetes),
)  # fmt: skip
"""In the order in which they are tried: the most particular first."""


def adapter(name: str) -> Adapter | None:
    """The adapter of a framework; `torchrun` is Megatron-LM's script."""
    name = {"torchrun": "megatron-lm", "megatron-core": "megatron-lm", "sbatch": "slurm", "k8s": "kubernetes",
            "nemo2": "nemo", "swift": "ms-swift"}.get(name, name)  # fmt: skip
    return next((one for one in ADAPTERS if one.name == name), None)


def names() -> tuple[str, ...]:
    return tuple(one.name for one in ADAPTERS)
