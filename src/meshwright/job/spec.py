"""How training is run: the job a person asks for, and the execution flags of the engine.

`Job` holds what changes the numerics (sequence, batch, precision, optimizer); `Execution` holds what
changes only memory and speed (recompute, dispatcher, overlaps, sharding of the optimizer).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from meshwright.errors import QuestionError, did_you_mean

Precision = Literal["bf16", "fp16", "fp8", "fp8-current", "fp8-block", "mxfp8", "nvfp4"]
Task = Literal["pretrain", "sft", "lora", "rl"]
GradDtype = Literal["fp32", "bf16"]
Optimizer = Literal["adam", "adam-precision-aware", "muon", "sgd"]
Dispatcher = Literal["allgather", "alltoall", "deepep", "hybridep"]
CudaGraphs = Literal["none", "mlp", "attn", "router", "moe", "full"]
CpComm = Literal["p2p", "a2a", "a2a+p2p", "allgather"]
Granularity = Literal["none", "selective", "full"]
OverlapKind = Literal["tp", "dp", "ep", "pp"]
AttentionBackend = Literal["auto", "fused", "flash", "unfused"]
TransformerImpl = Literal["transformer-engine", "local"]
CrossEntropyImpl = Literal["te", "native", "torch"]
ShardingStrategy = Literal["optim", "optim_grads", "optim_grads_params"]

OFFLOAD_MODULES = (
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "expert_fc1",
    "moe_act",
)
"""Module names that fine-grained activation offloading accepts (`--offload-modules`)."""

RECOMPUTE_MODULES = (
    "core_attn",
    "mlp",
    "moe",
    "moe_act",
    "layernorm",
    "mla_up_proj",
    "shared_experts",
)
"""Module names that `--recompute-modules` accepts (megatron/core/transformer/transformer_config.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rollout engine of reinforcement learning, and how it shares GPUs with the trainer.

    gpus                GPUs over which one copy of the weights is spread (its TP times PP, or EP)
    memory_share        share of a GPU that the engine takes for weights and key-value cache
    colocated           trainer and engine use the same GPUs
    sleeps              the engine gives its cache (and weights) back while the trainer works
    offloads_weights    in the rollout phase the trainer's weights go to host memory
    offloads_gradients  ... its gradient buffers too
    offloads_optimizer  ... its optimizer state too
    reference           a frozen reference policy is held
    offloads_reference  ... in host memory outside of its phase
    sync_bucket         bytes of one bucket of weights on their way to the engine
    """

    gpus: int = 1
    memory_share: float = 0.5
    colocated: bool = True
    sleeps: bool = True
    offloads_weights: bool = False
    offloads_gradients: bool = True
    offloads_optimizer: bool = True
    reference: bool = True
    offloads_reference: bool = False
    sync_bucket: float = 2.0**30

    def __post_init__(self) -> None:
        positive("GPUs of one rollout copy", self.gpus)
        fraction("the engine's share of a GPU", self.memory_share)
        if not 0 < self.sync_bucket <= LARGEST * 1e6:
            raise QuestionError(f"the weight bucket is {self.sync_bucket} bytes; it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job.

    seq_length    tokens a sample
    global_batch  samples a step
    lora_rank     rank of the adapters, for the task `lora` only
    hidden_dropout, attention_dropout  probabilities; where they are not 0 a mask is kept
    """

    seq_length: int
    global_batch: int
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    grad_dtype: GradDtype = "fp32"
    task: Task = "pretrain"
    lora_rank: int = 32
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    packing: tuple[tuple[int, float], ...] = ()
    """Lengths of samples packed into a sequence: pairs (tokens, share of all tokens); () for whole ones."""
    longest_packed_sequence: int | None = None
    """Tokens of the longest sequence that packing makes; memory must hold it, time follows the mean."""
    rollout: Rollout | None = None
    """For the task `rl` only (filled in there): the rollout engine beside the trainer."""

    def __post_init__(self) -> None:
        positive("sequence length", self.seq_length)
        positive("global batch size", self.global_batch)
        one_of("precision", self.precision, get_args(Precision))
        one_of("optimizer", self.optimizer, get_args(Optimizer))
        one_of("gradient dtype", self.grad_dtype, get_args(GradDtype))
        one_of("task", self.task, get_args(Task))
        positive("LoRA rank", self.lora_rank)
        fraction("hidden dropout", self.hidden_dropout)
        fraction("attention dropout", self.attention_dropout)
        object.__setattr__(self, "packing", packing_of(self.packing, self.seq_length))
        if self.task == "rl" and self.rollout is None:
            object.__setattr__(self, "rollout", Rollout())
        if self.rollout is not None and self.task != "rl":
            raise QuestionError(f"a rollout engine belongs to --task rl, not to {self.task}")
        if self.longest_packed_sequence is not None:
            positive("the longest packed sequence", self.longest_packed_sequence)
            if self.longest_packed_sequence < self.seq_length:
                raise QuestionError(
                    f"the longest packed sequence has {self.longest_packed_sequence:,} tokens, fewer than "
                    f"the sequence length {self.seq_length:,}; it is the longest of them"
                )

    @property
    def for_memory(self) -> Job:
        """The job whose sequences are as long as the longest: what memory must hold."""
        if self.longest_packed_sequence is None:
            return self
        return replace(self, seq_length=self.longest_packed_sequence)

    @property
    def tokens_per_step(self) -> int:
        return self.seq_length * self.global_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Which activations are computed again in the backward pass instead of being kept."""

    granularity: Granularity = "none"
    modules: tuple[str, ...] = ()
    """For `selective`: the modules, in Megatron's spelling."""
    method: Literal["uniform", "block"] = "uniform"
    """For `full`: how layers are grouped."""
    num_layers: int | None = None
    """For `full`: layers in a group (uniform) or layers recomputed a stage (block); None is all."""

    def __post_init__(self) -> None:
        one_of("recompute granularity", self.granularity, get_args(Granularity))
        one_of("recompute method", self.method, ("uniform", "block"))
        for module in self.modules:
            one_of("recompute module", module, RECOMPUTE_MODULES)
        least = 1 if self.method == "uniform" else 0
        if self.granularity == "full" and self.num_layers is not None and self.num_layers < least:
            raise QuestionError(
                f"{self.method} recompute of {self.num_layers} layers; nearest that works: {least}"
            )
        if self.modules and self.granularity != "selective":
            raise QuestionError(
                f"recompute modules ({', '.join(self.modules)}) belong to --recompute selective, "
                f"not to {self.granularity}"
            )

    def __str__(self) -> str:
        if self.granularity == "selective":
            return f"selective({','.join(self.modules)})"
        if self.granularity == "full" and self.num_layers is not None:
            return f"full({self.method},{self.num_layers})"
        return self.granularity


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Flags of the engine that change memory and speed and leave the numerics alone."""

    recompute: Recompute = field(default_factory=Recompute)
    dispatcher: Dispatcher = "alltoall"
    cuda_graphs: CudaGraphs = "none"
    overlaps: frozenset[OverlapKind] = frozenset({"dp"})
    """Communication that runs beside compute: tp (user buffers), dp (gradients, parameters), ep, pp."""
    distributed_optimizer: bool = True
    fsdp: bool = False
    optimizer_offload: float = 0.0
    """Fraction of the optimizer state kept in host memory."""
    cp_comm: CpComm = "p2p"
    cross_entropy_fusion: bool = True
    grouped_mlp_fusion: bool = False
    """The experts' GEMMs and activation run as one fused kernel (Transformer Engine's op fuser)."""
    capacity_factor: float | None = None
    """Tokens an expert accepts, as a multiple of the balanced share; None drops nothing."""
    expert_imbalance: float = 1.0
    """Tokens of the fullest expert-parallel rank, as a multiple of the balanced share."""
    rank_capacity: float | None = None
    """Tokens for which an expert rank has buffers, as a multiple of the balanced share (static shapes)."""
    paged_stash: float | None = None
    """Pages in which the experts' saved tensors are packed, as a multiple of the balanced share of tokens."""
    grouped_gemm: bool = True
    """The experts of a rank run as grouped GEMMs (`--moe-grouped-gemm`), not one after another."""
    transformer_impl: TransformerImpl = "transformer-engine"
    attention_backend: AttentionBackend = "auto"
    """auto: cuDNN's fused attention from Hopper on, flash attention on Ampere."""
    cross_entropy_impl: CrossEntropyImpl = "te"
    """te writes the gradient over the logits; native is Megatron Core's, compiled where it is fused; torch is
    `torch.nn.functional.cross_entropy` on fp32 logits."""
    activation_fusion: bool = True
    """Bias and activation run as one kernel (bias_gelu_fusion, bias_swiglu_fusion)."""
    gradient_accumulation_fusion: bool = True
    """Weight gradients are added to the gradient buffer by the GEMM itself."""
    optimizer_instances: int = 1
    """Distributed-optimizer instances (HSDP for FSDP): each replica group shards by itself."""
    fp8_param_gather: bool | None = None
    """Weights are kept in the low-precision format only; None is what the recipe does in Megatron Bridge."""
    vp_group: int | None = None
    """microbatch_group_size_per_vp_stage; None is pp."""
    fsdp_sharding: ShardingStrategy = "optim_grads_params"
    fsdp_double_buffer: bool = False
    offload_modules: tuple[str, ...] = ()
    """Fine-grained activation offloading: inputs of these modules go to host memory."""
    cpu_offload_layers: int = 0
    """Layers of a stage whose activations are kept in host memory (Transformer Engine)."""
    attention_mask: bool = False
    """The data loader makes attention masks [mbs, 1, seq, seq] (Megatron-LM's default)."""
    deterministic: bool = False
    """Deterministic kernels (`--deterministic-mode`, CUBLAS_WORKSPACE_CONFIG=:4096:8)."""
    embedding_wgrad_deferral: int | None = None
    """Micro-batches whose output-projection gradients wait (`--wgrad-deferral-limit`); None defers none."""
    expandable_segments: bool = True
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."""
    scattered_messages: bool = False
    """Without sequence parallelism each tensor-parallel rank sends its share of a pipeline message and the
    receivers gather it (Megatron-LM before Core, DeepSpeed)."""

    def __post_init__(self) -> None:
        one_of("dispatcher", self.dispatcher, get_args(Dispatcher))
        one_of("CUDA graph scope", self.cuda_graphs, get_args(CudaGraphs))
        one_of("context-parallel communication", self.cp_comm, get_args(CpComm))
        for kind in self.overlaps:
            one_of("overlap", kind, get_args(OverlapKind))
        one_of("transformer implementation", self.transformer_impl, get_args(TransformerImpl))
        one_of("attention backend", self.attention_backend, get_args(AttentionBackend))
        one_of("cross-entropy implementation", self.cross_entropy_impl, get_args(CrossEntropyImpl))
        one_of("FSDP sharding", self.fsdp_sharding, get_args(ShardingStrategy))
        for module in self.offload_modules:
            one_of("offload module", module, OFFLOAD_MODULES)
        positive("the number of distributed-optimizer instances", self.optimizer_instances)
        fraction("the offloaded fraction of the optimizer", self.optimizer_offload)
        for what, factor in (("rank capacity", self.rank_capacity), ("paged stash", self.paged_stash)):
            if factor is not None and not 0.0 < factor <= LARGEST:
                raise QuestionError(
                    f"the {what} is {factor}; it is a multiple of the balanced share, above 0"
                )
        if not 1.0 <= self.expert_imbalance <= LARGEST:
            raise QuestionError(
                f"the expert imbalance is {self.expert_imbalance}; the fullest rank gets at least 1.0 times "
                "its balanced share of the tokens, and at most all of them (ep times)"
            )


Framework = Literal["megatron-core", "megatron-lm", "megatron-bridge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The software: which framework, and which generation of the NVIDIA stack (year.month)."""

    release: str = "26.06"
    framework: Framework = "megatron-bridge"
    framework_version: str | None = None

    def __post_init__(self) -> None:
        one_of("framework", self.framework, get_args(Framework))


