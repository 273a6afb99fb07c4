"""Predicted against published step times.

    python benchmarks/accuracy.py [--runs FILE] [--settings FILE] [--out FILE] [--no-folds]

Any file in the format of data/throughput.csv can be scored. The headline is the Megatron runs whose
execution settings are published; the others are reported by source. Every fold is fitted without the
held-out rows and without rows of the same configuration. Writes a dated Markdown report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fitting_runs import excluded, fit, fit_set, out_of_sample, published_runs
from predict import predict
from reporting import report_path, table, write
from rows import DATA, Run, read_runs, read_table
from scoring import Score, pair_order, score

HEAD = ["rows", "configurations", "median error", "p90", "bias", "in the 80 % band"]


def cells(s: Score) -> list[str]:
    return [
        str(s.runs),
        f"{s.weight:.0f}",
        f"{s.median:.1%}",
        f"{s.p90:.1%}",
        f"{s.bias:+.1%}",
        f"{s.coverage:.0%}",
    ]


def breakdown(
    title: str, runs: Sequence[Run], predicted: np.ndarray, band: np.ndarray, of: Callable[[Run], str]
) -> list[str]:
    """A table with one line for each value of `of`."""
    labels = [of(run) for run in runs]
    lines = []
    for label in sorted(set(labels)):
        own = np.array([index for index, name in enumerate(labels) if name == label])
        lines.append([label, *cells(score([runs[i] for i in own], predicted[own], band[own]))])
    return ["", f"### By {title}", "", *table([title, *HEAD], lines)]


def headline(runs: Sequence[Run], predicted: np.ndarray, band: np.ndarray) -> list[str]:
    """All, dense and MoE runs, and the order of pairs."""
    rows = []
    for name, keep in (
        ("all", lambda r: True),
        ("dense", lambda r: not r.is_moe),
        ("MoE", lambda r: r.is_moe),
    ):
        own = np.array([i for i, run in enumerate(runs) if keep(run)])
        if len(own):
            rows.append([name, *cells(score([runs[i] for i in own], predicted[own], band[own]))])
    right, total = pair_order(runs, predicted)
    return [
        *table(["runs", *HEAD], rows),
        "",
        f"Pairs over 10 % apart in the right order: {right} of {total} ({right / max(total, 1):.1%}).",
    ]


def known_section(runs: Sequence[Run]) -> list[str]:
    """The shipped calibration on the runs whose settings are published."""
    predicted, band = predict(runs)
    lines = ["", "## Megatron runs with published settings, shipped calibration (in sample)", ""]
    lines += headline(runs, predicted, band)
    keys: tuple[tuple[str, Callable[[Run], str]], ...] = (
        ("model", lambda r: r.question.model.name), ("GPU", lambda r: r.gpu),
        ("precision", lambda r: r.question.job.precision), ("release", lambda r: r.row["release"]),
        ("task", lambda r: r.row["task"]),
    )  # fmt: skip
    for title, of in keys:
        lines += breakdown(title, runs, predicted, band, of)
    worst = np.argsort(-np.abs(np.log(predicted / np.array([r.measured for r in runs]))))[:15]
    rows = []
    for i in worst:
        run, ratio = runs[i], predicted[i] / runs[i].measured
        seconds = [f"{run.measured:.2f}", f"{predicted[i]:.2f}", f"{ratio:.2f}"]
        rows.append([run.id, run.question.model.name, run.gpu, *seconds])
    return [
        *lines,
        "",
        "### Worst",
        "",
        *table(["row", "model", "GPU", "measured [s]", "predicted [s]", "ratio"], rows),
    ]


def unseen_section(published: Sequence[Run]) -> list[str]:
    """Runs with settings, predicted by fits that never saw their model family or their GPU kind."""
    runs = fit_set(published)
    _, model = fit(runs)
    lines = ["", "## The same runs, predicted by fits that never saw them", ""]
    lines += [
        "A fold leaves out one model family or one GPU kind, and every other row of the same configuration."
    ]
    for name, of in (("model family", lambda run: run.family), ("GPU kind", lambda run: run.gpu)):
        index, predicted = out_of_sample(runs, model, of)
        held = [runs[i] for i in index]
        _, band = predict(held)
        lines += ["", f"### One {name} left out", "", *headline(held, predicted, band)]
        lines += breakdown(name + " left out", held, predicted, band, of)[3:]
    return lines


def other_section(runs: Sequence[Run]) -> list[str]:
    """Runs whose execution settings are not published, by source."""
    if not runs:
        return []
    predicted, band = predict(runs)
    lines = ["", "## Other runs, shipped calibration, by source", ""]
    foundry = [i for i, run in enumerate(runs) if not run.row["framework"].startswith("llm-foundry")]
    for name, own in (("all", np.arange(len(runs))), ("without llm-foundry", np.array(foundry, dtype=int))):
        if len(own):
            s = score([runs[i] for i in own], predicted[own], band[own])
            errors = f"median error {s.median:.1%}, p90 {s.p90:.1%}, bias {s.bias:+.1%}"
            lines.append(f"{name}: {s.runs} rows, {errors}.")
            lines.append("")
    return [*lines, *breakdown("source", runs, predicted, band, lambda r: r.row["source_file"])[3:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=DATA / "throughput.csv")
    parser.add_argument("--settings", type=Path, default=DATA / "throughput_settings.csv")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--no-folds", action="store_true", help="leave the fits of folds out (minutes)")
    args = parser.parse_args()
    settings = read_table(args.settings) if args.settings.exists() else []
    runs, refused = read_runs(read_table(args.runs), settings, excluded())
    known = [run for run in runs if run.known]
    other = [run for run in runs if not run.known]
    lines = ["# Accuracy of step times", ""]
    if known:
        lines += known_section(known)
    if not args.no_folds:
        lines += unseen_section(published_runs()[0])
    lines += other_section(other)
    reasons: dict[str, int] = {}
    for reason in refused.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    rows = [[reason, str(count)] for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    lines += ["", "## Rows not scored", "", *table(["why", "rows"], rows)]
    write(args.out or report_path("accuracy"), lines, command="python benchmarks/accuracy.py")


if __name__ == "__main__":
    main()
