"""Every request that the page on REST shows is answered."""

import json
import re
from pathlib import Path

import httpx
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rest.md"
SHOWN = re.findall(r'```json title="POST (\S+)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("path", "body"), SHOWN, ids=[path for path, _ in SHOWN])
def test_a_request_of_the_page_is_answered(api: httpx.Client, path: str, body: str) -> None:
    found = api.post(path, json=json.loads(body))
    assert found.status_code == 200, found.text


def test_the_page_shows_every_kind_of_question() -> None:
    assert {path for path, _ in SHOWN} >= {
        "/api/plan",
        "/api/estimate",
        "/api/fit",
        "/api/check",
        "/api/advise",
    }
