"""All rules, in the order in which findings are reported."""

from __future__ import annotations

from meshwright.layout.rules import batch, heads, moe, pipeline, sequence, world
from meshwright.layout.rules.rule import Rule

ALL_RULES: tuple[Rule, ...] = (
    *world.RULES,
    *heads.RULES,
    *sequence.RULES,
    *pipeline.RULES,
    *batch.RULES,
    *moe.RULES,
)