def packing_of(pairs: Iterable[Iterable[float]], longest: int) -> tuple[tuple[int, float], ...]:
    """A histogram of sample lengths, shares scaled to 1; QuestionError where a length does not fit.

    >>> packing_of([(512, 1), (4096, 3)], 4096)
    ((512, 0.25), (4096, 0.75))
    """
    found = [(int(length), float(share)) for length, share in pairs]
    whole = sum(share for _, share in found)
    for length, share in found:
        if not 1 <= length <= longest or not share > 0:
            raise QuestionError(
                f"packed samples of {length} tokens with share {share:g}: lengths lie between 1 and the "
                f"sequence length {longest}, shares above 0"
            )
    return tuple((length, share / whole) for length, share in found)


LARGEST = 10**9
"""Far above any count that a training has; keeps absurd input from overflowing."""


def positive(what: str, value: int) -> int:
    """`value`, or a QuestionError when it is not a whole number from 1 to LARGEST."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QuestionError(f"{what} is {shown(value)}; it must be a whole number of at least 1")
    if value > LARGEST:
        raise QuestionError(f"{what} is {shown(value)}; the largest that makes sense is {LARGEST:,}")
    return value


def shown(value: object) -> str:
    """A value in an error, cut to what a line holds (very long integers cannot be written at all)."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    return str(value)[:40]


def fraction(what: str, value: float) -> float:
    """`value`, or a QuestionError when it does not lie between 0 and 1."""
    if not 0.0 <= value <= 1.0:
        raise QuestionError(f"{what} is {value}; it lies between 0 and 1")
    return value


def one_of(what: str, value: str, known: tuple[str, ...]) -> str:
    """`value`, or a QuestionError that lists what is known."""
    if value not in known:
        hint = did_you_mean(str(value)[:60], known) or "."
        raise QuestionError(f"unknown {what} {str(value)[:60]!r}{hint} Known: {', '.join(known)}")
    return value
