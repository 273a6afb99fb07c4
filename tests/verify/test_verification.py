"""Verdicts over levels, and the JSON that scripts rely on."""

from __future__ import annotations

import json

import pytest

from meshwright.errors import LayoutError
from meshwright.verify.process import EngineError
from meshwright.verify.verification import Level, Outcome, Verification, refusal, timed


def level(verdict: str) -> Level:
    return timed(0, "starts", lambda: Outcome(verdict, "why"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        (["pass", "skipped"], "pass"),
        (["skipped", "skipped"], "skipped"),
        (["pass", "fail", "skipped"], "fail"),
        ([], "skipped"),
    ],
)
def test_one_failure_fails_and_skipping_is_no_success(levels: list[str], verdict: str) -> None:
    assert Verification(levels=tuple(level(one) for one in levels)).verdict == verdict


def test_json_has_the_fields_of_the_contract() -> None:
    answer = json.loads(json.dumps(Verification(levels=(level("pass"),)).as_dict()))
    assert answer["verdict"] == "pass"
    assert set(answer["levels"][0]) >= {"name", "verdict", "seconds", "evidence"}


def refuse(error: LayoutError) -> Outcome:
    raise error


def test_what_the_engine_refuses_is_a_failure_with_its_words_and_place() -> None:
    error = EngineError("heads must divide", kind="ValueError", where="transformer_config.py:925")
    failed = timed(0, "starts", lambda: refuse(error))
    assert (failed.verdict, failed.why) == (
        "fail",
        "the engine refuses: heads must divide (transformer_config.py:925)",
    )
    assert failed.evidence["engine_says"] == "heads must divide"


def test_what_cannot_run_on_cpus_is_skipped() -> None:
    # our own stand-in for kernels of GPUs raises it: verify/engine/standin/install.py, gpu_only
    error = EngineError("checkpoint runs on GPUs only", kind="NotImplementedError")
    assert timed(2, "trains-small", lambda: refuse(error)).verdict == "skipped"


def test_what_the_engine_itself_does_not_implement_is_a_refusal_and_fails():
    # Megatron Core: enable_mhc_connections with pipeline_model_parallel_size > 1
    error = EngineError("enable_mhc_connections does not support this yet", kind="NotImplementedError")
    assert refusal(error).verdict == "fail"
