"""Rules of linear attention and state-space layers: their heads and groups over TP and CP."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.layout.rules.rule import CONFIG, CORE, Rule, given
from meshwright.layout.rules.view import View

GDN_KEYS = Rule(
    id="gdn-key-heads",
    aliases=("R062",),
    area="cp",
    must="the key heads of gated delta nets are a multiple of TP*CP",
    why="Linear attention shares its heads over both.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.get("linear_num_key_heads") is not None,
    holds=lambda v: v["linear_num_key_heads"] % (v.tp * v.cp) == 0,
    message=lambda v: (
        f"{v['linear_num_key_heads']} linear key heads cannot be shared evenly by tp*cp = {v.tp}*{v.cp} "
        f"= {v.tp * v.cp}"
    ),
    fix="lower CP or TP until the product divides the linear heads",
    mask=True,
    breaks=given(linear_num_key_heads=16, linear_num_value_heads=64, tp=4, cp=8, seq=8192),
    passes=given(linear_num_key_heads=16, linear_num_value_heads=64, tp=2, cp=8, seq=8192),
)

GDN_VALUES = Rule(
    id="gdn-value-heads",
    aliases=("R063",),
    area="cp",
    must="the value heads of gated delta nets are a multiple of TP*CP and of the key heads",
    why="Linear attention shares its heads over both; a key head serves whole value heads.",
    severity="error",
    enforced_by=CORE,
    source=CONFIG,
    applies=lambda v: v.get("linear_num_value_heads") is not None,
    holds=lambda v: (
        (v["linear_num_value_heads"] % (v.tp * v.cp) == 0)
        & (v["linear_num_value_heads"] % v["linear_num_key_heads"] == 0)
    ),
    message=lambda v: (
        f"{v['linear_num_value_heads']} linear value heads over {v['linear_num_key_heads']} key heads "
        f"cannot be "
        f"shared evenly by tp*cp = {v.tp * v.cp}"
    ),
    fix="lower CP or TP until the product divides the linear heads",
    mask=True,
    breaks=given(linear_num_key_heads=16, linear_num_value_heads=48, tp=4, cp=8, seq=8192),
    passes=given(linear_num_key_heads=16, linear_num_value_heads=48, tp=4, cp=4, seq=8192),
)

GDN_CP = Rule(
    id="gdn-needs-cp1",
    area="cp",
    must="before Megatron Core 0.18, gated delta nets are used with CP 1",
    why="Their recurrence was not yet shared over the ranks of a sequence; 0.18 exchanges whole heads.",
    severity="error",
    enforced_by=CORE,
    until="2026-05-25",
    source=CONFIG,
    applies=lambda v: v.get("linear_num_key_heads") is not None,
    holds=lambda v: v.cp == 1,
    message="cp={cp} with gated delta nets, which this version refuses",
    nearest=lambda v: ("cp 1",),
    fix="use cp 1, or update to Megatron Core 0.18",
    mask=True,
    breaks=given(linear_num_key_heads=16, linear_num_value_heads=64, cp=2, seq=8192),
    passes=given(linear_num_key_heads=16, linear_num_value_heads=64, cp=1, seq=8192),
)

MAMBA_HEADS_CP = Rule(
    id="mamba-heads-cp",
    aliases=("R064",),
    area="cp",
    must="the Mamba heads are a multiple of TP*CP",
    why="Context parallelism exchanges whole heads.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_context_parallel.py",
    applies=lambda v: v.get("mamba_num_heads") is not None,
    holds=lambda v: v["mamba_num_heads"] % (v.tp * v.cp) == 0,
    message=lambda v: (
        f"{v['mamba_num_heads']} Mamba heads cannot be shared evenly by tp*cp = {v.tp}*{v.cp} = {v.tp * v.cp}"
    ),
    fix="lower CP or TP until the product divides the Mamba heads",
    mask=True,
    breaks=given(mamba_num_heads=64, mamba_num_groups=8, tp=8, cp=16, seq=8192),
    passes=given(mamba_num_heads=64, mamba_num_groups=8, tp=8, cp=8, seq=8192),
)


def _groups_fit(v: View) -> Any:
    groups = np.maximum(v["mamba_num_groups"] // v.tp, 1)
    return np.where(groups < v.cp, v.cp % groups == 0, groups % v.cp == 0)


MAMBA_GROUPS_CP = Rule(
    id="mamba-groups-cp",
    aliases=("R065",),
    area="cp",
    must="the Mamba groups of a TP rank divide CP or are a multiple of it",
    why="Groups are shared over CP, or copied to a whole number of CP ranks.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_context_parallel.py",
    applies=lambda v: (v.cp > 1) & (v.get("mamba_num_groups") is not None),
    holds=_groups_fit,
    message="{mamba_num_groups} Mamba groups over tp={tp} neither divide nor are a multiple of cp={cp}",
    fix="use a cp that fits the groups",
    mask=True,
    breaks=given(mamba_num_heads=96, mamba_num_groups=8, tp=1, cp=3, seq=6144),
    passes=given(mamba_num_heads=64, mamba_num_groups=8, tp=2, cp=8, seq=8192),
)

MAMBA_TP = Rule(
    id="mamba-tp",
    aliases=("R066",),
    area="tp",
    must="Mamba heads and groups are multiples of TP, and the heads of the groups",
    why="A TP rank holds whole groups with all their heads: groups cap TP.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/ssm/mamba_mixer.py",
    applies=lambda v: v.get("mamba_num_heads") is not None,
    holds=lambda v: (
        (v["mamba_num_heads"] % v.tp == 0)
        & (v["mamba_num_groups"] % v.tp == 0)
        & (v["mamba_num_heads"] % v["mamba_num_groups"] == 0)
    ),
    message="{mamba_num_heads} Mamba heads in {mamba_num_groups} groups cannot be shared evenly by tp={tp}",
    fix=lambda v: f"use tp of at most {v['mamba_num_groups']} that divides the groups",
    mask=True,
    breaks=given(mamba_num_heads=128, mamba_num_groups=8, tp=16),
    passes=given(mamba_num_heads=128, mamba_num_groups=8, tp=8),
)

RULES = (GDN_KEYS, GDN_VALUES, GDN_CP, MAMBA_HEADS_CP, MAMBA_GROUPS_CP, MAMBA_TP)
