"""Rules of hybrid patterns (Mamba, attention, MLP, MoE in one string)."""

from __future__ import annotations

from functools import lru_cache

from meshwright.errors import MeshwrightError
from meshwright.layout import notation
from meshwright.layout.rules.numbers import divisors_around, multiples_around
from meshwright.layout.rules.pipeline import split_kind
from meshwright.layout.rules.rule import ARGUMENTS, CORE, LM, Rule, given
from meshwright.layout.rules.uneven import ends
from meshwright.layout.rules.view import View

ALLOCATION = "megatron/core/models/hybrid/hybrid_layer_allocation.py"

Parts = tuple[tuple[str, ...], tuple[str, ...]]


@lru_cache(maxsize=256)
def parsed(pattern: str) -> Parts | str:
    """Segments and MTP parts of a pattern, or what is wrong with it."""
    try:
        segments, modules = notation.parse_hybrid(pattern)
    except MeshwrightError as error:
        return str(error)
    return tuple(segments), tuple(modules)


def _given(v: View) -> bool:
    return bool(v.get("hybrid_layer_pattern"))


def _readable(v: View) -> bool:
    return _given(v) and not isinstance(parsed(str(v["hybrid_layer_pattern"])), str)


def _parts(v: View) -> Parts:
    found = parsed(str(v["hybrid_layer_pattern"]))
    return ((), ()) if isinstance(found, str) else found


def _segments(v: View) -> tuple[str, ...]:
    return _parts(v)[0]


def _layers(v: View) -> int:
    return sum(len(segment) for segment in _segments(v))


def _readable_words(v: View) -> str:
    found = parsed(str(v["hybrid_layer_pattern"]))
    if isinstance(found, str):
        return found
    pattern = "".join(found[0])
    return "the pattern mixes attention (*) with sparse attention (D)" if {"*", "D"} <= set(pattern) else ""


SYMBOLS = Rule(
    id="hybrid-readable",
    aliases=("R103",),
    area="hybrid",
    must="a hybrid pattern has known symbols, one kind of attention, and equal MTP parts",
    why="Each symbol is one layer; `|` ends a stage, `/` begins an MTP part.",
    severity="error",
    enforced_by=CORE,
    source=ALLOCATION,
    applies=_given,
    holds=lambda v: not _readable_words(v),
    message=_readable_words,
    fix="write it like M-M*-|M-M*-/M*",
    breaks=given(hybrid_layer_pattern="M*X"),
    passes=given(hybrid_layer_pattern="M*M*/MM/MM"),
)

DERIVED_LAYERS = Rule(
    id="hybrid-derives-layers",
    aliases=("R099",),
    area="hybrid",
    must="num_layers is what the pattern says",
    why="Megatron-LM derives it (and VPP) from the pattern and ignores what was given.",
    severity="warn",
    enforced_by=LM,
    effect="changes",
    source=ARGUMENTS,
    applies=lambda v: _readable(v) and v.said.get("num_layers") is not None,
    holds=lambda v: v.said["num_layers"] == _layers(v),
    message=lambda v: f"num_layers {v.said['num_layers']} is ignored: the pattern has {_layers(v)} layers",
    fix="drop --num-layers",
    breaks=given(layers=5, hybrid_layer_pattern="M*M*"),
    passes=given(layers=4, hybrid_layer_pattern="M*M*"),
)

SEGMENTS = Rule(
    id="hybrid-segments-divide",
    aliases=("R100",),
    area="hybrid",
    must="the segments of a hybrid pattern are a multiple of PP",
    why="Every rank gets the same number of chunks.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: _readable(v) and len(_segments(v)) > 1,
    holds=lambda v: len(_segments(v)) % v.pp == 0,
    message=lambda v: f"the hybrid pattern has {len(_segments(v))} segments, no multiple of PP {v.pp}",
    nearest=lambda v: [f"{count} segments" for count in multiples_around(v.pp, len(_segments(v)))],
    fix="move the | of the pattern",
    breaks=given(hybrid_layer_pattern="M*|M*|M*", pp=2),
    passes=given(hybrid_layer_pattern="M*|M*|M*|M*", pp=2),
)


def _others(v: View) -> list[str]:
    names = [
        "pipeline_model_parallel_layout",
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
    ]
    found = [name for name in names if v.gave(name)]
    flags = ["account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"]
    found += [name for name in flags if v.on(name)]
    piped = "|" in str(v["hybrid_layer_pattern"]).split("/")[0]
    return found + (["first/last stage layers"] if piped and any(e is not None for e in ends(v)) else [])


ALONE = Rule(
    id="hybrid-alone",
    aliases=("R101",),
    area="hybrid",
    must="a hybrid pattern is not combined with other options that describe the pipeline",
    why="Its | already say where stages end.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=_given,
    holds=lambda v: not _others(v),
    message=lambda v: f"a hybrid pattern together with {', '.join(_others(v))}",
    fix="keep the pattern only",
    breaks=given(hybrid_layer_pattern="M*|M*", pp=2, layout="Ett|ttL"),
    passes=given(hybrid_layer_pattern="M*|M*", pp=2),
)

