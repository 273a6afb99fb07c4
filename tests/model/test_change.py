"""Fields set from the command line."""

from __future__ import annotations

import pytest

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.change import override, stretch
from meshwright.model.parameters import count_parameters


@pytest.mark.parametrize(
    ("name", "layers", "kinds"),
    [
        ("deepseek-v3", 5, "dddmm"),
        ("deepseek-v3", 63, "ddd" + 60 * "m"),
        ("qwen3-next-80b-a3b", 6, "lllfll"),
        ("gpt-oss-120b", 3, "sfs"),
        ("llama-3-70b", 12, 12 * "d"),
    ],
)
def test_depth_keeps_the_head_and_repeats_the_period(name, layers, kinds):
    letters = {"deepseek-v3": "dm", "qwen3-next-80b-a3b": "lf", "gpt-oss-120b": "sf", "llama-3-70b": "d"}[
        name
    ]
    model = override(catalog.find(name), {"num_layers": layers})
    assert "".join(letters[kind] for kind in model.pattern) == kinds


@pytest.mark.parametrize("name", [entry.name for entry in catalog.entries() if entry.described])
def test_its_own_depth_changes_nothing_and_half_of_it_is_its_first_half(name):
    model = catalog.find(name)
    assert stretch(model.pattern, model.num_layers) == model.pattern
    assert stretch(model.pattern, model.num_layers // 2) == model.pattern[: model.num_layers // 2]


def test_a_pattern_without_a_period_repeats_whole():
    assert stretch((0, 1, 1, 0, 2), 8) == (0, 1, 1, 0, 2, 0, 1, 1)


def test_a_published_depth_cut_reaches_the_published_size():
    """Llama-3-70B cut to 12 layers: 12 x 855,654,400 + 2 embeddings + final norm."""
    cut = override(catalog.find("llama-3-70b"), {"--num-layers": "12"})
    assert count_parameters(cut).total == 12 * 855_654_400 + 2 * 1_050_673_152 + 8192


def test_mtp_modules_come_and_go():
    model = catalog.find("deepseek-v3")
    assert override(model, {"mtp_num_layers": 0}).mtp == ()
    assert override(model, {"mtp-num-layers": 2}).mtp == (1, 1)
    assert override(catalog.find("llama-3-8b"), {"mtp_num_layers": 1}).mtp == (0,)


@pytest.mark.parametrize(
    ("name", "change", "look"),
    [
        ("llama-3-8b", {"vocab-size": "32000"}, lambda m: m.vocab_size == 32000),
        ("llama-3-8b", {"max-position": 131072}, lambda m: m.max_position == 131072),
        ("llama-3-8b", {"tied": "true"}, lambda m: m.tied),
        ("llama-3-8b", {"num_query_groups": "4"}, lambda m: m.kinds[0].mixer.kv_heads == 4),
        ("llama-3-8b", {"ffn_hidden_size": "8192"}, lambda m: m.kinds[0].ffn.ffn == 8192),
        ("llama-3-8b", {"window": "4096"}, lambda m: m.kinds[0].mixer.window == 4096),
        ("mistral-7b-v0.1", {"window": "none"}, lambda m: m.kinds[0].mixer.window is None),
        ("deepseek-v3", {"num_experts": 64}, lambda m: m.num_experts == 64),
        ("deepseek-v3", {"moe.ffn": "1024"}, lambda m: [kind.ffn.ffn for kind in m.kinds] == [18432, 1024]),
        ("deepseek-v3", {"q_lora": "none"}, lambda m: all(kind.mixer.q_lora is None for kind in m.kinds)),
        ("nemotron-h-8b", {"heads": 64}, lambda m: {k.mixer.heads for k in m.kinds if k.mixer} == {128, 64}),
    ],
)  # fmt: skip
def test_any_field_can_be_set(name, change, look):
    model = override(catalog.find(name), change)
    assert look(model)
    assert model.notes[-1].endswith(f"set to {next(iter(change.values()))}")


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("llama-3-8b", {"num_layers": 0}, "num_layers is 0; it must lie between 1 and 10,000"),
        ("llama-3-8b", {"num_layers": "many"}, "num_layers is many; it must be a whole number"),
        ("llama-3-8b", {"vocab_size": "1e5"}, "vocab_size is 1e5; it must be a whole number"),
        ("llama-3-8b", {"vocab_size": -1}, "vocab_size is -1; it must lie between 1"),
        ("llama-3-8b", {"hiden": 8}, "no field 'hiden'; did you mean hidden"),
        ("llama-3-8b", {"moe.ffn": 8}, "llama-3-8b has no moe; it has attention, mlp"),
        ("llama-3-8b", {"meo.ffn": 8}, "unknown part 'meo' of a model; did you mean moe"),
        ("llama-3-8b", {"kv_heads": 5}, "32 attention heads are not a multiple of 5"),
        ("llama-3-8b", {"tied": "perhaps"}, "tied is perhaps; it must be true or false"),
        ("llama-3-8b", {"normalization": "batch"}, "normalization is batch; known: rms, layer"),
        ("deepseek-v3", {"ffn": 8}, "ffn could be mlp.ffn or moe.ffn; say which"),
        ("deepseek-v3", {"top_k": 500}, "top_k 500 is more than the 256 experts"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_made_says_why(name, change, says):
    with pytest.raises(QuestionError, match=says):
        override(catalog.find(name), change)
