"""Published runs that differ in one thing: a flag, a degree. The ratio of two such runs is the test.

python benchmarks/one_change.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.planner.batch_time import SHORT_SAMPLES
from predict import predict
from rows import DATA, Run


def one_change_runs(path: Path = DATA / "one_change.csv") -> list[Run]:
    """The rows of the file as runs; `row["pair"]` names those that belong together."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: dict[str, str]) -> Run:
    degrees = {name: int(row[name]) for name in ("tp", "pp", "vpp", "ep", "mbs")}
    modules = tuple(row["recompute"].split())
    job = Job(
        seq_length=int(row["seq_len"]), global_batch=int(row["gbs"]), precision=row["precision"],  # type: ignore[arg-type]
        task=row["task"], grad_dtype="bf16", packing=SHORT_SAMPLES if row["packed"] == "yes" else (),  # type: ignore[arg-type]
    )  # fmt: skip
    execution = Execution(
        dispatcher=row["dispatcher"], cuda_graphs=row["graphs"],  # type: ignore[arg-type]
        overlaps=frozenset(row["overlaps"].split()),  # type: ignore[arg-type]
        recompute=Recompute(granularity="selective", modules=modules) if modules else Recompute(),
    )  # fmt: skip
    question = Question(
        model=find(row["model"]), cluster=parse_cluster(f"{row['gpus']}x{row['gpu']}"), job=job
    )
    return Run(
        id=row["id"], row={**row, "quality": "A", "framework": "megatron-bridge", "dup_group": row["id"]},
        settings={}, question=question, layout=Layout(**degrees, sp=degrees["tp"] > 1), execution=execution,
        pipeline=None, measured=float(row["seconds"]), known=False,
    )  # fmt: skip


def main() -> None:
    runs = one_change_runs()
    seconds, _ = predict(runs)
    first: dict[str, int] = {}
    for number, (run, value) in enumerate(zip(runs, seconds, strict=True)):
        base = first.setdefault(run.row["pair"], number)
        ratio, measured = value / seconds[base], run.measured / runs[base].measured
        print(
            f"{run.id:22s} measured {run.measured:7.3f} s predicted {value:7.3f} s"
            f"  against {runs[base].id}: measured x{measured:.3f}, predicted x{ratio:.3f}"
        )
    off = np.log(seconds / np.array([run.measured for run in runs]))
    print(f"median error {np.median(np.abs(np.exp(off) - 1)):.1%}")


if __name__ == "__main__":
    main()
