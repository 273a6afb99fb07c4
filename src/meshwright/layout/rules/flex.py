"""Rules of the flex dispatcher's backends: DeepEP and HybridEP."""

from __future__ import annotations

from meshwright.layout.rules.dispatcher import BACKENDS, DISPATCHER, FLEX, PACKAGES, backend, flex
from meshwright.layout.rules.routing import MOE
from meshwright.layout.rules.rule import BRIDGE, CONFIG, CORE, Rule, given
from meshwright.layout.rules.view import Undecided, View

BACKEND = Rule(
    id="flex-backend",
    aliases=("R142",),
    area="dispatcher",
    must="the flex dispatcher has a backend: deepep, hybridep or ncclep",
    why="It is only a frame around one of them.",
    severity="error",
    enforced_by=CORE,
    source=DISPATCHER,
    applies=lambda v: flex(v) and v.framework != "megatron-bridge",
    holds=lambda v: backend(v) in BACKENDS,
    message="{moe_flex_dispatcher_backend} is not a backend of the flex dispatcher; known: deepep, "
    "hybridep, ncclep",
    fix="--moe-flex-dispatcher-backend deepep",
    breaks=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="nvshmem"
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)

BACKEND_UNSET = Rule(
    id="flex-backend-unset",
    aliases=("R155",),
    area="dispatcher",
    must="in Bridge the flex dispatcher names its backend",
    why="Without one Bridge falls back to alltoall.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source=FLEX,
    applies=flex,
    holds=lambda v: backend(v) is not None,
    message="the flex dispatcher has no backend and becomes alltoall",
    fix="moe_flex_dispatcher_backend=deepep or hybridep",
    breaks=given(**MOE, world=8, ep=8, moe_token_dispatcher_type="flex"),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)

BACKEND_GROUP = Rule(
    id="flex-needs-expert-group",
    aliases=("R143",),
    area="dispatcher",
    must="DeepEP and NCCL-EP need ETP*EP > 1",
    why="A group of one has nobody to send tokens to.",
    severity="error",
    enforced_by=CORE,
    source=DISPATCHER,
    mask=True,
    per_execution=True,
    applies=lambda v: flex(v) and backend(v) in ("deepep", "ncclep"),
    holds=lambda v: v.etp * v.ep > 1,
    message=lambda v: f"{backend(v)} with etp={v.etp}, ep={v.ep}: there is no group to exchange tokens in",
    fix="use ep of at least 2, or the alltoall dispatcher",
    breaks=given(**MOE, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)

DEEPEP_PAD = Rule(
    id="deepep-no-padding",
    aliases=("R144",),
    area="dispatcher",
    must="DeepEP is used without padding to capacity",
    why="It sends what there is.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: (
        flex(v) and (v.on("moe_enable_deepep") or v.get("moe_flex_dispatcher_backend") == "deepep")
    ),
    holds=lambda v: not v.on("moe_pad_expert_input_to_capacity"),
    message="DeepEP with moe_pad_expert_input_to_capacity",
    fix="drop the padding, or use the alltoall dispatcher",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        moe_expert_capacity_factor=1.0,
        moe_pad_expert_input_to_capacity=True,
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)


def _installed(v: View) -> bool:
    found = v.get("installed_packages")
    if found is None:
        raise Undecided("installed_packages")
    return str(backend(v)) in found


INSTALLED = Rule(
    id="flex-backend-installed",
    aliases=("R145",),
    area="dispatcher",
    must="the package of the flex backend is installed",
    why="It is imported when the model is built.",
    severity="error",
    enforced_by=CORE,
    source=DISPATCHER,
    applies=lambda v: flex(v) and backend(v) in BACKENDS,
    holds=_installed,
    message=lambda v: f"{PACKAGES[str(backend(v))]} is not installed",
    fix="install it, or use the alltoall dispatcher",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        installed_packages=(),
    ),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        installed_packages=("deepep",),
    ),
)

