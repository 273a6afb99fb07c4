"""The engine in a child process: the only way in which Meshwright runs Megatron Core.

    with EngineProcess() as engine:
        engine.ask("groups", world=64, mesh={"tensor_model_parallel_size": 8})

The child patches torch; this side never imports it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from meshwright.errors import LayoutError, QuestionError

NEEDED = ("torch", "megatron-core", "einops")
START_SECONDS = 120.0
"""Importing torch and Megatron Core takes 2 to 20 s, by disk and load."""


class EngineMissing(QuestionError):  # noqa: N818 - it says what is missing
    """Torch or Megatron Core is not installed."""


class EngineError(LayoutError):
    """The engine refused, and this is its own reason.

    kind   class of the engine's exception ("ValueError", "AssertionError", "Timeout", ...)
    where  file:line inside the engine
    trace  its traceback
    """

    def __init__(self, message: str, *, kind: str, where: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.kind, self.where, self.trace = kind, where, trace


def missing_packages() -> list[str]:
    """What `verify` needs and is not installed; nothing is imported to find out."""
    missing = []
    for name in NEEDED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return missing


class EngineProcess:
    """One child process that answers engine requests in turn; start it once, ask it often.

    Used as a context manager, or closed with `close()`. Everything it started is killed with it.
    """

    def __init__(self, python: str = sys.executable) -> None:
        if python == sys.executable and (missing := missing_packages()):
            verb = "is" if len(missing) == 1 else "are"
            raise EngineMissing(
                f"verify runs Megatron Core itself, and {' and '.join(missing)} {verb} not installed; "
                f"pip install 'meshwright[verify]'"
            )
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", "meshwright.verify.engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=child_environment(),
            start_new_session=True,
        )
        self._rest = b""
        self._ready = False

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, op: str, *, timeout: float = 120.0, **values: Any) -> Any:
        """The engine's answer as plain values; EngineError when it refuses, dies or takes too long [s]."""
        if not self._ready:
            self._read(START_SECONDS)
            self._ready = True
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"op": op, "timeout": timeout, **values}).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        reply = self._read(timeout + 10)
        if reply["ok"]:
            return reply["result"]
        raise EngineError(
            reply["message"], kind=reply["type"], where=reply["where"], trace=reply.get("trace", "")
        )

    def close(self) -> None:
        """End the child and everything it started."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._noise):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self, seconds: float) -> dict[str, Any]:
        """One reply line."""
        stdout = self._process.stdout
        assert stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, end - time.monotonic())):
                    self.close()
                    raise EngineError(f"the engine gave no answer in {seconds:.0f} s", kind="Timeout")
                part = os.read(stdout.fileno(), 1 << 20)
                if not part:
                    raise self._died()
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _died(self) -> EngineError:
        self._process.wait()
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"exit status {self._process.returncode}"
        return EngineError(f"the engine process ended: {last}", kind="Died", trace="\n".join(lines[-30:]))


def child_environment() -> dict[str, str]:
    """The caller's environment, one thread, no compilation, no GPU, and this package importable."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
