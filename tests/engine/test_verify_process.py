"""The engine's process: torch stays out of ours, nothing outlives it, its troubles are told in words."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from meshwright.verify import process
from meshwright.verify.process import EngineError, EngineMissing, EngineProcess

pytestmark = pytest.mark.engine


def test_torch_is_never_imported_here(engine: EngineProcess) -> None:
    assert engine.ask("versions")["megatron-core"]
    code = (
        "import sys, meshwright.verify.verify; sys.exit('torch' in sys.modules or 'megatron' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_failed_request_leaves_the_engine_fit_for_the_next(engine: EngineProcess) -> None:
    with pytest.raises(EngineError) as error:
        engine.ask("groups", world=6, mesh={"tensor_model_parallel_size": 4})
    assert "world_size (6) is not divisible by" in str(error.value)
    assert (error.value.kind, error.value.where.partition(":")[0]) == ("RuntimeError", "parallel_state.py")
    assert len(engine.ask("groups", world=8, mesh={"tensor_model_parallel_size": 4})["tp"]) == 2


def test_a_request_that_takes_too_long_is_stopped(engine: EngineProcess) -> None:
    start = time.perf_counter()
    with pytest.raises(EngineError, match=r"no answer after 0\.05 s") as error:
        engine.ask("groups", world=16384, mesh={"expert_model_parallel_size": 64}, timeout=0.05)
    assert error.value.kind == "Timeout"
    assert time.perf_counter() - start < 5
    assert engine.ask("versions")


def test_closing_ends_everything_that_was_started() -> None:
    with EngineProcess() as own:
        own.ask("versions")
        pid = own._process.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_missing_packages_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "NEEDED", ("torch", "no-such-engine"))
    with pytest.raises(
        EngineMissing, match=r"no-such-engine is not installed; pip install 'meshwright\[verify\]'"
    ):
        EngineProcess()
