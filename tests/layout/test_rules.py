"""Every rule is complete: it says what, why, who and where from, and its two fixtures behave."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from meshwright.errors import QuestionError
from meshwright.layout.rules import ALL_RULES, Finding, View, examine, explain, markdown_pages, rule
from meshwright.layout.rules.pages import example_view

BROKEN = [found for found in ALL_RULES if found.breaks]
UNBREAKABLE = {"account-leaves-layers"}
"""Rules that hold by themselves once another rule holds."""

NUMBERS = Path(__file__).parent / "data" / "rule_numbers.csv"
SEVERITY = {"error": "error", "runtime": "error", "auto": "warn", "warn": "warn", "advice": "advice"}
LAYER = {"mcore": "Megatron Core", "mlm": "Megatron-LM", "bridge": "Megatron Bridge"}
FOLDED = {
    "R044": "the warning beside the error R045",
    "R075": "Bridge fills the value that R074 asks for",
    "R179": "a fact about recipes, given as advice",
    "R206": "the switch is silent; what it forbids is an error",
    "R272": "advice on what R134 forbids",
    "R281": "advice on what R180 forbids",
    "R291": "advice on what R174 forbids",
    "R293": "advice on what R191 checks",
}


def numbers() -> list[dict[str, str]]:
    with NUMBERS.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("found", BROKEN, ids=lambda found: found.id)
def test_the_breaking_example_breaks_the_rule(found):
    finding = found.check(example_view(found, found.breaks))
    assert finding is not None
    assert finding.rule == found.id
    assert finding.severity == found.severity
    assert finding.enforced_by in found.enforced_by
    for text in (finding.message, finding.fix):
        assert text.strip() == text
        assert text
        assert "{" not in text


@pytest.mark.parametrize("found", ALL_RULES, ids=lambda found: found.id)
def test_the_passing_example_keeps_the_rule(found):
    assert found.passes
    assert found.check(example_view(found, found.passes)) is None


def test_only_known_rules_have_no_breaking_example():
    assert {found.id for found in ALL_RULES if not found.breaks} == UNBREAKABLE


def test_ids_and_numbers_are_unique():
    ids = [found.id for found in ALL_RULES]
    aliases = [alias for found in ALL_RULES for alias in found.aliases]
    assert len(set(ids)) == len(ids)
    assert len(set(aliases)) == len(aliases)


def test_all_297_numbered_rules_are_there():
    assert len(numbers()) == 297
    for row in numbers():
        assert row["id"] in rule(row["id"]).aliases


@pytest.mark.parametrize("row", numbers(), ids=lambda row: row["id"])
def test_severity_and_enforcer_are_those_of_the_list(row):
    found = rule(row["id"])
    if row["id"] in FOLDED:
        return
    assert found.severity == SEVERITY[row["severity"]]
    layers = [LAYER[layer] for layer in row["layer"].replace("/", "+").split("+") if layer in LAYER]
    if layers and row["id"] not in ("R127", "R060"):  # listed under Core, raised by arguments.py or TE
        assert set(layers) & set(found.enforced_by) or "Megatron Core" in found.enforced_by


def test_dated_rules_know_their_date():
    different = {
        row["id"]: (row["since"], rule(row["id"]).since)
        for row in numbers()
        if row["since"] and (rule(row["id"]).since or "")[:7] != row["since"][:7]
    }
    assert different == {
        "R122": ("2026-07-01", None),  # the rule is older; the date is that of Bridge's other default
        "R217": ("2026-04-10", "2025-09-01"),  # the date is that of its wording
        "R232": ("2023-12-14", None),  # older than the oldest version known
    }


@pytest.mark.parametrize("found", ALL_RULES, ids=lambda found: found.id)
def test_every_rule_says_why_and_where_from(found):
    assert found.must
    assert not found.must.endswith(".")
    assert found.why.endswith((".", ")", ".)"))
    assert len(found.source) > 10
    assert found.enforced_by
    assert (found.effect == "advises") == (found.enforced_by == ("advice",))
    assert found.effect == "miscomputes" or (found.severity == "error") == (found.effect == "raises")


def test_explain_is_a_page():
    page = explain("ep-divides-experts")
    for words in (
        "the number of experts is a multiple of EP",
        "160 experts cannot be shared evenly by ep=64; nearest: 40 or 80",
        "Megatron Core",
        "moe_layer.py",
        "R119, R120",
    ):
        assert words in page
    assert explain("R120") == page


def test_an_unknown_rule_names_its_neighbours():
    with pytest.raises(QuestionError, match="ep-divides-experts"):
        explain("ep-divide-expert")


def test_there_is_a_page_for_every_rule():
    pages = markdown_pages()
    assert list(pages) == [found.id for found in ALL_RULES]
    for found in ALL_RULES:
        assert pages[found.id].startswith(f"# {found.id}\n")
        assert found.source in pages[found.id]


def test_findings_are_plain_values_worst_first():
    view = View.of({"world": 8, "tp": 2, "ep": 3, "experts": 64, "nvlink_domain": 2, "etp": 1})
    findings = examine(view).findings
    order = [("error", "warn", "advice").index(finding.severity) for finding in findings]
    assert order == sorted(order)
    assert len(set(order)) == 3
    assert Finding(rule="r", severity="error", message="m", fix="f", enforced_by="e").as_dict() == {
        "rule": "r", "severity": "error", "message": "m", "fix": "f", "enforced_by": "e", "line": None,
    }  # fmt: skip


def test_a_finding_knows_its_line():
    view = View.of({"tp": 4, "heads": 14, "kv_heads": 2}, lines={"tensor_model_parallel_size": 12})
    (finding,) = [finding for finding in examine(view).findings if finding.rule == "tp-divides-heads"]
    assert finding.line == 12
