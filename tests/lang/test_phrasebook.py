"""Reading an English text back into its phrases, and saying them."""

import time

import pytest

from meshwright.errors import QuestionError
from meshwright.lang import chosen, fill, plain, speaker, translated, width_of
from meshwright.lang.markup import page_in
from meshwright.lang.phrasebook import Phrasebook, phrasebook

BOOK = Phrasebook(
    {
        "{0#} GPUs are {1}": "{0} 个 GPU {1}",
        "fewer than {0}": "少于 {0}",
        "fits": "放得下",
        "; nearest: {0}": "；最接近：{0}",
        "{0} or {1}": "{0} 或 {1}",
        "{0#} node{s}{1}": "{0} 个节点{1}",
        "and {0} GPUs": "外加 {0} 个 GPU",
        "a {0} of {1} rows": "{1} 行的 {0}",
    }
)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("fits", "放得下"),
        ("1,024 GPUs are fewer than 2,048", "1,024 个 GPU 少于 2,048"),
        ("8 GPUs are fewer than 9; nearest: 16 or 32", "8 个 GPU 少于 9；最接近：16 或 32"),
        ("1 node", "1 个节点"),
        ("3 nodes and 2 GPUs", "3 个节点外加 2 个 GPU"),
        ("a table of 3 rows", "3 行的 table"),
        ("  fits", "  放得下"),
        ("fits\nfits", "放得下\n放得下"),
        ("--tp 8", "--tp 8"),
        ("", ""),
    ],
)
def test_texts_are_said_phrase_by_phrase(english, chinese):
    assert BOOK.say(english) == chinese


def test_names_and_values_are_kept_as_they_stand():
    book = Phrasebook({"fits": "放得下", "no {0}; known: {1}": "没有 {0}；已知：{1=}"})
    assert book.say("no fits; known: fits, or fits") == "没有放得下；已知：fits, or fits"


def test_a_sentence_that_is_not_known_stays_whole():
    text = "nobody has written this sentence of 3 rows down before it fits"
    assert BOOK.say(text) == text


def test_a_text_of_a_person_is_not_read_for_ever():
    text = "; nearest: 1 or 2, and 3 GPUs" * 400
    assert BOOK.say(text) == text
    started = time.monotonic()
    for unit in (", : ; GiB of ( ) % = ", "; nearest: a or b and c ", "a, b: c (d % e = f); "):
        phrasebook("zh").say((unit * 100)[:990])
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("option", "environment", "language"),
    [
        (None, {}, "en"),
        ("zh", {}, "zh"),
        ("en", {"MESHWRIGHT_LANG": "zh"}, "en"),
        (None, {"MESHWRIGHT_LANG": "zh"}, "zh"),
        (None, {"MESHWRIGHT_LANG": ""}, "en"),
        ("zh-CN", {}, "zh"),
        ("zh_CN.UTF-8", {}, "zh"),
    ],
)
def test_the_option_comes_before_the_environment(option, environment, language):
    assert chosen(option, environment) == language


@pytest.mark.parametrize(("option", "environment"), [("fr", {}), (None, {"MESHWRIGHT_LANG": "klingon"})])
def test_a_language_that_is_not_spoken_is_a_wrong_question(option, environment):
    with pytest.raises(QuestionError, match="en and zh"):
        chosen(option, environment)


def test_english_is_said_as_it_is():
    assert speaker("en") is plain


def test_only_texts_of_an_answer_are_said():
    answer = {"rule": "fits", "findings": [{"message": "fits", "line": 3}], "lines": ["fits"]}
    said = {"rule": "fits", "findings": [{"message": "放得下", "line": 3}], "lines": ["放得下"]}
    assert translated(answer, BOOK.say) == said


def test_a_page_keeps_its_tags_code_and_script():
    page = '<html lang="en"><p title="fits" aria-label="fits">fits</p><code>fits</code><script>fits</script>'
    said = page_in(page, BOOK.say, "zh-CN")
    assert said == (
        '<html lang="zh-CN"><p title="fits" aria-label="放得下">放得下</p><code>fits</code>'
        "<script>fits</script>"
    )


def test_lines_are_filled_by_columns():
    lines = fill("张量并行与 pipeline 并行（TP），以及序列并行。", 20, first="  ", rest="    ").split("\n")
    assert all(width_of(line) <= 21 for line in lines)
    assert "".join(line.strip() for line in lines).replace(" ", "") == (
        "张量并行与pipeline并行（TP），以及序列并行。"
    )
    assert not any(line.rstrip().endswith("（") or line.strip().startswith("，") for line in lines)
