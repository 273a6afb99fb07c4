"""Rules of the token dispatcher and its backends."""

from __future__ import annotations

from meshwright.layout.rules.routing import MOE
from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, LM, Rule, given
from meshwright.layout.rules.view import View

DISPATCHER = "megatron/core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher"
FLEX = "Megatron Bridge training/flex_dispatcher_backend.py, validate_flex_dispatcher_backend"
BACKENDS = ("deepep", "hybridep", "ncclep")
PACKAGES = {"deepep": "deep_ep", "hybridep": "deep_ep (hybrid-ep branch)", "ncclep": "nccl_ep"}


def flex(v: View) -> bool:
    return v.is_moe and v["moe_token_dispatcher_type"] == "flex"


def backend(v: View) -> str | None:
    """The backend of the flex dispatcher; DeepEP where only the old flag is set."""
    found = v.get("moe_flex_dispatcher_backend")
    if found is None and (v.on("moe_enable_deepep") or v.framework != "megatron-bridge"):
        return "deepep"
    return None if found is None else str(found)


KIND = Rule(
    id="dispatcher-kind",
    aliases=("R139",),
    area="dispatcher",
    must="the dispatcher is allgather, alltoall or flex",
    why="The experts' layer builds no other (alltoall_seq is gone).",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/moe/moe_layer.py, MoELayer",
    applies=lambda v: v.is_moe,
    holds=lambda v: v["moe_token_dispatcher_type"] in ("allgather", "alltoall", "flex"),
    message="{moe_token_dispatcher_type} is not a token dispatcher; known: allgather, alltoall, flex",
    fix="--moe-token-dispatcher-type alltoall",
    breaks=given(**MOE, moe_token_dispatcher_type="alltoall_seq"),
    passes=given(**MOE, moe_token_dispatcher_type="alltoall"),
)

ALLGATHER_VARIABLE = Rule(
    id="allgather-fixed-lengths",
    aliases=("R140",),
    area="dispatcher",
    must="the allgather dispatcher works on sequences of one length",
    why="A gather needs equal parts.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v["moe_token_dispatcher_type"] == "allgather",
    holds=lambda v: not v.on("variable_seq_lengths"),
    message="the allgather dispatcher with variable_seq_lengths",
    fix="--moe-token-dispatcher-type alltoall",
    breaks=given(**MOE, moe_token_dispatcher_type="allgather", variable_seq_lengths=True),
    passes=given(**MOE, moe_token_dispatcher_type="alltoall", variable_seq_lengths=True),
)

DEEPEP_FLAG = Rule(
    id="deepep-needs-flex",
    aliases=("R141",),
    area="dispatcher",
    must="moe_enable_deepep is used with the flex dispatcher and no other backend",
    why="DeepEP is a backend of that dispatcher.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.on("moe_enable_deepep"),
    holds=lambda v: (
        v["moe_token_dispatcher_type"] == "flex" and v.get("moe_flex_dispatcher_backend") != "hybridep"
    ),
    message="moe_enable_deepep with the {moe_token_dispatcher_type} dispatcher, backend "
    "{moe_flex_dispatcher_backend}",
    fix="--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
    breaks=given(**MOE, moe_enable_deepep=True, moe_token_dispatcher_type="alltoall"),
    passes=given(**MOE, moe_enable_deepep=True, moe_token_dispatcher_type="flex"),
)

SHARED_OVERLAP = Rule(
    id="shared-overlap-dispatcher",
    aliases=("R151",),
    area="dispatcher",
    must="the shared expert is overlapped with the alltoall or flex dispatcher",
    why="It runs beside their exchange.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: (
        v.on("moe_shared_expert_overlap") and v.get("moe_shared_expert_intermediate_size") is not None
    ),
    holds=lambda v: v["moe_token_dispatcher_type"] in ("alltoall", "flex"),
    message="moe_shared_expert_overlap with the {moe_token_dispatcher_type} dispatcher",
    fix="--moe-token-dispatcher-type alltoall",
    breaks=given(
        **MOE,
        moe_shared_expert_intermediate_size=1024,
        moe_shared_expert_overlap=True,
        moe_token_dispatcher_type="allgather",
    ),
    passes=given(
        **MOE,
        moe_shared_expert_intermediate_size=1024,
        moe_shared_expert_overlap=True,
        moe_token_dispatcher_type="alltoall",
    ),
)


def _old_sms(v: View) -> list[str]:
    return [name for name in ("moe_deepep_num_sms", "moe_hybridep_num_sms") if v.gave(name)]


OLD_SMS = Rule(
    id="dispatcher-sms-deprecated",
    aliases=("R157",),
    area="dispatcher",
    must="the SMs of the dispatcher are given as moe_flex_dispatcher_num_sms",
    why="The names by backend are deprecated; two different values raise.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    since="2026-06-15",
    source=CONFIG,
    holds=lambda v: not _old_sms(v),
    message=lambda v: f"{' and '.join(_old_sms(v))} are deprecated",
    fix="--moe-flex-dispatcher-num-sms",
    breaks=given(**MOE, moe_deepep_num_sms=20),
    passes=given(**MOE, moe_flex_dispatcher_num_sms=20),
)

FAKE = Rule(
    id="fake-group-no-flex",
    aliases=("R158",),
    area="dispatcher",
    must="a fake process group is not used with the flex dispatcher",
    why="Its backends talk to each other outside torch.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("fake_process_group"),
    holds=lambda v: not flex(v),
    message="fake_process_group with the flex dispatcher",
    fix="--moe-token-dispatcher-type alltoall",
    breaks=given(
        **MOE,
        world=8,
        ep=8,
        fake_process_group=True,
        moe_token_dispatcher_type="flex",
        moe_flex_dispatcher_backend="deepep",
    ),
    passes=given(**MOE, world=8, ep=8, fake_process_group=True, moe_token_dispatcher_type="alltoall"),
)

RULES = (
    KIND,
    ALLGATHER_VARIABLE,
    DEEPEP_FLAG,
    SHARED_OVERLAP,
    OLD_SMS,
    FAKE,
)