FALLBACK = Rule(
    id="hybrid-without-pipes",
    aliases=("R102",),
    area="hybrid",
    must="a pattern without | on PP > 1 has a multiple of PP layers and no VPP",
    why="It is shared out evenly then; the fallback is deprecated.",
    severity="error",
    enforced_by=CORE,
    source=f"{ALLOCATION}, select_pipeline_segment",
    applies=lambda v: _readable(v) and len(_segments(v)) == 1 and v.pp > 1,
    holds=lambda v: _layers(v) % v.pp == 0 and v.vpp == 1,
    message=lambda v: f"a hybrid pattern of {_layers(v)} layers without | on PP {v.pp}, VPP {v.vpp}",
    nearest=lambda v: [f"PP {pp}" for pp in divisors_around(_layers(v), v.pp)],
    fix="put | where stages end",
    breaks=given(hybrid_layer_pattern="M*M*M*", pp=4),
    passes=given(hybrid_layer_pattern="M*M*M*M*", pp=4),
)

INFERRED_MTP = Rule(
    id="hybrid-infers-mtp",
    aliases=("R104",),
    area="hybrid",
    must="mtp_num_layers is what the pattern's / parts say",
    why="Megatron-LM takes the number of parts and overrides what was given.",
    severity="warn",
    enforced_by=LM,
    effect="changes",
    source=ARGUMENTS,
    applies=lambda v: _readable(v) and bool(_parts(v)[1]) and v.said.get("mtp_num_layers") is not None,
    holds=lambda v: v.said["mtp_num_layers"] == len(_parts(v)[1]),
    message=lambda v: (
        f"mtp_num_layers {v.said['mtp_num_layers']} is overridden: the pattern has {len(_parts(v)[1])}"
    ),
    fix="drop --mtp-num-layers",
    breaks=given(hybrid_layer_pattern="M*M*/MM/MM", mtp_num_layers=1),
    passes=given(hybrid_layer_pattern="M*M*/MM/MM", mtp_num_layers=2),
)


def _shared_evenly(v: View) -> bool:
    """A hybrid model whose pattern is not known and whose stages nobody sized: Megatron shares its layers."""
    return v.on("is_hybrid_model") and not _given(v) and split_kind(v) != "ends"


EVEN = Rule(
    id="hybrid-layers-divide-by-pp",
    area="hybrid",
    must="the layers of a hybrid model are a multiple of PP, unless its pattern says where stages end",
    why="0.16 builds the quotient on every stage and drops the rest without a word (118 layers over PP 4: "
    "116 are built and trained). Since 0.17 a pattern without | is refused there.",
    severity="error",
    effect="miscomputes",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_block.py (0.16.1), _select_layers_for_pipeline_parallel; "
    f"{ALLOCATION}, select_pipeline_segment",
    applies=_shared_evenly,
    holds=lambda v: v.layers % v.pp == 0,
    message=lambda v: (
        f"{v.layers} layers of a hybrid model over PP {v.pp}: {v.layers // v.pp} are built on each stage, "
        f"and the last {v.layers % v.pp} are lost"
    ),
    nearest=lambda v: [f"PP {pp}" for pp in divisors_around(v.layers, v.pp)],
    fix="use a PP that divides the layers, or first/last stage layers (since 0.17: | in the pattern)",
    mask=True,
    breaks=given(is_hybrid_model=True, layers=118, pp=4),
    passes=given(is_hybrid_model=True, layers=118, pp=2),
)

NO_CHUNKS = Rule(
    id="hybrid-no-vpp",
    area="hybrid",
    must="a hybrid model has one chunk a rank (no VPP), unless its pattern says where chunks end",
    why="Its layers are shared over stages, not over chunks.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_block.py (0.16.1), _select_layers_for_pipeline_parallel; "
    f"{ALLOCATION}, select_pipeline_segment",
    applies=lambda v: v.on("is_hybrid_model") and not _given(v),
    holds=lambda v: v.vpp == 1,
    message="vpp={vpp} with a hybrid model",
    nearest=lambda v: ("vpp 1",),
    fix="drop the virtual size (since 0.17: write the pattern with PP*VPP segments)",
    mask=True,
    breaks=given(is_hybrid_model=True, layers=52, pp=2, vpp=2),
    passes=given(is_hybrid_model=True, layers=52, pp=2),
)

NO_LAYOUT = Rule(
    id="hybrid-no-layout",
    area="hybrid",
    must="a hybrid model has no pipeline layout string",
    why="The layout is not read: layers are shared evenly whatever it says.",
    severity="error",
    effect="miscomputes",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_block.py (0.16.1), _select_layers_for_pipeline_parallel",
    applies=lambda v: v.on("is_hybrid_model") and not _given(v) and v.pp > 1,
    holds=lambda v: not v.get("pipeline_model_parallel_layout"),
    message="a pipeline layout on a hybrid model, which does not read it",
    fix="drop the layout; use a PP that divides the layers, or first/last stage layers",
    breaks=given(is_hybrid_model=True, layers=4, pp=2, layout="Ett|ttL"),
    passes=given(is_hybrid_model=True, layers=4, pp=2),
)

RULES = (SYMBOLS, DERIVED_LAYERS, SEGMENTS, ALONE, FALLBACK, INFERRED_MTP, EVEN, NO_CHUNKS, NO_LAYOUT)
