"""How fast whole spaces are searched: layouts a second, wall time, peak memory.

    python benchmarks/search_speed.py [--repeat 3] [--every] [--out FILE]

Each search runs in a process of its own, so that peak memory is that of the one search.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Job
from meshwright.job.stacks import default_execution
from meshwright.model.catalog import find
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes, free_flags
from reporting import report_path, table, write

CASES = (
    ("llama-3-70b", "64xH100", 8192, 128, "bf16"),
    ("gpt3-175b", "1024xA100-80GB", 2048, 1536, "bf16"),
    ("deepseek-v3", "2048xH100", 4096, 8192, "bf16"),
)
MORE = (
    ("llama-3.2-1b", "1xH100", 8192, 64, "bf16"),
    ("qwen3-235b-a22b", "256xGB200", 4096, 2048, "mxfp8"),
    ("llama-3.1-405b", "16384xH100", 8192, 16384, "bf16"),
    ("kimi-k2", "4096xGB200", 4096, 8192, "bf16"),
    ("deepseek-v3", "100000xGB200", 4096, 100000, "bf16"),
    ("nemotron-h-56b", "512xH100", 8192, 1024, "bf16"),
)
FREED = tuple((*case, "all") for case in CASES)
"""The same with `--free all`: dispatchers, overlaps, CP communication and offload free as well."""
Case = tuple[Any, ...]
LIMIT_SECONDS, LIMIT_BYTES = 2.0, 1024**3


def question_of(case: Case) -> Question:
    name, gpus, sequence, batch, precision = case[:5]
    return Question(
        model=find(name),
        cluster=parse_cluster(gpus),
        job=Job(seq_length=sequence, global_batch=batch, precision=precision),
    )


def search_whole(question: Question, free: tuple[str, ...] = ()) -> Found:
    """The search behind `plan` with every axis free, and further flags."""
    model, job = question.model, question.job
    execution = default_execution(question.stack, question.cluster.gpu, model.is_moe, job.precision)
    return search(question, Axes(execution=execution, flags=free_flags(execution, free), splits="both"))


def measure(case: Case, repeat: int) -> dict[str, float]:
    """Best of several runs in this process, and its peak memory."""
    question, walls, cpus = question_of(case), [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        found = search_whole(question, case[5:])
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {
        "searched": found.searched, "scored": found.scored, "excluded": sum(found.excluded.values()),
        "fitting": found.fitting, "first": walls[0], "wall": min(walls), "cpu": min(cpus),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


def measure_apart(case: Case, repeat: int) -> dict[str, float]:
    """The same in a child process."""
    command = [sys.executable, __file__, "--case", json.dumps(case), "--repeat", str(repeat)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    return dict(json.loads(done.stdout))


def row_of(case: Case, found: dict[str, float]) -> list[str]:
    """One line of the report."""
    return [
        f"{case[0]} on {case[1]}, {', free: '.join(case[4:])}",
        f"{found['searched']:,.0f}", f"{found['scored']:,.0f}",
        f"{found['excluded']:,.0f}", f"{found['wall']:.2f}", f"{found['first']:.2f}", f"{found['cpu']:.2f}",
        f"{found['searched'] / found['wall']:,.0f}", f"{found['peak'] / 1024**2:.0f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--every", action="store_true", help="the larger spaces as well")
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(tuple(json.loads(args.case)), args.repeat)))
        return
    cases = CASES + ((*FREED, *MORE) if args.every else ())
    found = [measure_apart(case, args.repeat) for case in cases]
    head = [
        "plan", "searched", "scored", "excluded by a bound", "wall [s]", "first run [s]", "CPU [s]",
        "layouts/s", "peak [MiB]",
    ]  # fmt: skip
    rows = table(head, [row_of(*pair) for pair in zip(cases, found, strict=True)])
    print("\n".join(rows))
    slow = [case[0] for case, one in zip(cases, found, strict=True) if one["cpu"] > LIMIT_SECONDS]
    large = [case[0] for case, one in zip(cases, found, strict=True) if one["peak"] > LIMIT_BYTES]
    lines = [
        "# Speed of the search",
        "",
        f"Every axis free; {os.cpu_count()} cores, one of them used. Best of {args.repeat} runs in a "
        "process of its own; `first run` includes reading the data files. Load on the machine shows as wall "
        "above CPU time.",
        "",
        *rows,
        "",
        f"Above {LIMIT_SECONDS:g} s of CPU time: {', '.join(slow) or 'none'}. "
        f"Above 1 GiB: {', '.join(large) or 'none'}.",
    ]
    write(args.out or report_path("search-speed"), lines, command="python benchmarks/search_speed.py --every")


if __name__ == "__main__":
    main()
