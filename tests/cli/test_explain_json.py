"""`explain --json`: a rule as data."""

import json

from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError


def run(*words: str):
    return CliRunner().invoke(app, ["explain", *words, "--json"])


def test_one_rule_as_data():
    data = json.loads(run("ep-divides-experts").stdout)
    assert data["rule"] == "ep-divides-experts"
    assert data["severity"] == "error"
    assert "Megatron Core" in data["enforced_by"]
    assert data["breaks"]
    assert data["passes"]


def test_all_rules_as_data():
    rows = json.loads(run().stdout)
    assert len({row["rule"] for row in rows}) == len(rows) > 200
    assert all(row["must"] and row["why"] and row["source"] for row in rows)


def test_a_rule_that_is_none_is_an_error():
    assert isinstance(run("no-such-rule").exception, QuestionError)
