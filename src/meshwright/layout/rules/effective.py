"""What a framework makes of the options: defaults, and values it fills in or switches off.

The one place where frameworks and versions differ in what unset options mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshwright.facts import load_json
from meshwright.layout.rules.view import UNKNOWN, Fill

NAMES = {
    "megatron-core": "Megatron Core",
    "megatron-lm": "Megatron-LM",
    "megatron-bridge": "Megatron Bridge",
}
BRIDGE_ETP_SINCE = "2026-07-01"
"""Since then an unset ETP means 1 in Megatron Bridge when EP > 1."""

ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")

Options = dict[str, Any]


def defaults(framework: str) -> Options:
    """Values of unset options in a framework."""
    table = load_json("meshwright.layout.rules", "defaults.json")
    return {**table["common"], **table[framework]}


class _Noting(Options):
    """Options that note which of them are read."""

    def __init__(self, values: Mapping[str, Any], seen: set[str]) -> None:
        super().__init__(values)
        self.seen = seen

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)


def merged(said: Mapping[str, Any], framework: str) -> Options:
    """What was said over the framework's defaults, nothing filled in yet."""
    options: Options = {**defaults(framework), **{k: v for k, v in said.items() if v is not None}}
    for name, value in said.items():
        options.setdefault(name, value)
    return options


def effective(
    said: Mapping[str, Any], framework: str, code_date: str, seen: set[str] | None = None
) -> tuple[Options, tuple[Fill, ...]]:
    """Effective options, and what was filled in that the defaults table cannot say.

    seen  takes the names of the options that filling in reads
    """
    options = merged(said, framework)
    if seen is not None:
        options = _Noting(options, seen)
    fills: list[Fill] = []
    for step in (_hybrid, _pipeline, _grids, _model, _batch, _recompute, _data_parallel):
        fills += step(options, framework, code_date)
    return options, tuple(fills)


def _known(options: Options, *names: str) -> bool:
    """Whether all of them have a value: given, not None, readable."""
    return all(options.get(name) is not None and options[name] is not UNKNOWN for name in names)


def _set(options: Options, name: str, value: Any, source: str) -> list[Fill]:
    """Fill an option in unless it was given."""
    if options.get(name) is not None:
        return []
    options[name] = value
    return [Fill(option=name, value=value, source=source)]


