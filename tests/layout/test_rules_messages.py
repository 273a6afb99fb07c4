"""What people read: their own numbers, and the nearest values that work."""

from __future__ import annotations

import pytest

from meshwright.layout.rules import View, examine

LM, BRIDGE, CORE = "megatron-lm", "megatron-bridge", "megatron-core"

SENTENCES = [
    (
        CORE,
        {"world": 100, "tp": 8},
        "100 GPUs are not a multiple of TP*PP*CP = 8*1*1 = 8 (100 % 8 = 4); nearest: 96 or 104",
    ),
    (
        CORE,
        {"experts": 160, "ep": 64},
        "160 experts cannot be shared evenly by ep=64; nearest: 40 or 80",
    ),
    (
        CORE,
        {"heads": 28, "kv_heads": 4, "tp": 8},
        "28 attention heads cannot be shared evenly by tp=8 (28 % 8 = 4); nearest: 4 or 28",
    ),
    (
        CORE,
        {"heads": 24, "kv_heads": 3, "tp": 4},
        "3 key-value heads are not a multiple or divisor of tp=4; nearest: 3 or 6",
    ),
    (
        CORE,
        {"seq": 4096, "cp": 3},
        "a sequence of 4096 is not a multiple of 2*cp = 6 (4096 % 6 = 4); nearest: 4092 or 4098",
    ),
    (
        LM,
        {"world": 48, "tp": 2, "pp": 6, "layers": 48, "gbs": 36, "mbs": 4},
        "a global batch of 36 is not a multiple of mbs 4 x dp 4 = 16 (36 % 16 = 4); MBS 1 or 3 works; "
        "nearest: 32 or 48",
    ),
    (
        LM,
        {"layers": 30, "pp": 4},
        "30 layers do not divide over PP 4 (30 % 4 = 2); nearest: PP 3 or PP 5",
    ),
    (
        CORE,
        {"layers": 40, "pp": 2, "vpp": 12},
        "VPP 12 vs 20 layers per stage: they do not divide (20 % 12 = 8); nearest: VPP 10 or VPP 20",
    ),
    (
        CORE,
        {"layers": 78, "pp": 11, "layout": "Et*3|(t*3|)*24t*3L"},
        "the layout has 26 stages, no multiple of PP 11; nearest: 22 stages or 33 stages",
    ),
    (
        LM,
        {"world": 2048, "tp": 2, "pp": 16, "ep": 96, "etp": 1, "experts": 192, "layers": 64, "sp": True},
        "the expert grid 1536 does not fit 2048 GPUs: ETP*EP*PP = 1536 does not divide 2048 "
        "(ETP*EP*PP = 1*96*16); EP must drop to 64 (EP=64) on 2048 GPUs, or use 1536 GPUs or 3072 GPUs",
    ),
    (
        CORE,
        {"ep": 8},
        "ep=8 on a dense model: there are no experts to share; nearest: ep 1",
    ),
    (
        CORE,
        {"tensor_parallel_num_weight_shards": 6, "tp": 4},
        "tensor_parallel_num_weight_shards 6 is not a multiple of tp=4; nearest: 4 or 8",
    ),
]


@pytest.mark.parametrize(("framework", "options", "sentence"), SENTENCES, ids=lambda value: str(value)[:30])
def test_the_sentence_a_person_sees(framework, options, sentence):
    errors = [
        f.message for f in examine(View.of(options, framework=framework)).findings if f.severity == "error"
    ]
    assert sentence in errors


@pytest.mark.parametrize(
    ("world", "options"),
    [(256, {"tp": 2, "pp": 16, "ep": 64, "etp": 1}), (64, {"tp": 1, "pp": 8, "ep": 32, "etp": 1})],
)
def test_the_numbers_a_message_offers_are_legal(world, options):
    said = {"experts": 128, "layers": 128, "sp": options["tp"] > 1, **options}
    messages = [
        f
        for f in examine(View.of({"world": world, **said})).findings
        if f.rule == "world-divides-expert-grid"
    ]
    fix = messages[0].fix
    offered = int(fix.split("EP=")[1].split(")")[0])
    gpus = int(fix.split("or use ")[1].split(" ")[0])
    for legal in ({"world": world, **said, "ep": offered}, {"world": gpus, **said}):
        broken = {finding.rule for finding in examine(View.of(legal)).findings}
        assert "world-divides-expert-grid" not in broken


def test_nearest_heads_satisfy_heads_and_key_value_heads():
    said = {"heads": 28, "kv_heads": 4, "hidden": 3584, "ffn": 18944, "sp": True}
    for tp in (4, 28):
        broken = {finding.rule for finding in examine(View.of({**said, "tp": tp})).findings}
        assert not broken & {"tp-divides-heads", "tp-fits-kv-heads"}
