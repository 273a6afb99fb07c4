"""Rules of the optimizer and of the types its state is kept in."""

from __future__ import annotations

from meshwright.layout.rules.rule import ARGUMENTS, BRIDGE, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

OPTIMIZER = "megatron/core/optimizer/optimizer_config.py"
FP32 = (None, "fp32", "float32", "torch.float32")
LAYER_WISE_SINCE = "2026-04-15"
EMERGING = ("muon", "dist_muon", "adaptive_muon", "soap", "lion")


def _state_dtypes(v: View) -> dict[str, object]:
    names = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    return {name: v.get(name) for name in names if v.get(name) not in FP32}


STATE_FP32 = Rule(
    id="state-dtype-needs-precision-aware",
    aliases=("R202",),
    area="optimizer",
    must="without the precision-aware optimizer, gradients, parameters and moments are fp32",
    why="The plain optimizer knows no other type.",
    severity="error",
    enforced_by=CORE,
    source=OPTIMIZER,
    applies=lambda v: not v.on("use_precision_aware_optimizer"),
    holds=lambda v: not _state_dtypes(v),
    message=lambda v: "plain optimizer with " + ", ".join(f"{k} {d}" for k, d in _state_dtypes(v).items()),
    fix="--use-precision-aware-optimizer",
    breaks=given(exp_avg_dtype="bf16"),
    passes=given(exp_avg_dtype="fp32"),
)


def _precise_fault(v: View) -> str:
    if v["optimizer"] != "adam":
        return f"the {v['optimizer']} optimizer"
    if not v.on("use_distributed_optimizer"):
        return "no distributed optimizer"
    old = v.get("te_version") is not None and v.release("te_version") < (2, 1)
    return f"Transformer Engine {v['te_version']}" if old else ""


PRECISE = Rule(
    id="precision-aware-needs",
    aliases=("R203",),
    area="optimizer",
    must="the precision-aware optimizer needs Adam, the distributed optimizer and Transformer Engine 2.1",
    why="It is a fused Adam over shards.",
    severity="error",
    enforced_by=CORE,
    source=f"{OPTIMIZER}; megatron/core/optimizer/__init__.py",
    mask=True,
    per_execution=True,
    applies=lambda v: v.on("use_precision_aware_optimizer"),
    holds=lambda v: not _precise_fault(v),
    message=lambda v: f"precision-aware optimizer with {_precise_fault(v)}",
    fix="--optimizer adam --use-distributed-optimizer",
    breaks=given(use_precision_aware_optimizer=True, use_distributed_optimizer=False),
    passes=given(use_precision_aware_optimizer=True, use_distributed_optimizer=True),
)

PRECISE_FLAGS = Rule(
    id="precision-aware-flags-match",
    aliases=("R204",),
    area="optimizer",
    must="with the precision-aware optimizer, its bf16 and fp16 flags are those of the model",
    why="It writes the model's own weights.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge training/config.py, _validate_mixed_precision_consistency",
    applies=lambda v: v.on("use_precision_aware_optimizer") and v.gave("optimizer_bf16"),
    holds=lambda v: v.on("optimizer_bf16") == v.on("bf16") and v.on("optimizer_fp16") == v.on("fp16"),
    message="precision-aware optimizer: its bf16 is {optimizer_bf16}, the model's {bf16}",
    fix="set optimizer.bf16 and model.bf16 alike",
    breaks=given(use_precision_aware_optimizer=True, optimizer_bf16=False, bf16=True),
    passes=given(use_precision_aware_optimizer=True, optimizer_bf16=True, bf16=True),
)


def _offload_fault(v: View) -> str:
    if not v.on("use_precision_aware_optimizer"):
        return "no precision-aware optimizer"
    if v.on("fp8_param") and v["fp8_recipe"] != "delayed":
        return f"fp8_param_gather and the {v['fp8_recipe']} recipe (only delayed works)"
    return ""


OFFLOAD = Rule(
    id="optimizer-offload-needs",
    aliases=("R205",),
    area="optimizer",
    must="optimizer offload needs the precision-aware optimizer, and with fp8_param_gather the delayed "
    "recipe",
    why="The state on the host is written by that optimizer.",
    severity="error",
    enforced_by=LM,
    source=f"{ARGUMENTS}; megatron/core/optimizer/__init__.py",
    mask=True,
    per_execution=True,
    applies=lambda v: v.on("optimizer_cpu_offload"),
    holds=lambda v: not _offload_fault(v),
    message=lambda v: f"optimizer_cpu_offload with {_offload_fault(v)}",
    fix="--use-precision-aware-optimizer --use-distributed-optimizer",
    breaks=given(optimizer_cpu_offload=True),
    passes=given(
        optimizer_cpu_offload=True, use_precision_aware_optimizer=True, use_distributed_optimizer=True
    ),
)


def _emerging_fault(v: View) -> str:
    if v.on("use_megatron_fsdp") or v.on("use_torch_fsdp2"):
        return "FSDP"
    if v.on("fp16"):
        return "fp16"
    if v.code_date < LAYER_WISE_SINCE and v.on("use_distributed_optimizer"):
        return "the distributed optimizer (0.18 switches to a layer-wise one)"
    fmt = v.get("ckpt_format")
    return f"the checkpoint format {fmt}" if fmt not in (None, "torch", "torch_dist") else ""


MUON = Rule(
    id="muon-conditions",
    aliases=("R206",),
    area="optimizer",
    must="Muon and its kin are used without FSDP and fp16, saved as torch or torch_dist",
    why="They work on whole matrices; with the distributed optimizer they switch to a layer-wise one.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    mask=True,
    per_execution=True,
    applies=lambda v: v["optimizer"] in EMERGING,
    holds=lambda v: not _emerging_fault(v),
    message=lambda v: f"the {v['optimizer']} optimizer with {_emerging_fault(v)}",
    fix="use Adam, or drop what it does not work with",
    breaks=given(optimizer="muon", use_megatron_fsdp=True, ckpt_format="fsdp_dtensor"),
    passes=given(optimizer="muon", ckpt_format="torch_dist"),
)

FP32_GRADS = Rule(
    id="bf16-accumulates-fp32",
    aliases=("R201",),
    area="dp",
    must="bf16 training says in which type gradients are summed",
    why="Unless grad_reduce_in_bf16 is given, main gradients are fp32.",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    source=ARGUMENTS,
    applies=lambda v: v.on("bf16"),
    holds=lambda v: v.on("grad_reduce_in_bf16") or v.on("accumulate_allreduce_grads_in_fp32"),
    message="gradients are accumulated and reduced in fp32",
    fix="--grad-reduce-in-bf16 halves that memory and traffic",
    breaks=given(bf16=True),
    passes=given(bf16=True, grad_reduce_in_bf16=True),
)

RULES = (
    STATE_FP32,
    PRECISE,
    PRECISE_FLAGS,
    OFFLOAD,
    MUON,
    FP32_GRADS,
)