def _hybrid(options: Options, framework: str, _: str) -> list[Fill]:
    """Layers, MTP layers and chunks that a hybrid pattern decides, whatever else was given."""
    pattern = options.get("hybrid_layer_pattern")
    pp = options["pipeline_model_parallel_size"]
    if not isinstance(pattern, str):
        return []
    from meshwright.layout.rules.hybrid import parsed

    found = parsed(pattern)
    if isinstance(found, str):
        return []
    segments, modules = found
    options["num_layers"] = sum(len(segment) for segment in segments)
    if modules:
        options["mtp_num_layers"] = len(modules)
    if pp is UNKNOWN or len(segments) % pp or len(segments) <= pp:
        return []
    name = NAMES[framework]
    vpp = "virtual_pipeline_model_parallel_size"
    return _set(options, vpp, len(segments) // pp, f"{name}: segments of the pattern / PP")


def _pipeline(options: Options, framework: str, _: str) -> list[Fill]:
    """The virtual size from its other spellings; overlap of point-to-point; the pipeline dtype."""
    fills: list[Fill] = []
    name = NAMES[framework]
    vpp = "virtual_pipeline_model_parallel_size"
    pp = options["pipeline_model_parallel_size"]
    layout = options.get("pipeline_model_parallel_layout")
    if _known(options, "num_virtual_stages_per_pipeline_rank"):
        fills += _set(options, vpp, options["num_virtual_stages_per_pipeline_rank"], f"{name}: chunks a rank")
    elif _known(options, "num_layers_per_virtual_pipeline_stage", "num_layers") and pp is not UNKNOWN:
        counted = sum(bool(options.get(name)) for name in ACCOUNTS)
        per_stage = (options["num_layers"] + counted) // pp
        chunks = max(per_stage // max(options["num_layers_per_virtual_pipeline_stage"], 1), 1)
        fills += _set(options, vpp, chunks, f"{name}: layers a stage / layers a chunk")
    elif layout and layout is not UNKNOWN and pp is not UNKNOWN:
        stages = _layout_stages(layout)
        if stages and stages % pp == 0 and stages > pp:
            fills += _set(options, vpp, stages // pp, f"{name}: stages of the layout / PP")
    if framework != "megatron-core":
        if _known(options, vpp) and np.ndim(options[vpp]) == 0 and options[vpp] == 1:
            options[vpp] = None
        fills += _point_to_point(options, framework)
        if options.get("pipeline_dtype") is None:
            options["pipeline_dtype"] = "params_dtype"
    if _known(options, "fp32_residual_connection") and options["fp32_residual_connection"]:
        options["pipeline_dtype"] = "fp32"
    if pp is not UNKNOWN and options.get("microbatch_group_size_per_vp_stage") is None:
        options["microbatch_group_size_per_vp_stage"] = pp
    return fills


def _layout_stages(layout: Any) -> int:
    """Number of stages in a layout; 0 when it cannot be parsed (the layout rules say why)."""
    from meshwright.layout.rules.layouts import stages_of

    stages = stages_of(layout)
    return 0 if isinstance(stages, str) else len(stages)


def _point_to_point(options: Options, framework: str) -> list[Fill]:
    """Megatron-LM and Bridge overlap point-to-point exactly when interleaving, unless told not to."""
    vpp = options.get("virtual_pipeline_model_parallel_size")
    if vpp is UNKNOWN:
        options["overlap_p2p_comm"] = options.get("overlap_p2p_comm") or UNKNOWN
        return []
    interleaved = False if vpp is None else vpp > 1
    wanted = options.get("overlap_p2p_comm")
    options["overlap_p2p_comm"] = interleaved if wanted is None or wanted is True else wanted
    if options.get("batch_p2p_comm") is None:
        options["batch_p2p_comm"] = np.logical_not(options["overlap_p2p_comm"])
    return []


def _grids(options: Options, framework: str, code_date: str) -> list[Fill]:
    """SP at TP=1, and the expert tensor parallel size when nobody gave it."""
    name = NAMES[framework]
    tp, ep = options["tensor_model_parallel_size"], options["expert_model_parallel_size"]
    if framework != "megatron-core" and tp is not UNKNOWN and _known(options, "sequence_parallel"):
        options["sequence_parallel"] = options["sequence_parallel"] & (tp > 1)
    if options.get("expert_tensor_parallel_size") is not None:
        return []
    if framework == "megatron-bridge" and code_date >= BRIDGE_ETP_SINCE:
        if ep is UNKNOWN:
            options["expert_tensor_parallel_size"] = UNKNOWN
            return []
        if np.all(ep > 1):
            return _set(options, "expert_tensor_parallel_size", 1, f"{name}: ETP unset with EP>1 is 1")
    return _set(options, "expert_tensor_parallel_size", tp, f"{name}: ETP unset equals TP")


def _model(options: Options, framework: str, _: str) -> list[Fill]:
    """Widths and head counts that follow from others."""
    name = NAMES[framework]
    fills: list[Fill] = []
    if framework == "megatron-lm" and options.get("group_query_attention") is False:
        options["num_query_groups"] = options.get("num_attention_heads")
    if _known(options, "num_attention_heads"):
        fills += _set(options, "num_query_groups", options["num_attention_heads"], f"{name}: one a head")
    if _known(options, "hidden_size"):
        hidden = options["hidden_size"]
        gated = framework == "megatron-lm" and options.get("swiglu")
        width = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        fills += _set(options, "ffn_hidden_size", width, f"{name}: from the hidden size")
    if _known(options, "num_moe_experts", "ffn_hidden_size"):
        fills += _set(options, "moe_ffn_hidden_size", options["ffn_hidden_size"], f"{name}: the dense width")
    return fills + _vocabulary(options, framework)


def _vocabulary(options: Options, framework: str) -> list[Fill]:
    """The padded vocabulary: a multiple of make_vocab_size_divisible_by * TP."""
    tp = options["tensor_model_parallel_size"]
    if not _known(options, "vocab_size") or tp is UNKNOWN:
        return []
    padded = options["vocab_size"]
    if options.get("should_pad_vocab"):
        step = options["make_vocab_size_divisible_by"] * tp
        padded = -(-padded // step) * step
    return _set(options, "padded_vocab_size", padded, f"{NAMES[framework]}: vocabulary padded for TP")


def _batch(options: Options, framework: str, _: str) -> list[Fill]:
    """The global batch when nobody gave it: one micro-batch a data-parallel rank (Megatron-LM)."""
    degrees = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    if framework != "megatron-lm" or not _known(options, "world_size", "micro_batch_size", *degrees):
        return []
    grid = options[degrees[0]] * options[degrees[1]] * options[degrees[2]]
    if np.ndim(grid) or options["world_size"] % grid or options.get("step_batch_size_schedule"):
        return []
    value = options["micro_batch_size"] * (options["world_size"] // grid)
    return _set(options, "global_batch_size", value, "Megatron-LM: MBS * DP")


def _recompute(options: Options, framework: str, _: str) -> list[Fill]:
    if options.get("recompute_granularity") != "selective" or options.get("recompute_modules"):
        return []
    options["recompute_modules"] = None
    return _set(options, "recompute_modules", ["core_attn"], f"{NAMES[framework]}: selective recompute")


def _data_parallel(options: Options, framework: str, _: str) -> list[Fill]:
    """What Megatron FSDP and Bridge switch on by themselves."""
    if framework == "megatron-core":
        return []
    fsdp = options.get("use_megatron_fsdp") is True and not options.get("use_megatron_fsdp_v2")
    gathers = framework == "megatron-bridge" and options.get("overlap_param_gather") is True
    if (fsdp or gathers) and not options.get("use_distributed_optimizer"):
        options["use_distributed_optimizer"] = True
        return [
            Fill(
                option="use_distributed_optimizer",
                value=True,
                source=f"{NAMES[framework]}: {'Megatron FSDP' if fsdp else 'overlap of the gather'} needs it",
            )
        ]
    return []
