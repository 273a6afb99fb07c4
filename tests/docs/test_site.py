"""The documentation site: it builds strictly and offline, links lead somewhere, what is made is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def built(test: Callable[..., None]) -> Callable[..., None]:
    """A test that reads the built site; all of them run in one process, which builds it once."""
    return pytest.mark.site(pytest.mark.xdist_group("site")(test))


@cache
def tool(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it; a warning is an error."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs-material is not installed (pip install -e '.[docs]')")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Page(HTMLParser):
    """Anchors of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("href") and given.get("rel") != "canonical":
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


@built
def test_every_page_that_people_write_is_in_the_site(read: dict[Path, Page], site: Path) -> None:
    made = {path.relative_to(site).with_suffix(".md") for path in read}
    assert {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} <= made


@built
def test_every_link_and_anchor_leads_somewhere(read: dict[Path, Page]) -> None:
    broken = []
    for path, page in read.items():
        for link in page.links:
            parts = urlparse(link)
            if parts.scheme or parts.netloc or (path.name == "404.html"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            known = read.get(target)
            wanted = unquote(parts.fragment)
            if not target.exists() or (known and wanted and wanted not in known.anchors):
                broken.append(f"{path.name} -> {link}")
    assert not broken


@built
def test_a_reader_without_a_network_misses_nothing(read: dict[Path, Page], site: Path) -> None:
    away = {one for page in read.values() for one in page.loaded if urlparse(one).netloc}
    assert not away
    for path in site.rglob("*.css"):
        fetched = re.findall(
            r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)'\"]+", path.read_text(encoding="utf-8")
        )
        assert not fetched, path.name


def test_pages_are_in_the_navigation_or_are_rules() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    hidden = {page for page in pages if page.startswith(("rules/", "decisions/", "zh/"))}
    assert not {page for page in pages - hidden if page not in text}


def test_pictures_are_drawn_as_the_product_draws_them_now() -> None:
    draw = tool("draw_docs")
    there = {path.stem: path.read_text(encoding="utf-8") for path in draw.FOLDER.glob("*.svg")}
    assert there.keys() == draw.PICTURES.keys(), "python tools/draw_docs.py"
    for name, make in draw.PICTURES.items():
        assert draw.outline(there[name]) == draw.outline(make().standalone()), (
            f"{name}: python tools/draw_docs.py"
        )


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    shown = dict(re.findall(r"!\[([^\]]*)\]\(\S*pictures/([\w-]+)\.svg\)", text))
    names = set(shown.values())
    assert names == {path.stem for path in (DOCS / "pictures").glob("*.svg")}
    assert all(len(words.encode()) >= 20 for words in shown)


def test_every_field_of_the_json_is_explained() -> None:
    page = tool("generate_reference").json_page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 800
    lacking = [row for row in rows if not row.split("|")[3].strip()]
    assert not lacking, "say what these mean in tools/json_words.json"


def test_the_reference_is_that_of_the_product() -> None:
    made = tool("generate_reference")
    there = {path.name: path.read_text(encoding="utf-8") for path in made.FOLDER.glob("*.md")}
    assert there == made.pages(), "python tools/generate_reference.py"


def test_accuracy_is_what_the_newest_reports_say() -> None:
    made = tool("generate_accuracy")
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "python tools/generate_accuracy.py"


def test_the_rule_shown_as_an_example_is_a_real_one() -> None:
    text = (DOCS / "how-to/add-a-rule.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert block in (ROOT / "src/meshwright/layout/rules/moe.py").read_text(encoding="utf-8")
