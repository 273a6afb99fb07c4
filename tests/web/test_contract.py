"""The OpenAPI document holds: whatever is asked, no fault of the server, and answers as described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from meshwright.web.app import create_app

pytestmark = pytest.mark.xdist_group("web")

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = [
    found.ok() for found in schemathesis.openapi.from_dict(create_app().openapi()).get_all_operations()
]


def test_the_document_tells_of_every_answer() -> None:
    assert {operation.path for operation in OPERATIONS} == {
        f"/api/{name}"
        for name in ("limits", "models", "gpus", "plan", "fit", "estimate", "scaling", "check", "write",
                     "trace", "ranks", "report", "compare", "advise", "verify", "verify/{job}")
    }  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.path for operation in OPERATIONS])
def test_whatever_is_asked(server: str, operation: Any) -> None:
    """A 503 or 504 says that a limit was met: that is an answer, and no fault."""

    @given(case=operation.as_strategy())
    @settings(
        max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
        phases=[Phase.generate], database=None,
    )  # fmt: skip
    def asked(case: Any) -> None:
        response = case.call(base_url=server, timeout=120)
        if response.status_code not in (503, 504):
            case.validate_response(response, checks=CHECKS)

    asked()


REAL = {"model": "llama-3-8b", "seq_length": 4096, "global_batch": 64}
ON = {"/api/fit": {"gpu": "H100", "max_gpus": 8}}
ASKING = [one for one in OPERATIONS if one.path in ("/api/plan", "/api/fit", "/api/estimate", "/api/write")]


@pytest.mark.parametrize("operation", ASKING, ids=[operation.path for operation in ASKING])
def test_whatever_is_asked_of_a_real_model(server: str, operation: Any) -> None:
    """The same with a model and GPUs that exist, so that the question gets past the door."""

    @given(case=operation.as_strategy())
    @settings(
        max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
        phases=[Phase.generate], database=None,
    )  # fmt: skip
    def asked(case: Any) -> None:
        case.body = {name: value for name, value in case.body.items() if name != "config"}
        case.body |= {**REAL, **ON.get(operation.path, {"gpus": "8xH100"})}
        response = case.call(base_url=server, timeout=120)
        if response.status_code not in (503, 504):
            case.validate_response(response, checks=CHECKS)

    asked()
