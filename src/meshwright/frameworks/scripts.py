"""Shell text for what is written: quoting, continuation lines, exports, launchers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from meshwright.frameworks.plan import Plan


def grouped(words: Sequence[str]) -> list[list[str]]:
    """Words as lines: each option with its values."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines or "=" in word:
            lines.append([word])
        else:
            lines[-1].append(word)
    return lines


def command_text(head: str, lines: Iterable[Sequence[str]]) -> str:
    """A command over several lines."""
    body = [" ".join(quoted(word) for word in line) for line in lines if line]
    return " \\\n    ".join([head, *body]) + "\n"


OPEN = re.compile(r"<([A-Za-z_]\w{0,79}|\d)>")
"""A variable whose value was not known when a script was read."""


def quoted(word: str) -> str:
    """A word for the shell; a variable that was open stays one, unquoted: it may hold several words."""
    pieces = OPEN.split(word)
    return (
        "".join(f"${{{piece}}}" if at % 2 else shlex.quote(piece) for at, piece in enumerate(pieces) if piece)
        if len(pieces) > 1
        else shlex.quote(word)
    )


def comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def exports(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())


def torchrun(plan: Plan, *, slurm: bool = False) -> str:
    """The torchrun part of a command line, rendezvous on the first node."""
    variable = "SLURM_NNODES" if slurm else "NNODES"
    nodes = f'"${{{variable}:-{plan.nodes}}}"'
    parts = [f"torchrun --nnodes={nodes}", f"--nproc-per-node={plan.gpus_per_node}"]
    if slurm:
        parts += ['--rdzv-id="$SLURM_JOB_ID"', "--rdzv-backend=c10d", '--rdzv-endpoint="$HEAD:29500"']
    elif plan.nodes > 1:
        parts += [
            '--node-rank="${NODE_RANK:-0}"',
            '--master-addr="${MASTER_ADDR:-localhost}"',
            "--master-port=29500",
        ]
    return " ".join(parts)


def script(plan: Plan, head: str, lines: Iterable[Sequence[str]]) -> str:
    """A whole shell script."""
    return (
        "#!/bin/bash\n"
        + comment(plan.heading)
        + "set -euo pipefail\n\n"
        + exports(plan.environment)
        + ("\n" if plan.environment else "")
        + command_text(head, lines)
    )


def sbatch(plan: Plan, command: str) -> str:
    """A Slurm batch script that starts `command` once a node."""
    directives = [
        f"--job-name={plan.name}",
        f"--nodes={plan.nodes}",
        f"--gpus-per-node={plan.gpus_per_node}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--output=%x-%j.log",
    ]
    return (
        "#!/bin/bash\n"
        + "".join(f"#SBATCH {directive}\n" for directive in directives)
        + comment(plan.heading)
        + "set -euo pipefail\n\n"
        + exports(plan.environment)
        + 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n\n'
        + "srun "
        + command
    )
