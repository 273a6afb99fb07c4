"""Reported problems of real people: the verdict, and the words an answer must have.

Left to other rooms: I017 (a mesh of another framework), I034 (writing a layout string), I076 (a hang); I037
and I046 ask for lists, which `test_rules_views` tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.layout.rules import View, examine, summary

CASES = json.loads((Path(__file__).parent / "data" / "rule_cases.json").read_text())


def view_of(case: dict[str, Any]) -> View:
    return View.of(case["options"], framework=case["framework"], version=case.get("version"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_verdict_is_right(case):
    assert [examine(view_of(view)).verdict for view in case["views"]] == [
        view["verdict"] for view in case["views"]
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_answer_has_the_words(case):
    said = []
    for view in map(view_of, case["views"]):
        said += [f"{finding.message} {finding.fix}" for finding in examine(view).findings]
        said += summary(view)
    text = "\n".join(said).lower()
    assert [words for words in case.get("say", case["must_mention"]) if words.lower() not in text] == []
