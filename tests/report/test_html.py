"""The HTML report: one file, nothing fetched, nothing that a name could smuggle in."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import meshwright as mw
from meshwright.api.picturing import PICTURES, report
from meshwright.api.reporting import html_report, sizes_around
from meshwright.cluster.parse import parse_cluster
from meshwright.planner.answer import Plans
from meshwright.report.html import Written


@cache
def plans() -> Plans:
    return mw.plan("llama-3-8b", "8xH100", top=4)


@cache
def page() -> str:
    return report(plans(), written=[Written(title="train.sh", text="torchrun <here> & there")])


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.seen


def test_it_holds_every_picture_and_the_ranking() -> None:
    named = {attributes.get("id") for _, attributes in tags(page())}
    assert {*PICTURES, "ranking", "plans", "assumed"} <= named


def test_fsdp_is_part_of_the_name_of_a_layout() -> None:
    found = mw.plan("llama-3-8b", "8xH100", mw.Options(execution={"fsdp": True}), top=2)
    assert len(found.plans) == 2
    shown = re.findall(r"<td>([^<]*MBS[^<]*)</td>", report(found))
    assert len(shown) >= 2
    assert all(words.endswith("FSDP") for words in shown)


def test_nothing_in_it_is_fetched() -> None:
    for tag, attributes in tags(page()):
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert not {"src", "href"} & set(attributes), tag
    policy = next(a["content"] for t, a in tags(page()) if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page()
    assert "@import" not in page()


def test_configs_are_escaped_and_can_be_copied() -> None:
    assert "torchrun &lt;here&gt; &amp; there" in page()
    assert 'data-copy="config-0"' in page()


def test_a_hostile_name_stays_words() -> None:
    one = plans().plans[0]
    named = replace(
        one,
        question=replace(one.question, model=replace(one.question.model, name="<script>alert(1)</script>")),
    )
    text = report(named)
    assert "<script>alert(1)" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.S)
    assert len([tag for tag, _ in tags(text) if tag == "script"]) == 1


def test_it_says_when_nothing_fits() -> None:
    text = report(mw.plan("deepseek-v3", "8xH100", top=1))
    assert "None fits" in text


def test_it_reports_an_estimate_too() -> None:
    text = report(mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=2)))
    assert "Memory of each pipeline stage" in text


def test_a_layout_that_cannot_start_shows_its_findings() -> None:
    text = report(mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=3)))
    assert "32 attention heads cannot be shared evenly by tp=3" in text


def test_the_whole_report_has_configs_and_the_scaling_curve() -> None:
    text = html_report(plans())
    named = {attributes.get("id") for _, attributes in tags(text)}
    assert {"scaling", "written-0"} <= named
    assert "--tensor-model-parallel-size" in text or "--use-distributed-optimizer" in text


def test_sizes_around_hold_the_batch() -> None:
    found = sizes_around("llama-3-8b", parse_cluster("16xH100"), mw.Options(global_batch=64))
    assert [one.question.cluster.world for one in found] == [4, 8, 16, 32, 64]
    assert {one.question.job.global_batch for one in found} == {64}
    rates = [one.time.tokens_per_second_per_gpu for one in found if one.time]
    assert rates[-1] < max(rates)  # at a held batch more GPUs are not used better for ever
