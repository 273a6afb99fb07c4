"""The files an evaluation may read: what the script itself writes, and plain files near the script."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.frameworks.shell.text import Text

MAX_FILE = 1 << 20


def read_plain(path: str | Path, limit: int = MAX_FILE) -> str | None:
    """Text of a regular file of at most `limit` bytes; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        data = os.read(descriptor, limit + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(data) > limit or b"\0" in data[:4096]:
        return None
    return data.decode("utf-8", "replace")


@dataclass
class Files:
    """Virtual files first, then plain files under `root`."""

    root: Path
    """Directory of the script."""
    virtual: dict[str, Text] = field(default_factory=dict)
    shown_root: str = ""
    """How the directory is written in messages, with its trailing slash."""

    @staticmethod
    def of(content: Mapping[str, Text], root: Path) -> Files:
        return Files(root, {os.path.normpath(name): text for name, text in content.items()})

    def write(self, path: str, text: Text) -> None:
        self.virtual[os.path.normpath(path)] = text

    def resolve(self, path: str, cwd: str) -> Path | None:
        """Real path of a file near the script, None outside the allowed tree."""
        if not path or len(path) > 1024 or "\0" in path:
            return None
        joined = path if os.path.isabs(path) else os.path.join(cwd, path)
        full = Path(os.path.normpath(self.root / joined))
        top = self.root.parent if len(self.root.parts) > 2 else self.root
        return full if full.is_relative_to(top) else None

    def read(self, path: str, cwd: str) -> tuple[str, Text | str] | None:
        """(name to show, content) of a file, None when it cannot be read."""
        for name in (path, os.path.join(cwd, path)):
            found = self.virtual.get(os.path.normpath(name))
            if found is not None:
                return os.path.normpath(name), found
        full = self.resolve(path, cwd)
        content = read_plain(full) if full else None
        if full is None or content is None:
            return None
        try:
            shown = self.shown_root + str(full.relative_to(self.root))
        except ValueError:
            shown = str(full)
        return shown, content

    def exists(self, path: str, cwd: str) -> bool | None:
        """True when the file is there; None (not known) otherwise, for it may be there on the cluster."""
        if any(os.path.normpath(name) in self.virtual for name in (path, os.path.join(cwd, path))):
            return True
        full = self.resolve(path, cwd)
        try:
            return True if full and full.exists() else None
        except OSError:
            return None
