"""A real one-node Slurm for the tests that submit to it."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "one_node_slurm.sh"
PROGRAMS = ("sbatch", "slurmctld", "slurmd", "munged")


def missing() -> str:
    """Why no Slurm can be started here; empty where one can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "a one-node Slurm is started as root"


def free_ports() -> int:
    """A port that is free, and so is the next."""
    first = 26817 + 2 * random.randrange(400)  # runs at the same time look elsewhere
    for port in range(first, first + 1000, 2):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("", port))
                two.bind(("", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which sbatch reaches a one-node Slurm that is there for the tests alone."""
    if why := missing():
        pytest.skip(why)
    folder, tool, started = "", {}, None
    for _ in range(3):  # a port may be taken between looking and starting
        folder = tempfile.mkdtemp(prefix="slurm-", dir="/tmp")  # a short path: munge's socket has a limit
        tool = {**os.environ, "ONE_NODE_SLURM": folder, "ONE_NODE_SLURM_PORT": str(free_ports())}
        started = subprocess.run([TOOL, "start"], env=tool, capture_output=True, text=True, timeout=180)
        if started.returncode == 0:
            break
        subprocess.run([TOOL, "stop"], env=tool, check=False, timeout=60)
    try:
        assert started is not None
        assert started.returncode == 0, started.stderr
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        yield {**clean, "SLURM_CONF": started.stdout.strip()}
    finally:
        subprocess.run([TOOL, "stop"], env=tool, check=True, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)
