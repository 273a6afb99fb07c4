"""Models as plain data and back."""

from __future__ import annotations

import json

import pytest

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.rows import model_from_row, model_to_row

LAYER = {"attention": {"heads": 2, "kv_heads": 1, "head_dim": 4}, "mlp": {"ffn": 16}}
ROW = {
    "name": "tiny",
    "family": "llama",
    "hidden": 8,
    "vocab_size": 16,
    "pattern": "DD",
    "kinds": {"D": LAYER},
}


@pytest.mark.parametrize("name", [entry.name for entry in catalog.entries() if entry.described])
def test_a_model_survives_the_way_through_json(name):
    model = catalog.find(name)
    assert model_from_row(json.loads(json.dumps(model_to_row(model)))) == model


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hiden": 8}, "unknown field 'hiden'; did you mean hidden"),
        ({"pattern": "DX"}, "the pattern names layer 'X', known are D"),
        ({"pattern": None}, "pattern is None; it must be a str"),
        ({"kinds": {"D": {"mlp": {}}}}, "layer D, mlp: missing ffn"),
        ({"kinds": {"D": {"mlp": {"ffn": 4, "gate": 1}}}}, "mlp: unknown field 'gate'; did you mean gated"),
    ],
)  # fmt: skip
def test_a_malformed_row_says_what_is_wrong(change, says):
    with pytest.raises(QuestionError, match=says):
        model_from_row(ROW | change)
