"""What rules read: names, defaults, frameworks, versions, and what is unknown."""

from __future__ import annotations

import time

import pytest

from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.layout.rules import UNKNOWN, View, check, examine, legal_values
from meshwright.layout.rules.batch import ramp_sizes
from meshwright.layout.rules.sequence import sequence_step
from meshwright.layout.rules.versions import code_date
from meshwright.model.spec import Attention, Layer, Mlp, Model

MOE = {"experts": 8, "tp": 4, "ep": 4, "world": 16, "sp": True}


def errors(view: View) -> set[str]:
    return {finding.rule for finding in check(view) if finding.severity == "error"}


@pytest.mark.parametrize("name", ["tp", "tensor_model_parallel_size", "--tensor-model-parallel-size"])
def test_short_long_and_dashed_names_are_one(name):
    assert View.of({name: 4}).tp == 4


def test_negated_flags_switch_off():
    assert View.of({"disable_bias_linear": True}).on("add_bias_linear") is False


@pytest.mark.parametrize(
    ("framework", "version", "etp"),
    [
        ("megatron-core", None, 4),
        ("megatron-lm", None, 4),
        ("megatron-bridge", None, 1),
        ("megatron-bridge", "0.6", 1),
        ("megatron-bridge", "0.5", 4),
    ],
)
def test_unset_etp_depends_on_framework_and_version(framework, version, etp):
    view = View.of(MOE, framework=framework, version=version)
    assert view.etp == etp
    assert [fill.value for fill in view.fills if fill.option == "expert_tensor_parallel_size"] == [etp]


def test_bridge_without_expert_parallelism_takes_etp_from_tp():
    assert View.of({"tp": 4, "experts": 8}, framework="megatron-bridge").etp == 4


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("megatron-core", ("error", "sp-needs-tp")),
        ("megatron-lm", ("warn", "sp-off-at-tp1")),
        ("megatron-bridge", ("warn", "sp-off-at-tp1")),
    ],
)
def test_sequence_parallelism_at_tp1(framework, expected):
    findings = check(View.of({"sp": True, "tp": 1}, framework=framework))
    assert expected in {(finding.severity, finding.rule) for finding in findings}
    assert "sp-needs-tp" in errors(View.of({"sp": True})) or framework != "megatron-core"


@pytest.mark.parametrize(
    ("version", "legal"), [("0.15", False), ("0.16", True), ("0.16.1", True), (None, True)]
)
def test_replicated_key_value_heads_came_with_0_16(version, legal):
    found = errors(View.of({"heads": 32, "kv_heads": 2, "tp": 4}, version=version))
    assert ("tp-divides-kv-heads" not in found) == legal


def test_weight_shards_are_unknown_before_0_19():
    options = {"tp": 4, "tensor_parallel_num_weight_shards": 6}
    assert errors(View.of(options, version="0.19"))
    assert not errors(View.of(options, version="0.18"))


def test_pp2_interleaving_is_a_matter_of_the_overlap_in_megatron_lm():
    two = {"pp": 2, "num_virtual_stages_per_pipeline_rank": 2, "layers": 32}
    assert not errors(View.of(two, framework="megatron-lm"))
    assert errors(View.of({**two, "overlap_p2p_comm": False}, framework="megatron-lm"))


@pytest.mark.parametrize("version", ["banana", "", "x.y"])
def test_a_version_must_be_one(version):
    with pytest.raises(QuestionError, match="version"):
        code_date("megatron-core", version)


def test_versions_are_ordered_and_the_newest_is_open():
    dates = [
        code_date("megatron-core", version) for version in ("0.1", "0.9", "0.12.1", "0.16.1", "0.19", None)
    ]
    assert dates == sorted(dates)
    assert code_date("megatron-bridge", None, "26.06") == "2026-06-31"


def test_unknown_values_leave_rules_undecided():
    outcome = examine(View.of({"tp": UNKNOWN, "heads": 14, "kv_heads": 2, "experts": 160, "ep": 64}))
    assert outcome.undecided["tp-divides-heads"] == "tensor_model_parallel_size"
    assert "ep-divides-experts" in {finding.rule for finding in outcome.findings}


def test_nothing_is_said_about_an_environment_nobody_knows():
    hopper = {"tp": 2, "sp": True, "compute_capability": "9.0"}
    unknown = examine(View.of(hopper, framework="megatron-lm"))
    assert unknown.undecided["max-connections-1"] == "CUDA_DEVICE_MAX_CONNECTIONS"
    assert "max-connections-1" in errors(View.of(hopper, framework="megatron-lm", env={}))
    blackwell = {**hopper, "compute_capability": "10.0"}
    assert "max-connections-1" not in errors(View.of(blackwell, framework="megatron-lm", env={}))


