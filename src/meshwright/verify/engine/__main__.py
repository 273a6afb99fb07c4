"""Answering requests: one JSON object a line on stdin, one a line on stdout.

Request: {"op": name, "timeout": seconds, ...}. Reply: {"ok": true, "result": ...} or {"ok": false,
"type": exception class, "message": its text, "where": file:line of the engine}. Every request runs in a
fork of this process: imports are paid once, and no state, crash or hang outlives a request.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any

from meshwright.verify.engine import forked

OPERATIONS = {
    "versions": "versions:versions",
    "groups": "world:groups",
    "parameters": "parameters:count",
    "valid": "valid:check",
    "activations": "activations:measure",
    "train": "train:run",
}
"""Operation -> module:function of this package."""


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain values, with the engine's file and line where it has one."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "megatron" in frame.filename] or frames[-1:]
    place = f"{os.path.basename(inside[-1].filename)}:{inside[-1].lineno}" if inside else ""
    message, line = str(error).strip(), (inside[-1].line or "") if inside else ""
    if not message or message.startswith("when instantiating"):  # an assertion without words
        message = f"{line} {message}".strip()
    return {
        "ok": False,
        "type": type(error).__name__,
        "message": " ".join(message.split()),
        "where": place,
        "trace": traceback.format_exc(limit=-12),
    }


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        module, _, function = OPERATIONS[request["op"]].partition(":")
        operation = getattr(importlib.import_module(f"meshwright.verify.engine.{module}"), function)
        return {"ok": True, "result": operation(request)}
    except Exception as error:  # whatever the engine raises is the answer
        return describe(error)


def in_fork(request: dict[str, Any]) -> dict[str, Any]:
    """Answer in a forked process of its own group, killed when its time is over."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        forked.die_with_parent()
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            json.dump(answer(request), out)
        sys.stderr.flush()
        os._exit(0)
    os.close(writer)
    end_with_child(child)
    text = read_all(reader, float(request.get("timeout", 600)))
    kill_group(child)
    _, status = os.waitpid(child, 0)
    if text is None:
        seconds = request.get("timeout", 600)
        return {"ok": False, "type": "Timeout", "message": f"no answer after {seconds} s", "where": ""}
    if not text:
        died = f"the engine process ended with status {status}"
        return {"ok": False, "type": "Died", "message": died, "where": ""}
    reply: dict[str, Any] = json.loads(text)
    return reply


def end_with_child(child: int) -> None:
    """Asked to end, this process takes the child's group with it."""

    def end(*_: Any) -> None:
        kill_group(child)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)


def read_all(descriptor: int, seconds: float) -> str | None:
    """Everything written to a pipe until it closes; None when that takes too long."""
    parts: list[bytes] = []
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            part = os.read(descriptor, 1 << 16)
            if not part:
                os.close(descriptor)
                return b"".join(parts).decode()
            parts.append(part)
    os.close(descriptor)
    return None


def kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints must not mix with replies
    from meshwright.verify.engine import patches

    patches.install()
    print(json.dumps({"ok": True, "result": "ready"}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(in_fork(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
