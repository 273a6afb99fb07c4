"""The options that commands share, as one table: flag spellings, field, type and help.

`with_options` gives a command function the options of the named groups and hands it what was said as
a dict, so that no command repeats the list.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

DEGREE_HELP = "{name}; a list (1,2,4) lets the search choose among its values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option: the name a command receives it under, its spellings, its type and its help."""

    name: str
    spellings: tuple[str, ...]
    kind: type
    help: str
    group: str

    def parameter(self) -> inspect.Parameter:
        default = None
        option = typer.Option(default, *self.spellings, help=self.help, rich_help_panel=self.group)
        annotation: Any = self.kind | None
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _flag(group: str, kind: type, name: str, spellings: str, words: str) -> Flag:
    return Flag(name=name, spellings=tuple(spellings.split()), kind=kind, help=words, group=group)


def _degree(name: str, long: str, words: str) -> Flag:
    return _flag("Layout", str, name, f"--{name} --{long}", DEGREE_HELP.format(name=words))


LAYOUT = (
    _degree("tp", "tensor-model-parallel-size", "tensor parallel size"),
    _degree("pp", "pipeline-model-parallel-size", "pipeline parallel size"),
    _degree("vpp", "virtual-pipeline-model-parallel-size", "model chunks a pipeline rank"),
    _degree("cp", "context-parallel-size", "context parallel size"),
    _degree("ep", "expert-model-parallel-size", "expert parallel size"),
    _degree("etp", "expert-tensor-parallel-size", "expert tensor parallel size"),
    _degree("mbs", "micro-batch-size", "micro-batch size"),
    _flag("Layout", bool, "sp", "--sp/--no-sp --sequence-parallel/--no-sequence-parallel", "sequence parallelism (default: on when tp > 1)"),
    _flag("Layout", str, "pipeline_layout", "--pipeline-layout --pipeline-model-parallel-layout", 'layout string, for example "Et*4|(t*4|)*14tmL"'),
    _flag("Layout", int, "first_stage_layers", "--first-stage-layers --num-layers-in-first-pipeline-stage", "layers on the first stage"),
    _flag("Layout", int, "last_stage_layers", "--last-stage-layers --num-layers-in-last-pipeline-stage", "layers on the last stage"),
    _flag("Layout", bool, "account_for_embedding", "--account-for-embedding --account-for-embedding-in-pipeline-split", "count the embedding as a layer of the split"),
    _flag("Layout", bool, "account_for_loss", "--account-for-loss --account-for-loss-in-pipeline-split", "count the loss as a layer of the split"),
)  # fmt: skip
JOB = (
    _flag("Job", int, "seq_length", "--seq-length --sequence-length", "tokens a sample"),
    _flag("Job", int, "global_batch", "--global-batch-size --gbs --global-batch", "samples a step"),
    _flag("Job", str, "precision", "--precision", "bf16, fp16, fp8, fp8-current, fp8-block, mxfp8 or nvfp4"),
    _flag("Job", str, "task", "--task", "pretrain, sft or lora"),
    _flag("Job", str, "optimizer", "--optimizer", "adam, adam-precision-aware, muon or sgd"),
    _flag("Job", str, "grad_dtype", "--grad-dtype", "gradient buffers: fp32 or bf16"),
    _flag("Job", str, "stack", "--stack", "software generation, for example 26.06"),
    _flag("Job", str, "framework", "--framework", "megatron-core, megatron-lm or megatron-bridge"),
    _flag("Job", str, "framework_version", "--framework-version", "its version, for example 0.16"),
)
EXECUTION = (
    _flag("Execution", str, "recompute", "--recompute --recompute-granularity", "none, selective or full"),
    _flag("Execution", str, "recompute_modules", "--recompute-modules", "modules of selective recompute, comma-separated"),
    _flag("Execution", str, "recompute_method", "--recompute-method", "uniform or block"),
    _flag("Execution", int, "recompute_num_layers", "--recompute-num-layers", "layers of full recompute"),
    _flag("Execution", str, "dispatcher", "--dispatcher --moe-token-dispatcher-type", "allgather, alltoall, deepep or hybridep"),
    _flag("Execution", str, "cuda_graphs", "--cuda-graphs", "none, attn, moe or full"),
    _flag("Execution", str, "overlap", "--overlap", "communication to overlap: tp,dp,ep,pp"),
    _flag("Execution", str, "no_overlap", "--no-overlap", "communication not to overlap"),
    _flag("Execution", bool, "distributed_optimizer", "--distributed-optimizer/--no-distributed-optimizer", "shard the optimizer over data parallel ranks"),
    _flag("Execution", bool, "fsdp", "--fsdp/--no-fsdp", "shard weights and gradients too (Megatron FSDP)"),
    _flag("Execution", float, "optimizer_offload", "--offload --optimizer-offload-fraction", "fraction of the optimizer state in host memory"),
    _flag("Execution", str, "cp_comm", "--cp-comm --cp-comm-type", "p2p, a2a, a2a+p2p or allgather"),
    _flag("Execution", float, "capacity_factor", "--capacity-factor --moe-expert-capacity-factor", "tokens an expert accepts over its balanced share"),
    _flag("Execution", bool, "cross_entropy_fusion", "--cross-entropy-fusion/--no-cross-entropy-fusion", "fused cross entropy"),
)  # fmt: skip
MODEL = (
    _flag("Model changes", int, "num_layers", "--num-layers", "number of decoder layers"),
    _flag("Model changes", int, "mtp_num_layers", "--mtp-num-layers", "multi-token-prediction modules"),
    _flag("Model changes", int, "max_position", "--max-position --max-position-embeddings", "longest position"),
    _flag("Model changes", int, "vocab_size", "--vocab-size", "vocabulary"),
    _flag("Model changes", list[str], "set", "--set", "any field of the model, as field=value; may be given several times"),  # type: ignore[arg-type]
)
CLUSTER = (
    _flag("Cluster", str, "cluster", "--cluster", "YAML file that describes a cluster or GPU of one's own"),
    _flag("Cluster", int, "gpus_per_node", "--gpus-per-node", "GPUs a node"),
    _flag("Cluster", int, "nvlink_domain", "--nvlink-domain", "GPUs that one NVLink domain joins"),
    _flag("Cluster", float, "network_gbps", "--network-gbps", "network bandwidth a GPU [Gbit/s]"),
    _flag("Cluster", float, "gpu_memory_gb", "--gpu-memory-gb", "memory a GPU [GB]"),
)


def with_options(*groups: tuple[Flag, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of the groups to a command, which receives them as its dict `said` (unset ones left out)."""
    flags = [flag for group in groups for flag in group]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            said = {flag.name: given.pop(flag.name) for flag in flags}
            command(**given, said={name: value for name, value in said.items() if value not in (None, [])})

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "said"]
        positional = [p for p in own if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = [p for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        extra = [flag.parameter() for flag in flags]
        signature = inspect.Signature([*positional, *extra, *named])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return run

    return decorate


ModelName = Annotated[str, typer.Argument(help="catalog name, Hugging Face id, or path to a config.json", show_default=False)]
JsonFlag = Annotated[bool, typer.Option("--json", help="print the answer as JSON")]