def test_layers_of_several_kinds_are_all_looked_at():
    kinds = tuple(
        Layer(mixer=Attention(heads=heads, kv_heads=kv, head_dim=128), ffn=Mlp(ffn=8192))
        for heads, kv in ((32, 8), (24, 3))
    )
    model = Model(name="m", family="t", hidden=4096, kinds=kinds, pattern=(0, 1) * 16, vocab_size=32000)
    view = View.of(
        layout=Layout(tp=4, sp=True), model=model, job=Job(seq_length=4096, global_batch=8),
        execution=Execution(),
    )  # fmt: skip
    assert {finding.message for finding in check(view) if finding.severity == "error"} == {
        "3 key-value heads are not a multiple or divisor of tp=4; nearest: 1"
    }


@pytest.mark.parametrize(
    ("cp", "tp", "sp", "step"), [(4, 8, True, 32), (4, 3, True, 24), (4, 1, False, 8), (1, 4, True, 4)]
)
def test_smallest_pad_multiple(cp, tp, sp, step):
    assert sequence_step(cp, tp, sp) == step


def test_legal_pipeline_sizes_of_33_layers():
    found = legal_values(View.of({"layers": 33}), "pp", range(1, 34))
    assert [pp for pp, broken in found.items() if "pp-divides-layers" not in broken] == [1, 3, 11, 33]


def test_legal_tensor_sizes_of_28_heads_over_4():
    view = View.of(
        {"heads": 28, "kv_heads": 4, "hidden": 3584, "ffn": 18944, "sp": True}, framework="megatron-lm"
    )
    found = legal_values(view, "tp", range(1, 9))
    assert [tp for tp, broken in found.items() if not broken] == [1, 2, 4]
    assert "tp-fits-kv-heads" in found[7]
    assert "tp-divides-heads" not in found[7]


def test_every_step_of_a_batch_ramp_stays_legal():
    ramp = {"world": 8, "mbs": 1, "gbs": 64, "rampup_batch_size": "16 16 1000"}
    assert ramp_sizes(View.of(ramp)) == (16, 32, 48, 64)
    assert not errors(View.of(ramp))
    (message,) = [f.message for f in check(View.of({**ramp, "world": 32})) if f.rule == "ramp-steps-divide"]
    assert message == (
        "the batch ramp passes 2 of 4 sizes that mbs 1 x dp 32 = 32 does not divide, first 16; nearest: 32"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"tp": "two"}, {"tp": 0}, {"pp": -1}, {"cp": 1.5}, {"world": True}, {"ep": [2]}, {"layers": 10**12},
        {"seq": "4k"},
    ],
)  # fmt: skip
def test_bad_numbers_are_questions_not_tracebacks(options):
    with pytest.raises(QuestionError, match="whole number"):
        View.of(options)


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "((((", "pp": 2, "layers": 4},
        {"layout": [["embedding"], 7], "pp": 2, "layers": 4},
        {"layout": "t*99999999999", "pp": 2, "layers": 4},
        {"layers": 9_999_999, "pp": 7_654_321, "last": 3},
        {"world": 9_999_991, "gbs": 9_999_991, "mbs": 3, "tp": 7},
        {"rampup_batch_size": "1 1 1", "gbs": 9_999_999, "world": 7, "mbs": 1},
        {"step_batch_size_schedule": "a:b c", "mbs": 1, "world": 1},
        {"hybrid_layer_pattern": "M|" * 4000, "pp": 3},
        {"moe_router_load_balancing_type": 7, "experts": 8, "moe_expert_capacity_factor": "x"},
        {"mbs": 0, "gbs": 8, "world": 8},
        {"recompute_modules": 5, "recompute_granularity": "selective"},
        {"fp8": True, "fp8_recipe": None, "seq": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("framework", ["megatron-core", "megatron-lm", "megatron-bridge"])
def test_hostile_values_neither_hang_nor_raise(options, framework):
    start = time.perf_counter()
    examine(View.of(options, framework=framework))
    assert time.perf_counter() - start < 2


def test_one_layout_is_checked_in_milliseconds():
    view = View.of({**MOE, "layers": 32, "gbs": 16, "seq": 4096, "heads": 32})
    start = time.perf_counter()
    for _ in range(20):
        check(view)
    assert (time.perf_counter() - start) / 20 < 0.03
