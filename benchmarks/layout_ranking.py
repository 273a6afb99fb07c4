"""How well layouts of one job are ranked: two measured sweeps of TP, PP and micro-batch on A100.

    python benchmarks/layout_ranking.py [--data FILE] [--out FILE]

Writes a dated Markdown report: for each group Kendall's tau, the regret of the first choice, MAPE.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Job, Recompute, Stack
from meshwright.layout.layout import Layout
from predict import predict
from reporting import report_path, table, write
from rows import DATA, Run, gpt, read_table

SWEEP = Execution(
    recompute=Recompute(granularity="full"), overlaps=frozenset(), attention_backend="unfused",
    scattered_messages=True,
)  # fmt: skip
"""Megatron-DeepSpeed of 2022: full recompute, unfused attention, no overlap, one all-reduce a TP region."""


NETWORK = 100
"""Gbit/s a GPU. Not published: layouts with TP over two nodes reach about 85 GB/s a node, four such NICs."""


def sweep_runs(rows: Sequence[dict[str, str]]) -> list[Run]:
    """The rows of a sweep file as runs."""
    return [_run(number, row) for number, row in enumerate(rows)]


def _run(number: int, row: dict[str, str]) -> Run:
    sizes = {name: int(row[name]) for name in ("hidden", "layers", "heads")}
    model = gpt(f"gpt-{row['params_b']}b", sizes["hidden"], sizes["layers"], sizes["heads"], 51200)
    layout = Layout(tp=int(row["tp"]), pp=int(row["pp"]), mbs=int(row["mbs"]))
    question = Question(
        model=model,
        cluster=parse_cluster(f"{row['gpus']}xA100", network_gbps=NETWORK),
        job=Job(
            seq_length=int(row["seq_len"]),
            global_batch=int(row["gbs"]),
            precision="fp16",
            attention_dropout=0.1,
            hidden_dropout=0.1,  # Megatron-LM's defaults
        ),
        stack=Stack(release="25.09", framework="megatron-lm"),
    )
    return Run(
        id=f"sweep-{number}", row={**row, "gpu": "A100", "model_family": "gpt-sweep"}, settings={},
        question=question, layout=layout, execution=SWEEP, pipeline=None,
        measured=float(row["step_ms"]) / 1e3, known=True,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Agreement of predicted and measured order of the layouts of one job.

    tau     Kendall's rank correlation
    regret  measured time of the layout predicted fastest, over that of the fastest, less 1
    mape    mean of |predicted / measured - 1|
    bias    geometric mean of predicted / measured, less 1
    """

    group: str
    layouts: int
    tau: float
    regret: float
    mape: float
    bias: float


def rank(group: str, measured: np.ndarray, predicted: np.ndarray) -> Ranking:
    i, j = np.triu_indices(len(measured), 1)
    agree = np.sign(measured[i] - measured[j]) * np.sign(predicted[i] - predicted[j])
    ratio = predicted / measured
    return Ranking(
        group=group, layouts=len(measured), tau=float(agree.mean()),
        regret=float(measured[predicted.argmin()] / measured.min() - 1),
        mape=float(np.abs(ratio - 1).mean()), bias=float(np.exp(np.log(ratio).mean()) - 1),
    )  # fmt: skip


def rankings(runs: Sequence[Run], predicted: np.ndarray) -> list[Ranking]:
    """One ranking a group: the runs of one model, GPU count and batch."""
    keys = [f"{r.question.model.name}, {r.row['gpus']} GPUs, batch {r.row['gbs']}" for r in runs]
    measured = np.array([run.measured for run in runs])
    found = []
    for key in dict.fromkeys(keys):
        own = np.array([k == key for k in keys])
        found.append(rank(key, measured[own], predicted[own]))
    return found


def cells(g: Ranking) -> list[str]:
    return [g.group, str(g.layouts), f"{g.tau:.3f}", f"{g.regret:.1%}", f"{g.mape:.1%}", f"{g.bias:+.1%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA / "layout_sweeps_a100.csv")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    runs = sweep_runs(read_table(args.data))
    predicted, _ = predict(runs)
    found = rankings(runs, predicted)
    lines = [
        "# Ranking of layouts: A100 sweeps",
        "",
        "Every layout of one job was measured (Megatron-DeepSpeed, FP16, full recompute, unfused attention).",
        "Predicted with the shipped calibration.",
        "",
        *table(
            ["group", "layouts", "Kendall tau", "regret of first choice", "MAPE", "bias"],
            [cells(group) for group in found],
        ),
        "",
        "## Every layout",
        "",
        *table(
            ["group", "tp", "pp", "mbs", "measured [s]", "predicted [s]", "ratio"],
            [
                [r.question.model.name, str(r.layout.tp), str(r.layout.pp), str(r.layout.mbs),
                 f"{r.measured:.2f}", f"{p:.2f}", f"{p / r.measured:.2f}"]
                for r, p in zip(runs, predicted, strict=True)
            ],
        ),
    ]  # fmt: skip
    write(args.out or report_path("layout-ranking"), lines, command="python benchmarks/layout_ranking.py")


if __name__ == "__main__":
    main()
