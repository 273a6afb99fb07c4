"""Rules of pipeline layout strings and hybrid patterns; `meshwright.layout.notation` reads them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from meshwright.errors import MeshwrightError
from meshwright.layout import notation
from meshwright.layout.rules.numbers import multiples_around
from meshwright.layout.rules.rule import ARGUMENTS, CONFIG, CORE, Rule, given
from meshwright.layout.rules.uneven import ends
from meshwright.layout.rules.view import View

LAYOUT = "megatron/core/transformer/pipeline_parallel_layer_layout.py"

Stages = tuple[tuple[str, ...], ...]


def stages_of(layout: Any) -> Stages | str:
    """The stages of a layout string or list, or what is wrong with it."""
    if isinstance(layout, str):
        return _parsed(layout)
    try:
        return notation.parse_list(list(layout))
    except (MeshwrightError, TypeError) as error:
        return str(error)


@lru_cache(maxsize=256)
def _parsed(layout: str) -> Stages | str:
    try:
        return notation.parse_text(layout)
    except MeshwrightError as error:
        return str(error)


def _given(v: View) -> bool:
    return bool(v.get("pipeline_model_parallel_layout"))


def _readable(v: View) -> bool:
    return _given(v) and not isinstance(stages_of(v["pipeline_model_parallel_layout"]), str)


def _stages(v: View) -> Stages:
    found = stages_of(v["pipeline_model_parallel_layout"])
    return () if isinstance(found, str) else found


def _items(v: View) -> str:
    return "".join("".join(stage) for stage in _stages(v))


def _placed(v: View) -> bool:
    """The layout can be read and its stages can be given to ranks."""
    return _readable(v) and len(_stages(v)) % v.pp == 0


CHARACTERS = Rule(
    id="layout-readable",
    aliases=("R098",),
    area="layout",
    must="a layout string has only E, t, m, L, |, commas, and the repeats x*n and (..)*n",
    why="Stage k of the string goes to rank k % PP as its chunk k // PP; empty stages are legal.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}, parse_str_to_list",
    applies=_given,
    holds=_readable,
    message=lambda v: str(stages_of(v["pipeline_model_parallel_layout"])),
    fix="write it like Et*4|(t*4|)*14tmL",
    breaks=given(layers=2, pp=2, layout="EXt|L"),
    passes=given(layers=60, mtp_num_layers=1, pp=8, layout="Et*3|(tt|)*28,t,m|,|L"),
)

CONFLICT = Rule(
    id="layout-alone",
    aliases=("R091",),
    area="layout",
    must="a layout is not combined with first/last stage layers or account_for_embedding/loss",
    why="The layout already says what every stage holds.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=CONFIG,
    applies=_given,
    holds=lambda v: (
        not (
            any(layers is not None for layers in ends(v))
            or v.on("account_for_embedding_in_pipeline_split")
            or v.on("account_for_loss_in_pipeline_split")
        )
    ),
    message="a pipeline layout together with first/last stage layers or account_for_embedding/loss",
    fix="keep the layout only",
    breaks=given(layers=4, pp=2, layout="Ett|ttL", last=1),
    passes=given(layers=4, pp=2, layout="Ett|ttL"),
)

STAGES = Rule(
    id="layout-stages-divide",
    aliases=("R092",),
    area="layout",
    must="the number of stages in a layout is a multiple of PP; VPP is their quotient",
    why="Every rank gets the same number of chunks.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}; {ARGUMENTS}",
    applies=_readable,
    holds=lambda v: len(_stages(v)) % v.pp == 0,
    message=lambda v: f"the layout has {len(_stages(v))} stages, no multiple of PP {v.pp}",
    nearest=lambda v: [f"{stages} stages" for stages in multiples_around(v.pp, len(_stages(v)))],
    fix="change the layout together with PP, VPP and the microbatch group (they go with each other)",
    breaks=given(layers=16, pp=4, layout="Et*2|(t|)*13tL"),
    passes=given(layers=16, pp=4, layout="Et|(t|)*14tL"),
)

VPP = Rule(
    id="layout-vpp",
    aliases=("R093",),
    area="layout",
    must="where VPP is given beside a layout, it is the stages over PP",
    why="The layout decides VPP.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=CONFIG,
    applies=lambda v: _placed(v) and v.gave("virtual_pipeline_model_parallel_size"),
    holds=lambda v: v.said["virtual_pipeline_model_parallel_size"] == len(_stages(v)) // v.pp,
    message=lambda v: (
        f"VPP {v.said['virtual_pipeline_model_parallel_size']} with a layout of {len(_stages(v))} stages "
        f"on PP "
        f"{v.pp}, which makes VPP {len(_stages(v)) // v.pp}"
    ),
    fix="drop the virtual size, or change it with the layout",
    breaks=given(layers=4, pp=2, vpp=4, layout="Et|t|t|tL"),
    passes=given(layers=4, pp=2, vpp=2, layout="Et|t|t|tL"),
)


def _ends_fault(v: View) -> str:
    items = _items(v)
    if items.count("E") != 1 or not items.startswith("E"):
        first = items[:1] or "nothing"
        return f"has {items.count('E')} E and begins with {first}; it needs one E, at the start"
    if items.count("L") != 1 or not items.endswith("L"):
        return f"has {items.count('L')} L and ends with {items[-1:]}; it needs one L, at the end"
    return ""


ENDS = Rule(
    id="layout-ends",
    aliases=("R094",),
    area="layout",
    must="a layout has exactly one E, first, and one L, last",
    why="Tokens enter through the embedding and leave through the loss.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}, validate_layer_layout",
    applies=_placed,
    holds=lambda v: not _ends_fault(v),
    message=lambda v: f"the layout {_ends_fault(v)}",
    fix="begin with E and end with L",
    breaks=given(layers=4, pp=2, layout="tt|ttEL"),
    passes=given(layers=4, pp=2, layout="Ett|ttL"),
)

COUNT = Rule(
    id="layout-counts-layers",
    aliases=("R095",),
    area="layout",
    must="a layout has as many t as the model has layers",
    why="Each t is one decoder layer.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}, validate_layer_layout",
    applies=_placed,
    holds=lambda v: _items(v).count("t") == v.layers,
    message=lambda v: (
        f"the layout places {_items(v).count('t')} decoder layers, and the model has {v.layers}"
    ),
    fix=lambda v: (
        f"{'add' if _items(v).count('t') < v.layers else 'take away'} "
        f"{abs(_items(v).count('t') - v.layers)} t"
    ),
    breaks=given(layers=4, pp=2, layout="Et|ttL"),
    passes=given(layers=4, pp=2, layout="Ett|ttL"),
)


def _mtp_fault(v: View) -> str:
    items, wanted = _items(v), int(v.get("mtp_num_layers") or 0)
    if items.count("m") != wanted:
        return f"places {items.count('m')} MTP layers, and the model has {wanted}"
    if wanted and "t" in items[items.index("m") :]:
        return "has decoder layers after an MTP layer"
    return ""


MTP = Rule(
    id="layout-counts-mtp",
    aliases=("R096",),
    area="layout",
    must="a layout has as many m as the model has MTP layers, after all t",
    why="MTP works on the output of the last decoder layer.",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}, validate_layer_layout",
    applies=_placed,
    holds=lambda v: not _mtp_fault(v),
    message=lambda v: f"the layout {_mtp_fault(v)}",
    fix="put each m between the last t and L",
    breaks=given(layers=3, mtp_num_layers=1, pp=2, layout="Etm|ttL"),
    passes=given(layers=3, mtp_num_layers=1, pp=2, layout="Ett|tmL"),
)


def _mtp_place_fault(v: View) -> str:
    holding = [index for index, stage in enumerate(_stages(v)) if "m" in stage]
    chunks = len(_stages(v)) // v.pp
    early = [index for index in holding if index // v.pp < chunks - 1]
    if early:
        return (
            f"on chunk {early[0] // v.pp} of rank {early[0] % v.pp}; it must be the last chunk ({chunks - 1})"
        )
    return f"spread over {len(holding)} stages; they belong on one" if len(holding) > 1 else ""


MTP_PLACE = Rule(
    id="layout-mtp-place",
    aliases=("R097", "R115"),
    area="layout",
    must="all MTP layers are in one stage, the last chunk of its rank",
    why="With MTP away from the last rank, that rank holds a second embedding and head (mtp_standalone).",
    severity="error",
    enforced_by=CORE,
    since="2025-06-13",
    source=f"{LAYOUT}, validate_layer_layout; megatron/core/transformer/multi_token_prediction.py",
    applies=lambda v: _placed(v) and not _mtp_fault(v),
    holds=lambda v: not _mtp_place_fault(v),
    message=lambda v: f"the layout has its MTP layers {_mtp_place_fault(v)}",
    fix="put all m in one stage among the last PP stages",
    breaks=given(layers=2, mtp_num_layers=2, pp=2, layout="Et|tm|m|L"),
    passes=given(layers=3, mtp_num_layers=1, pp=2, layout="Et|t|t|mL"),
)


def _mtp_rank(v: View) -> int | None:
    """The pipeline rank of the MTP layers where it is neither the embedding's nor the loss's."""
    ranks = {index % v.pp for index, stage in enumerate(_stages(v)) if "m" in stage}
    return next((rank for rank in sorted(ranks) if rank not in (0, v.pp - 1)), None)


MTP_EMBEDDING = Rule(
    id="layout-mtp-beside-loss",
    area="layout",
    must="on raw Megatron Core, MTP layers are on the rank of the loss (or of the embedding)",
    why="MTP layers bring a copy of the embedding. Its gradients are summed over the embedding group, which "
    "initialize_model_parallel makes of the first and last ranks unless get_embedding_ranks adds the MTP "
    "rank, as Megatron-LM does: without it the copies drift apart (gradient norm 21 % off).",
    severity="warn",
    effect="miscomputes",
    enforced_by=CORE,
    since="2025-06-13",
    source="megatron/core/parallel_state.py, default_embedding_ranks; "
    "megatron/core/transformer/multi_token_prediction.py, get_mtp_ranks",
    applies=lambda v: v.framework == "megatron-core" and _placed(v) and not _mtp_fault(v),
    holds=lambda v: _mtp_rank(v) is None,
    message=lambda v: (
        f"the layout has its MTP layers on pipeline rank {_mtp_rank(v)}, which is in no embedding group "
        "unless get_embedding_ranks adds it: its copy of the embedding drifts from the others"
    ),
    fix="put m beside L, or give initialize_model_parallel a get_embedding_ranks that adds the MTP rank",
    breaks=given(layers=3, mtp_num_layers=1, pp=3, layout="Ett|tm|L"),
    passes=given(layers=3, mtp_num_layers=1, pp=3, layout="Et|t|tmL"),
)

RULES = (CHARACTERS, CONFLICT, STAGES, VPP, ENDS, COUNT, MTP, MTP_PLACE, MTP_EMBEDDING)
