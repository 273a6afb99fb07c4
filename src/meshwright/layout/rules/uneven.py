"""Rules of uneven splits and of the options that describe a pipeline."""

from __future__ import annotations

from meshwright.layout.rules.pipeline import split_kind
from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, LM, PARALLEL_CONFIG, Rule, given
from meshwright.layout.rules.view import View


def ends(v: View) -> tuple[int | None, int | None]:
    """Layers given to the first and to the last stage."""
    return v.get("num_layers_in_first_pipeline_stage"), v.get("num_layers_in_last_pipeline_stage")


def middle(v: View) -> tuple[int, int]:
    """Layers and stages that are left between the given ends."""
    given_ends = [layers for layers in ends(v) if layers is not None]
    return v.layers - sum(given_ends), int(v.pp) - len(given_ends)


def per_rank(v: View) -> tuple[int, ...]:
    """Layers of every stage, of a first/last split that divides."""
    first, last = ends(v)
    layers, stages = middle(v)
    between = [layers // stages] * stages if stages else []
    return tuple(([first] if first is not None else []) + between + ([last] if last is not None else []))


def _middle_ok(v: View) -> bool:
    layers, stages = middle(v)
    return bool(layers) == bool(stages) and (not stages or (layers > 0 and layers % stages == 0))


def _middle_message(v: View) -> str:
    layers, stages = middle(v)
    rest = f" ({layers} % {stages} = {layers % stages})" if stages > 0 else ""
    return (
        f"{v.layers} layers less {sum(e for e in ends(v) if e)} at the ends leave {layers} for {stages} "
        f"stages"
        f"{rest}"
    )


def _legal_last(v: View) -> tuple[int, ...]:
    """Sizes of the last stage that let the rest divide (with the first as given)."""
    first, _ = ends(v)
    stages = int(v.pp) - 1 - (first is not None)
    rest = v.layers - (first or 0)
    if stages < 1:
        return (rest,) if rest > 0 else ()
    share = rest / (stages + 1)
    legal = [
        last for last in range(1, min(rest, 10_000)) if (rest - last) % stages == 0 and rest - last >= stages
    ]
    return tuple(sorted(sorted(legal, key=lambda last: abs(last - share))[:2]))


def _middle_fix(v: View) -> str:
    legal = _legal_last(v)
    words = f"let the last stage have {' or '.join(map(str, legal))} layers, or " if legal else ""
    return f"{words}give a layout string"


DTYPE = Rule(
    id="pipeline-dtype",
    aliases=("R074", "R075"),
    area="pp",
    must="with PP > 1 the dtype of what passes between stages is given",
    why="The receiver must know what to allocate. Bridge and Megatron-LM take the dtype of the parameters.",
    severity="error",
    enforced_by=CORE,
    source=PARALLEL_CONFIG,
    applies=lambda v: v.pp > 1,
    holds=lambda v: v.get("pipeline_dtype") is not None,
    message="pp={pp} without a pipeline_dtype",
    fix="pipeline_dtype=torch.bfloat16",
    breaks=given(layers=32, pp=2, pipeline_dtype=None),
    passes=given(layers=32, pp=2, pipeline_dtype="bf16"),
)

FP32_RESIDUAL = Rule(
    id="fp32-residual-dtype",
    aliases=("R076",),
    area="pp",
    must="with fp32_residual_connection, stages exchange fp32",
    why="The pipeline dtype is forced to fp32, which doubles that traffic.",
    severity="warn",
    enforced_by=CORE,
    effect="changes",
    source=CONFIG,
    applies=lambda v: v.on("fp32_residual_connection") and v.pp > 1,
    holds=lambda v: v.said.get("pipeline_dtype") in ("fp32", "float32"),
    message="fp32_residual_connection: stages (pp {pp}) exchange fp32 whatever pipeline_dtype says",
    fix="pipeline_dtype=fp32, or drop fp32_residual_connection",
    breaks=given(layers=32, pp=2, pipeline_dtype="bf16", fp32_residual_connection=True),
    passes=given(layers=32, pp=2, pipeline_dtype="fp32", fp32_residual_connection=True),
)

ONE_SPELLING = Rule(
    id="one-way-to-say-vpp",
    aliases=("R079",),
    area="pp",
    must="at most one of layers a chunk, chunks a rank and a layout is given",
    why="Each of them says how a rank is divided.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    holds=lambda v: len(_spellings(v)) <= 1,
    message=lambda v: f"{' and '.join(_spellings(v))} are given together",
    fix="keep one of them",
    breaks=given(
        layers=32,
        pp=4,
        num_layers_per_virtual_pipeline_stage=2,
        num_virtual_stages_per_pipeline_rank=4,
    ),
    passes=given(layers=32, pp=4, num_virtual_stages_per_pipeline_rank=4),
)


def _spellings(v: View) -> list[str]:
    names = (
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "pipeline_model_parallel_layout",
    )
    return [name for name in names if v.gave(name)]


_VPP_NAMES = ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")

VPP_ONE = Rule(
    id="vpp-one-is-off",
    aliases=("R081", "R082"),
    area="pp",
    must="a virtual size is above 1",
    why="One chunk a rank is no interleaving: it is switched off, and with it the point-to-point overlap.",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    source=ARGUMENTS,
    applies=lambda v: any(v.gave(name) for name in (*_VPP_NAMES, "num_layers_per_virtual_pipeline_stage")),
    holds=lambda v: v.vpp > 1,
    message="one chunk a rank: interleaving and point-to-point overlap are switched off",
    fix="drop the virtual size, or use at least 2",
    breaks=given(layers=32, pp=4, num_virtual_stages_per_pipeline_rank=1),
    passes=given(layers=32, pp=4, num_virtual_stages_per_pipeline_rank=2),
)

ENDS_POSITIVE = Rule(
    id="end-stages-positive",
    aliases=("R083",),
    area="pp",
    must="the first and the last stage have at least one layer where their number is given",
    why="Zero is not a stage; leave the option out to share evenly.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: split_kind(v) == "ends",
    holds=lambda v: all(layers is None or layers > 0 for layers in ends(v)),
    message="the first and last stage are given {num_layers_in_first_pipeline_stage} and "
    "{num_layers_in_last_pipeline_stage} layers; each must be at least 1",
    fix="give at least 1, or drop the option",
    breaks=given(layers=32, pp=4, first=0),
    passes=given(layers=32, pp=4, first=5),
)

ENDS_MIDDLE = Rule(
    id="middle-stages-divide",
    aliases=("R085",),
    area="pp",
    must="the layers between the given ends are a multiple of the stages between them",
    why="The stages in the middle share evenly.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: split_kind(v) == "ends" and all(e is None or e > 0 for e in ends(v)),
    holds=_middle_ok,
    message=_middle_message,
    fix=_middle_fix,
    breaks=given(layers=61, pp=16, first=4, last=4),
    passes=given(layers=61, pp=16, last=1),
)


def _ranks_ok(v: View) -> bool:
    return all(layers % v.vpp == 0 for layers in per_rank(v))


ENDS_VPP = Rule(
    id="uneven-stages-divide-by-vpp",
    aliases=("R084",),
    area="pp",
    must="with VPP, first, last and middle stages each have a multiple of VPP layers",
    why="Every chunk of a rank holds the same number of layers.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: split_kind(v) == "ends" and v.vpp > 1 and _middle_ok(v),
    holds=_ranks_ok,
    message=lambda v: (
        f"stages of {'/'.join(map(str, dict.fromkeys(per_rank(v))))} layers do not all divide into "
        f"vpp={v.vpp} chunks"
    ),
    fix=lambda v: f"use multiples of {v.vpp} layers for the end stages, or a layout string",
    breaks=given(layers=31, pp=4, vpp=2, first=7),
    passes=given(layers=32, pp=4, vpp=2, first=8),
)

ENDS_LEAVE_MIDDLE = Rule(
    id="vpp-needs-middle-stage",
    area="pp",
    must="with VPP, given first and last stages leave a stage between them (PP > 2)",
    why="The layer offset of a chunk is divided by the number of middle stages (ZeroDivisionError).",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/transformer/transformer_layer.py, get_transformer_layer_offset",
    applies=lambda v: split_kind(v) == "ends" and v.interleaved and v.pp > 1,
    holds=lambda v: middle(v)[1] > 0,
    message="first and last stage layers ({num_layers_in_first_pipeline_stage}, "
    "{num_layers_in_last_pipeline_stage}) with VPP {vpp} leave no stage between them on PP {pp}",
    fix="drop first/last stage layers, or give a layout string",
    breaks=given(layers=8, pp=2, vpp=2, first=4, last=4),
    passes=given(layers=12, pp=3, vpp=2, first=4, last=4),
)

ENDS_OR_ACCOUNT = Rule(
    id="ends-or-account",
    aliases=("R086",),
    area="pp",
    must="first/last stage layers and account_for_embedding/loss are not used together",
    why="They are two ways to lighten the end stages.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: any(layers is not None for layers in ends(v)),
    holds=lambda v: (
        not (v.on("account_for_embedding_in_pipeline_split") or v.on("account_for_loss_in_pipeline_split"))
    ),
    message="first/last stage layers ({num_layers_in_first_pipeline_stage}, "
    "{num_layers_in_last_pipeline_stage}) "
    "together with account_for_embedding/loss_in_pipeline_split",
    fix="keep one of the two",
    breaks=given(layers=32, pp=4, first=5, account_for_loss_in_pipeline_split=True),
    passes=given(layers=32, pp=4, first=5),
)

RULES = (
    DTYPE,
    FP32_RESIDUAL,
    ONE_SPELLING,
    VPP_ONE,
    ENDS_POSITIVE,
    ENDS_MIDDLE,
    ENDS_VPP,
    ENDS_LEAVE_MIDDLE,
    ENDS_OR_ACCOUNT,
)
