"""Packages whose own code judges what is written, unpacked beside each other and never installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "meshwright" / "wheels"
DOWNLOAD = 240
"""Longest time for one download [s]."""


def unpacked(package: str, version: str) -> Path:
    """Directory of a wheel's contents, fetched once; the test is skipped where no index can be reached."""
    place = CACHE / f"{package}-{version}"
    if place.exists():
        return place
    wanted = [f"{package}=={version}", "--python-version", "3.12", "--only-binary=:all:", "--no-deps"]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", *wanted, "-d", folder]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=DOWNLOAD)
        except (subprocess.SubprocessError, OSError) as problem:
            reason = getattr(problem, "stderr", None) or str(problem).encode()
            pytest.skip(f"{package} {version} cannot be downloaded: {reason.decode()[-200:].strip()}")
        (wheel,) = Path(folder).glob("*.whl")
        contents = Path(folder) / "contents"
        zipfile.ZipFile(wheel).extractall(contents)
        try:
            contents.rename(place)
        except OSError:  # another worker was quicker
            assert place.exists()
    return place
