"""A worker process: reads questions on standard input, writes answers on standard output.

`python -m meshwright.service.child MODULE`: the module holds KINDS, {kind: function of plain values}, and
`warm_up`. Frames in: 4 bytes of length, then JSON {"kind", "given"}. Frames out: 2 bytes of HTTP status,
4 bytes of length, then JSON. A worker holds no connection to the network and, once it is locked, opens no
file but those of Python and of Meshwright: whatever a script or config that is read says, nothing else of
this machine can be read, written or started.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

Kinds = Mapping[str, Callable[[Mapping[str, Any]], Any]]
MOST_MEMORY = 6 << 30
"""Address space of a worker [bytes]."""
FORBIDDEN = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
    "socket.connect", "socket.bind", "socket.getaddrinfo", "os.remove", "os.rename", "os.rmdir", "os.mkdir",
    "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate", "shutil.rmtree", "os.listdir",
    "os.scandir",
)  # fmt: skip


def main(module: str) -> None:
    """Answer with the functions of a module until standard input ends."""
    _limit_memory()
    reading, writing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not break the frames
    kept = own_places()
    os.chdir(_empty())
    answers = import_module(module)
    answers.warm_up()  # imports and caches, before files are closed
    lock(kept)
    while True:
        head = reading.read(4)
        if len(head) < 4:
            return
        asked = json.loads(reading.read(struct.unpack(">I", head)[0]))
        _reply(writing, *answer(answers.KINDS, asked["kind"], asked["given"]))


def answer(kinds: Kinds, kind: str, given: Mapping[str, Any]) -> tuple[int, bytes]:
    """Status and JSON of one question."""
    from meshwright.errors import LayoutError, MeshwrightError

    try:
        row = kinds[kind](given)
        return 200, json.dumps(row, allow_nan=False, default=str, separators=(",", ":")).encode()
    except LayoutError as error:
        return 409, _error(str(error), "answer")
    except MeshwrightError as error:
        return 422, _error(str(error), "question")
    except MemoryError:
        return 413, _error("this question needs more memory than the server gives one", "limit")
    except RecursionError:
        return 422, _error("this is nested too deep to be read", "question")
    except Exception as error:
        import traceback

        traceback.print_exc(file=sys.stderr)
        return 500, _error(f"a fault in Meshwright: {type(error).__name__}", "internal")


def _error(words: str, kind: str) -> bytes:
    return json.dumps({"error": words, "kind": kind}).encode()


def _reply(writing: BinaryIO, status: int, body: bytes) -> None:
    writing.write(struct.pack(">HI", status, len(body)) + body)
    writing.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def own_places() -> tuple[str, ...]:
    """Directories of Python and of Meshwright, with their trailing slash."""
    places = {*sys.path, sys.prefix, sys.base_prefix, str(Path(__file__).parents[1])}
    return tuple(os.path.realpath(place) + os.sep for place in places if place and os.path.isdir(place))


def _empty() -> Path:
    """An empty directory with empty ones around it, where a script finds nothing to read."""
    inner = Path(tempfile.mkdtemp(prefix="meshwright-")) / "home" / "run"
    inner.mkdir(parents=True)
    return inner


def lock(kept: tuple[str, ...]) -> None:
    """From here on only files in the places `kept` can be opened, and nothing can be started."""

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = (*arguments, None, None, None)[:3]
            if isinstance(path, int):
                return
            writes = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (
                isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            )
            full = os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes)) else ""
            if writes or not full.startswith(kept):
                raise PermissionError(13, "this server opens no such file", "")
        elif event.startswith(FORBIDDEN) and not (
            event in ("os.listdir", "os.scandir") and _known(arguments)
        ):
            raise PermissionError(13, f"this server does not allow {event}", "")

    def _known(arguments: tuple[Any, ...]) -> bool:
        """Python's own import system lists its directories."""
        path = arguments[0] if arguments else None
        return isinstance(path, str) and (os.path.realpath(path) + os.sep).startswith(kept)

    sys.addaudithook(guard)


if __name__ == "__main__":
    main(sys.argv[1])
