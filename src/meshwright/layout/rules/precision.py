"""Rules of number formats."""

from __future__ import annotations

from meshwright.layout.rules.rule import (
    ARGUMENTS,
    BRIDGE,
    BRIDGE_CONFIG,
    CONFIG,
    CORE,
    LM,
    Rule,
    given,
)
from meshwright.layout.rules.view import View

OPTIMIZER = "megatron/core/optimizer/optimizer_config.py"


def _mxfp8(v: View) -> bool:
    return bool(v.get("fp8")) and v["fp8_recipe"] == "mxfp8"


FP8_GATHER = Rule(
    id="fp8-gather-needs-sharding",
    aliases=("R200",),
    area="dp",
    must="fp8_param_gather needs the distributed optimizer or FSDP",
    why="Without sharded parameters nothing is gathered.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("fp8_param"),
    holds=lambda v: any(
        v.on(name) for name in ("use_distributed_optimizer", "use_torch_fsdp2", "use_megatron_fsdp")
    ),
    message="fp8_param_gather with plain data parallelism",
    fix="--use-distributed-optimizer",
    breaks=given(fp8="e4m3", fp8_param_gather=True, use_distributed_optimizer=False),
    passes=given(fp8="e4m3", fp8_param_gather=True, use_distributed_optimizer=True),
)

ONE_FORMAT = Rule(
    id="one-number-format",
    aliases=("R207",),
    area="precision",
    must="fp16 and bf16 are not both on, nor fp8 and fp4",
    why="Each names the type of the same numbers.",
    severity="error",
    enforced_by=CORE,
    source=f"{CONFIG}; {ARGUMENTS}",
    holds=lambda v: not (v.on("fp16") and v.on("bf16")) and not (v.get("fp8") and v.get("fp4")),
    message=lambda v: f"{'fp16 and bf16' if v.on('fp16') and v.on('bf16') else 'fp8 and fp4'} are both on",
    fix="keep one of them",
    breaks=given(fp16=True, bf16=True),
    passes=given(bf16=True),
)


def _needs_format(v: View) -> str:
    if v.on("fp8_param") and not v.get("fp8"):
        return "fp8_param without fp8"
    if v.on("fp8_output_proj") and not _mxfp8(v):
        return "fp8_output_proj without mxfp8"
    return "fp4_param without fp4" if v.on("fp4_param") and not v.get("fp4") else ""


NEEDS_FORMAT = Rule(
    id="format-options-need-format",
    aliases=("R208",),
    area="precision",
    must="fp8_param needs fp8, fp8_output_proj needs mxfp8, fp4_param needs fp4",
    why="They are parts of those formats.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    holds=lambda v: not _needs_format(v),
    message=_needs_format,
    fix="switch the format on, or drop the option",
    breaks=given(bf16=True, fp8_param=True),
    passes=given(bf16=True, fp8="e4m3", fp8_param=True, use_distributed_optimizer=True),
)

FP4_TE = Rule(
    id="fp4-needs-te",
    aliases=("R209",),
    area="precision",
    must="fp4 needs Transformer Engine 2.7",
    why="Older ones have no NVFP4 scaling.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: bool(v.get("fp4")),
    holds=lambda v: v.release("te_version") >= (2, 7),
    message="fp4 with Transformer Engine {te_version}",
    fix="update Transformer Engine",
    breaks=given(fp4="e2m1", te_version="2.6"),
    passes=given(fp4="e2m1", te_version="2.7"),
)


def _bf16_ends_fault(v: View) -> str:
    if v["fp8_recipe"] == "delayed":
        return "delayed scaling does not keep first or last layers in bf16"
    most = v.layers // v.pp
    for where in ("start", "end"):
        count = v.get(f"num_layers_at_{where}_in_bf16", 1)
        if not 0 <= count <= most:
            return f"num_layers_at_{where}_in_bf16 {count} is outside 0 .. {most} layers a stage"
    return ""


BF16_ENDS = Rule(
    id="bf16-ends-fit-stage",
    aliases=("R210",),
    area="precision",
    must="bf16 layers at the ends fit the first and last stage, and the fp8 recipe is not delayed",
    why="They are counted inside one stage.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("first_last_layers_bf16") and bool(v.get("fp8")),
    holds=lambda v: not _bf16_ends_fault(v),
    message=_bf16_ends_fault,
    fix=lambda v: f"use at most {v.layers // v.pp} layers, and fp8_recipe tensorwise or newer",
    breaks=given(
        layers=32,
        pp=8,
        fp8="e4m3",
        fp8_recipe="tensorwise",
        first_last_layers_bf16=True,
        num_layers_at_start_in_bf16=5,
    ),
    passes=given(
        layers=32,
        pp=8,
        fp8="e4m3",
        fp8_recipe="tensorwise",
        first_last_layers_bf16=True,
        num_layers_at_start_in_bf16=4,
    ),
)

MXFP8_REUSE = Rule(
    id="mxfp8-gather-reuses-buffer",
    aliases=("R211",),
    area="precision",
    must="mxfp8 with fp8_param_gather (no FSDP) reuses the gradient buffer",
    why="Bridge asks for it: the gather would need a second buffer otherwise.",
    severity="error",
    enforced_by=BRIDGE,
    source=BRIDGE_CONFIG,
    applies=lambda v: _mxfp8(v) and v.on("fp8_param") and not v.on("use_megatron_fsdp"),
    holds=lambda v: v.on("reuse_grad_buf_for_mxfp8_param_ag"),
    message="mxfp8 with fp8_param_gather and without reuse_grad_buf_for_mxfp8_param_ag",
    fix="reuse_grad_buf_for_mxfp8_param_ag=true",
    breaks=given(fp8="e4m3", fp8_recipe="mxfp8", fp8_param_gather=True),
    passes=given(
        fp8="e4m3", fp8_recipe="mxfp8", fp8_param_gather=True, reuse_grad_buf_for_mxfp8_param_ag=True
    ),
)