PROBABILITIES = Rule(
    id="deepep-fp32-router",
    aliases=("R146",),
    area="dispatcher",
    must="DeepEP needs router probabilities in fp32",
    why="Its kernels take no other type.",
    severity="error",
    enforced_by=CORE,
    source=DISPATCHER,
    applies=lambda v: flex(v) and backend(v) == "deepep",
    holds=lambda v: v.get("moe_router_dtype") == "fp32",
    message="DeepEP with moe_router_dtype {moe_router_dtype}: the first step stops",
    fix="--moe-router-dtype fp32",
    breaks=given(
        experts=64,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        moe_router_dtype=None,
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)

HYBRIDEP_FP8 = Rule(
    id="hybridep-no-fp8-dispatch",
    aliases=("R147",),
    area="dispatcher",
    must="HybridEP dispatches bf16",
    why="It has no fp8 path in Megatron Core.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/moe/fused_a2a.py",
    applies=lambda v: flex(v) and backend(v) == "hybridep",
    holds=lambda v: not v.on("moe_fp8_dispatch"),
    message="HybridEP with fp8 dispatch",
    fix="dispatch in bf16",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
        moe_fp8_dispatch=True,
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="hybridep"
    ),
)

BRIDGE_FLEX = Rule(
    id="bridge-flex-drops-shared-overlap",
    aliases=("R152",),
    area="dispatcher",
    must="Bridge's flex dispatcher is used without overlap of the shared expert",
    why="Selecting it switches moe_shared_expert_overlap off; on other GPUs it warns and takes alltoall.",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge training/flex_dispatcher_backend.py, apply_flex_dispatcher_backend",
    applies=lambda v: flex(v) and backend(v) is not None,
    holds=lambda v: not v.on("moe_shared_expert_overlap"),
    message="moe_shared_expert_overlap is switched off by the flex dispatcher",
    fix="drop moe_shared_expert_overlap",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        moe_shared_expert_overlap=True,
    ),
    passes=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep"
    ),
)


def _deepep_gpu(v: View) -> bool:
    name = str(v.get("gpu_name") or "").upper()
    return v.sm in (8, 9) or name.startswith(("B200", "B300", "NVIDIA B200", "NVIDIA B300"))


DEEPEP_GPU = Rule(
    id="deepep-gpu",
    aliases=("R153",),
    area="dispatcher",
    must="DeepEP runs on Ampere, Hopper, B200 or B300",
    why="Bridge refuses it elsewhere: GB200 and GB300 by their name.",
    severity="error",
    enforced_by=BRIDGE,
    since="2025-11-19",
    mask=True,
    per_execution=True,
    source=FLEX,
    applies=lambda v: flex(v) and backend(v) == "deepep",
    holds=_deepep_gpu,
    message="DeepEP on {gpu_name} (compute capability {compute_capability})",
    fix="use HybridEP (moe_flex_dispatcher_backend=hybridep) or alltoall",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        compute_capability="10.0",
        gpu_name="GB200-NVL72",
    ),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
        compute_capability="9.0",
        gpu_name="H100-80GB-SXM",
    ),
)

HYBRIDEP_GPU = Rule(
    id="hybridep-gpu",
    aliases=("R154",),
    area="dispatcher",
    must="HybridEP runs on compute capability 8, 9 or 10",
    why="Bridge refuses it elsewhere.",
    severity="error",
    enforced_by=BRIDGE,
    mask=True,
    per_execution=True,
    source=FLEX,
    applies=lambda v: flex(v) and backend(v) == "hybridep",
    holds=lambda v: v.sm in (8, 9, 10),
    message="HybridEP on compute capability {compute_capability}",
    fix="use the alltoall dispatcher",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
        compute_capability="12.0",
    ),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
        compute_capability="10.0",
    ),
)

HYBRIDEP_EAGER = Rule(
    id="hybridep-eager-padding",
    aliases=("R156",),
    area="dispatcher",
    must="HybridEP without CUDA graphs pads uneven inputs",
    why="Bridge turns the padding on, which costs one more all-reduce (MAX).",
    severity="warn",
    enforced_by=BRIDGE,
    effect="fills",
    source="Megatron Bridge models/transformer_config.py, _enable_safe_hybridep_dispatch",
    applies=lambda v: flex(v) and backend(v) == "hybridep",
    holds=lambda v: v["cuda_graph_impl"] != "none",
    message="uneven-input padding is turned on for HybridEP",
    fix="nothing to do",
    breaks=given(
        **MOE, world=8, ep=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="hybridep"
    ),
    passes=given(
        **MOE,
        world=8,
        ep=8,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="hybridep",
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["moe_router"],
    ),
)

RULES = (
    BACKEND,
    BACKEND_UNSET,
    BACKEND_GROUP,
    DEEPEP_PAD,
    INSTALLED,
    PROBABILITIES,
    HYBRIDEP_FP8,
    BRIDGE_FLEX,
    DEEPEP_GPU,
    HYBRIDEP_GPU,
    HYBRIDEP_EAGER,
)
