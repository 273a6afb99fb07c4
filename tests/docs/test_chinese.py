"""The Chinese pages: one for each English page of the concepts, with its pictures, rules and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ENGLISH = sorted((DOCS / "concepts").glob("*.md"))


def twin(page: Path) -> Path:
    return DOCS / "zh" / "concepts" / page.name


def named(page: Path) -> tuple[list[str], list[str], list[str]]:
    """Pictures, rules and commands of a page, in order; --lang is what a translation adds."""
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (.*)$", text, re.M)
    return (
        re.findall(r"pictures/([\w-]+)\.svg", text),
        re.findall(r"rules/([\w-]+)\.md", text),
        [command.replace(" --lang zh", "") for command in commands],
    )


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.stem)
def test_every_concept_is_there_in_chinese(page: Path) -> None:
    assert twin(page).is_file()
    assert named(twin(page)) == named(page)


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.stem)
def test_a_chinese_page_has_as_many_sections(page: Path) -> None:
    heads = [len(re.findall(r"^#+ ", one.read_text(encoding="utf-8"), re.M)) for one in (page, twin(page))]
    assert heads[0] == heads[1]


def test_no_chinese_page_is_left_over() -> None:
    assert {page.name for page in (DOCS / "zh" / "concepts").glob("*.md")} == {page.name for page in ENGLISH}