MXFP8_MEMORY = Rule(
    id="mxfp8-buffer-memory",
    aliases=("R212",),
    area="precision",
    must="mxfp8 parameters reuse the gradient buffer",
    why="Megatron Core warns of the extra memory otherwise.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    source=OPTIMIZER,
    applies=lambda v: (
        _mxfp8(v) and v.on("fp8_param") and v.framework != "megatron-bridge" and not v.on("use_megatron_fsdp")
    ),
    holds=lambda v: v.on("reuse_grad_buf_for_mxfp8_param_ag"),
    message="mxfp8 parameters without reuse_grad_buf_for_mxfp8_param_ag need a second buffer",
    fix="--reuse-grad-buf-for-mxfp8-param-ag",
    breaks=given(fp8="e4m3", fp8_recipe="mxfp8", fp8_param=True, use_distributed_optimizer=True),
    passes=given(
        fp8="e4m3",
        fp8_recipe="mxfp8",
        fp8_param=True,
        use_distributed_optimizer=True,
        reuse_grad_buf_for_mxfp8_param_ag=True,
    ),
)

CROSS_ENTROPY = Rule(
    id="cross-entropy-te",
    aliases=("R213",),
    area="precision",
    must="the fused cross entropy is the native one",
    why="Megatron-LM refuses that of Transformer Engine (Megatron Core warns): its gradients were found "
    "wrong.",
    severity="error",
    enforced_by=LM,
    since="2026-06-03",
    source=ARGUMENTS,
    applies=lambda v: v.on("cross_entropy_loss_fusion"),
    holds=lambda v: v.get("cross_entropy_fusion_impl", "native") != "te",
    message="cross entropy fusion te",
    fix="--cross-entropy-fusion-impl native",
    breaks=given(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te"),
    passes=given(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="native"),
)

CROSS_ENTROPY_WARN = Rule(
    id="cross-entropy-te-warning",
    area="precision",
    must="the fused cross entropy is the native one",
    why="Megatron Core warns of the one of Transformer Engine; Bridge's performance recipes still set it.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    since="2026-06-03",
    source="megatron/core/model_parallel_config.py, __post_init__",
    applies=lambda v: v.on("cross_entropy_loss_fusion") and v.framework != "megatron-lm",
    holds=lambda v: v.get("cross_entropy_fusion_impl", "native") != "te",
    message="cross entropy fusion te: Megatron Core advises against it",
    fix="cross_entropy_fusion_impl=native",
    breaks=given(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te"),
    passes=given(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="native"),
)

FP16_NAN = Rule(
    id="fp16-nan-check-off",
    aliases=("R214",),
    area="precision",
    must="fp16 with dynamic loss scaling does not check for NaN",
    why="A NaN is how the scale finds its limit; Megatron-LM switches the check off.",
    severity="warn",
    enforced_by=LM,
    effect="changes",
    source=ARGUMENTS,
    applies=lambda v: v.on("fp16") and not v.get("loss_scale"),
    holds=lambda v: v.said.get("check_for_nan_in_loss_and_grad") is not True,
    message="check_for_nan_in_loss_and_grad is switched off with dynamic fp16 scaling",
    fix="drop the check, or give --loss-scale",
    breaks=given(fp16=True, check_for_nan_in_loss_and_grad=True),
    passes=given(fp16=True),
)

LEAST_SM = {"mxfp8": 10, "blockwise": 9}


def _least_sm(v: View) -> int:
    """Compute capability that the number format asks for."""
    return 10 if v.get("fp4") else LEAST_SM.get(v["fp8_recipe"], 8)


FORMAT_GPU = Rule(
    id="number-format-needs-gpu",
    aliases=(),
    area="precision",
    must="MXFP8 and NVFP4 need Blackwell or newer, block-scaled FP8 Hopper or newer",
    why="Transformer Engine refuses the recipe where the tensor cores lack its scaling.",
    severity="error",
    enforced_by=CORE,
    source="transformer_engine/pytorch/fp8.py, check_mxfp8_support, check_nvfp4_support, "
    "check_fp8_block_scaling_support",
    applies=lambda v: bool(v.get("fp4")) or (bool(v.get("fp8")) and v["fp8_recipe"] in LEAST_SM),
    holds=lambda v: v.sm >= _least_sm(v),
    message=lambda v: (
        f"{'fp4' if v.get('fp4') else v['fp8_recipe']} on compute capability {v.sm}.x; "
        f"it needs {_least_sm(v)}.0 or newer"
    ),
    fix="--fp8-recipe tensorwise or delayed",
    breaks=given(fp8="e4m3", fp8_recipe="mxfp8", compute_capability="9.0"),
    passes=given(fp8="e4m3", fp8_recipe="mxfp8", compute_capability="10.0"),
)

RULES = (
    FORMAT_GPU,
    FP8_GATHER,
    ONE_FORMAT,
    NEEDS_FORMAT,
    FP4_TE,
    BF16_ENDS,
    MXFP8_REUSE,
    MXFP8_MEMORY,
    CROSS_ENTROPY,
    CROSS_ENTROPY_WARN,
    FP16_NAN,
)
