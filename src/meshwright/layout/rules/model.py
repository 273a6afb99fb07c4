"""Rules of the model's own options."""

from __future__ import annotations

from meshwright.layout.rules.numbers import divisors_around
from meshwright.layout.rules.rule import CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

FFN_UNSET = Rule(
    id="ffn-unset",
    aliases=("R259",),
    area="model",
    must="the width of the feed-forward block is given",
    why="Unset it is 4 times the hidden size; in Megatron-LM with SwiGLU two thirds of that, rounded to 64.",
    severity="warn",
    enforced_by=(*LM, *CORE),
    effect="fills",
    source=f"megatron/training/arguments.py, validate_args; {CONFIG}",
    applies=lambda v: v.get("hidden_size") is not None,
    holds=lambda v: v.gave("ffn_hidden_size"),
    message="feed-forward width unset: {ffn_hidden_size}",
    fix="give --ffn-hidden-size",
    breaks=given(hidden=4096, swiglu=True),
    passes=given(hidden=4096, swiglu=True, ffn=10880),
)


def _mhc_fault(v: View) -> str:
    faults = {
        f"pp={v.pp}": v.pp > 1,
        f"{v.get('mtp_num_layers')} MTP layers": bool(v.get("mtp_num_layers")),
        "full recompute": v.get("recompute_granularity") == "full",
        "an fp32 residual": v.on("fp32_residual_connection"),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


MHC = Rule(
    id="hyper-connections-conditions",
    aliases=("R261",),
    area="model",
    must="hyper-connections have PP 1, no MTP, no full recompute, no fp32 residual",
    why="Several residual streams would have to pass between stages. (DeepSeek-V4 recipes use another "
    "branch.)",
    severity="error",
    enforced_by=CORE,
    since="2026-08-17",
    source=CONFIG,
    applies=lambda v: v.on("enable_mhc_connections"),
    holds=lambda v: not _mhc_fault(v),
    message=lambda v: f"hyper-connections do not work with {_mhc_fault(v)}",
    fix="use pp 1 without MTP",
    breaks=given(layers=32, pp=2, enable_mhc_connections=True),
    passes=given(layers=32, pp=1, enable_mhc_connections=True),
)

DSA = Rule(
    id="dsa-conditions",
    aliases=("R262",),
    area="model",
    must="sparse attention (DSA) has no linear biases and no fused rotary embedding",
    why="Its absorbed projections have no place for them.",
    severity="error",
    enforced_by=CORE,
    since="2026-06-25",
    source=CONFIG,
    applies=lambda v: v.get("experimental_attention_variant") == "dsa",
    holds=lambda v: not v.on("add_bias_linear") and not v.on("apply_rope_fusion"),
    message="DSA with add_bias_linear {add_bias_linear}, apply_rope_fusion {apply_rope_fusion}",
    fix="--disable-bias-linear --no-rope-fusion",
    breaks=given(experimental_attention_variant="dsa", add_bias_linear=True),
    passes=given(experimental_attention_variant="dsa", add_bias_linear=False),
)


def _no_rope_fault(v: View) -> str:
    freq = v["no_rope_freq"]
    if isinstance(freq, (list, tuple)):
        return f"{len(freq)} entries for {v.layers} layers" if len(freq) != v.layers else ""
    return f"{freq} does not divide {v.layers} layers" if freq and v.layers % freq else ""


NO_ROPE = Rule(
    id="no-rope-freq-divides",
    aliases=("R263",),
    area="model",
    must="no_rope_freq divides the layers, or is a list with one entry each",
    why="Every so many layers have no rotary positions.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.get("no_rope_freq") is not None,
    holds=lambda v: not _no_rope_fault(v),
    message=lambda v: f"no_rope_freq: {_no_rope_fault(v)}",
    nearest=lambda v: (
        divisors_around(v.layers, v["no_rope_freq"]) if isinstance(v["no_rope_freq"], int) else ()
    ),
    fix="use a divisor of the layers",
    breaks=given(layers=30, no_rope_freq=4),
    passes=given(layers=48, no_rope_freq=4),
)


def _mla_fault(v: View) -> str:
    if v.on("rotary_interleaved"):
        return "interleaved rotary embedding"
    if v.on("apply_rope_fusion") and v.get("rope_type", "yarn") != "yarn":
        return f"the fused {v['rope_type']} embedding (only yarn is fused)"
    return "an output gate" if v.on("attention_output_gate") else ""


MLA = Rule(
    id="mla-rope",
    aliases=("R264",),
    area="model",
    must="multi-latent attention has no interleaved rotary embedding and no output gate; its fusion is for "
    "yarn",
    why="Its rotary part is a separate slice of each head.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("multi_latent_attention"),
    holds=lambda v: not _mla_fault(v),
    message=lambda v: f"multi-latent attention with {_mla_fault(v)}",
    fix="rope_type yarn, or --no-rope-fusion",
    breaks=given(multi_latent_attention=True, apply_rope_fusion=True, rope_type="rope"),
    passes=given(multi_latent_attention=True, apply_rope_fusion=True, rope_type="yarn"),
)

RULES = (FFN_UNSET, MHC, DSA, NO_ROPE, MLA)
