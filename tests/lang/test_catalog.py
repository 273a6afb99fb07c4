"""The Chinese catalog: every phrase of the source, the same holes, nothing that the source lost."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from meshwright.lang.phrasebook import phrasebook
from meshwright.lang.template import numbered_holes
from meshwright.layout.rules import ALL_RULES
from meshwright.layout.rules.pages import example_finding

ROOT = Path(__file__).parents[2]
WIDE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?<![\w\-./=(])(?:[a-z]{2,} ){3,}[a-z]{2,}(?![\w\-./=])")
"""Four words of English in a row."""


@pytest.fixture(scope="module")
def messages():
    spec = importlib.util.spec_from_file_location("extract_messages", ROOT / "tools" / "extract_messages.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_message_is_missing(messages):
    lacking = [f"{phrase.file}:{phrase.line}: {phrase.text}" for phrase in messages.missing()]
    assert not lacking, "translate these in src/meshwright/lang/data/zh.json"


def test_no_message_is_left_over(messages):
    assert not messages.stale(), "drop these from src/meshwright/lang/data/zh.json"


def test_a_new_message_is_found(messages, tmp_path, monkeypatch):
    source = "def f(n: int) -> str:\n    return f\"{n:,} brand new thing{'s' * (n > 1)} of {n}\"\n"
    path = tmp_path / "report" / "html.py"
    path.parent.mkdir()
    path.write_text(source)
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    assert list(messages.phrases()) == ["{0#} brand new thing{s} of {1}"]


def test_a_new_error_is_found(messages, tmp_path, monkeypatch):
    source = (
        "def f(n: int) -> None:\n    near = f'; try {n}'\n"
        "    raise QuestionError(f'{n} {_why(n)}{near}')\n"
        "def _why(n: int) -> str:\n    return 'cannot be meant'\n"
        "def g() -> str:\n    return 'not said of an error'\n"
    )
    path = tmp_path / "job" / "spec.py"
    path.parent.mkdir()
    path.write_text(source)
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    assert {text: one.section for text, one in messages.phrases().items()} == {
        "; try {0}": "errors",
        "cannot be meant": "errors",
    }


def test_both_languages_have_the_same_holes(messages):
    for section in messages.catalog().values():
        for english, chinese in section.items():
            assert numbered_holes(english) == numbered_holes(chinese), english


def test_no_phrase_stands_twice(messages):
    texts = [text for section in messages.catalog().values() for text in section]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_said_in_chinese(rule):
    say = phrasebook("zh").say
    for text in (rule.must, rule.why, *(example_finding(rule) or ())):
        said = re.sub(r"`[^`]*`", "", say(text))
        command = text.startswith(("--", "export "))
        assert command or WIDE.search(said) or not re.search(r"[a-z]{2,} [a-z]{2,} ", text), text
        assert not ENGLISH.search(said), said


def figures(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:[.,]\d+)*", text))


@pytest.mark.parametrize("rule", [rule for rule in ALL_RULES if rule.breaks], ids=lambda rule: rule.id)
def test_the_numbers_of_a_finding_stay(rule):
    """Except 0 .. 9, which a sentence may hold as a word."""
    message, fix = example_finding(rule) or ("", "")
    for text in (message, fix):
        there, said = figures(text), figures(phrasebook("zh").say(text))
        assert [n for n in there if len(n) > 1] == [n for n in said if len(n) > 1], text
