"""Write docs/accuracy.md from the newest benchmark reports: every figure, and those that fall short.

python tools/generate_accuracy.py          write the page
python tools/generate_accuracy.py --check  exit 1 where it differs
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
REPORTS = ROOT / "benchmarks" / "reports"
POOR_MEDIAN = 10.0
"""A group of runs whose median error is above this is listed as falling short [%]."""
POOR_TAIL = 20.0
"""So is one whose error exceeds this in one run of ten [%]."""
POOR_BAND = 70.0
"""An 80 % band that holds fewer of the runs than this is listed too [%]."""

Row = Mapping[str, str]


def newest(name: str) -> Path:
    """The newest report of a kind: `2026-11-29-accuracy.md`, or `expert_recipes.md` without a date."""
    dated = re.compile(rf"(\d{{4}}-\d\d-\d\d-)?{re.escape(name)}\.md")
    found = sorted(path for path in REPORTS.glob("*.md") if dated.fullmatch(path.name))
    if not found:
        raise SystemExit(f"benchmarks/reports holds no report {name}; run `make bench`")
    return found[-1]


def dated(path: Path) -> str:
    """Where a figure comes from: the report and its date."""
    day = re.search(r"\d{4}-\d\d-\d\d", path.read_text(encoding="utf-8"))
    return f"`benchmarks/reports/{path.name}`, {day[0] if day else 'undated'}"


def section(text: str, title: str) -> str:
    """The body of a heading, up to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}[^\n]*\n", text, re.M)
    if found is None:
        raise SystemExit(f"a report has no heading {title!r}; mend tools/generate_accuracy.py")
    rest = text[found.end() :]
    ends = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
    return rest[: ends.start()] if ends else rest


def table(text: str, first: str) -> list[Row]:
    """The first table whose first column has this head."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-| :]+\|\n((?:\|.*\n?)+)", text, re.M)
    if found is None:
        raise SystemExit(f"a report has no table of {first!r}; mend tools/generate_accuracy.py")
    heads = cells(found[0].splitlines()[0])
    return [dict(zip(heads, cells(line), strict=False)) for line in found[1].splitlines()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def shown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return head + "".join(f"| {' | '.join(row.get(one, '') for one in columns)} |\n" for row in rows)


def percent(text: str) -> float:
    found = re.search(r"-?[\d.]+", text)
    return float(found[0]) if found else 0.0


SCORES = ("rows", "median error", "p90", "bias", "in the 80 % band")


def step_times() -> str:
    path = newest("accuracy")
    text = path.read_text(encoding="utf-8")
    own = section(text, "Megatron runs with published settings")
    unseen = section(text, "The same runs, predicted by fits that never saw them")
    family, kind = section(unseen, "One model family left out"), section(unseen, "One GPU kind left out")
    rows = []
    for words, part in (("in sample", own), ("model family left out", family), ("GPU kind left out", kind)):
        rows += [{"": f"{row['runs']}, {words}", **row} for row in table(part, "runs")]
    pairs = re.search(r"Pairs over[^\n]*", family)
    return (
        "## Step time\n\n"
        f"Source: {dated(path)}.\n\n"
        "Runs whose flags are published, so that the very same layout and flags were predicted. Read the "
        "rows *left out*: there the fit had never seen that model family, or that kind of GPU.\n\n"
        f"{shown(rows, ('', *SCORES))}\n"
        f"Order of layouts, family left out. {pairs[0] if pairs else ''}\n\n"
        "By model, in sample:\n\n"
        f"{shown(table(section(own, 'By model'), 'model'), ('model', *SCORES))}\n"
        "By GPU, with that GPU left out of the fit:\n\n"
        f"{shown(table(kind, 'GPU kind left out'), ('GPU kind left out', *SCORES))}\n"
        "Two runs of one configuration in two containers differ by 2.6 % in the median and 12 % in one case "
        "of ten, so no prediction can do better than that.\n"
    )


def other_runs() -> str:
    path = newest("accuracy")
    part = section(path.read_text(encoding="utf-8"), "Other runs, shipped calibration, by source")
    rows = table(part, "source")
    summary = re.search(r"^all:[^\n]*", part, re.M)
    return (
        "## Runs of other programs\n\n"
        "Published runs whose flags are only partly known, or that ran something else than Megatron Core. "
        f"{summary[0].capitalize() if summary else ''}\n\n"
        f"{shown(rows, ('source', *SCORES))}"
    )


def memory() -> str:
    path = newest("memory_accuracy")
    text = path.read_text(encoding="utf-8")
    wrong = re.search(r"Runs that ran and are called does-not-fit[^\n]*", text)
    columns = ("rows", "median error", "p90", "bias", "inside the band")
    return (
        "## Memory\n\n"
        f"Source: {dated(path)}.\n\n"
        f"{shown(table(text, 'set'), ('set', *columns))}\n"
        "By source, where the configuration is complete:\n\n"
        f"{shown(table(section(text, 'By source and model family'), 'source'), ('source', *columns))}\n"
        f"{wrong[0] if wrong else ''}\n\n"
        "The sizes follow from the tensors that are saved; but these rows were known while the model was "
        "written, so these are not errors on unseen runs.\n"
    )


def ranking() -> str:
    path = newest("layout-ranking")
    text = path.read_text(encoding="utf-8")
    recipes = newest("expert_recipes")
    told = recipes.read_text(encoding="utf-8")
    bullets = "\n".join(re.findall(r"^- \*\*.*$", told, re.M))
    columns = ("group", "layouts", "Kendall tau", "regret of first choice", "MAPE", "bias")
    return (
        "## Ranking\n\n"
        f"Source: {dated(path)}. Every layout of two jobs was measured on A100; *regret* is what the first "
        "choice of Meshwright costs against the best that was measured.\n\n"
        f"{shown(table(text, 'group'), columns)}\n"
        f"Layouts that experts ship, placed in Meshwright's own ranking of the same job ({dated(recipes)}). "
        "*top*: in the first tenth; *tied*, *band*: as fast as the first, or within the uncertainty; "
        "*behind*: slower than that; *over*: predicted not to fit:\n\n"
        f"{bullets}\n\n"
        "Performance recipes are tuned for speed. Library recipes are meant to work; Meshwright often "
        "predicts that another layout is faster, and nobody has measured most of those.\n"
    )


def rules() -> str:
    rows = []
    for path in sorted(REPORTS.glob("*differential*.md")):
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^# (.*)$", text, re.M)
        counts = re.findall(r"^- (.*(?:configs|lines|Disagreements).*)$", text, re.M)
        rows.append(f"- {title[1] if title else path.name}: {' '.join(counts[:2])}")
    return (
        "## Rules\n\n"
        "Random configs, judged by the rules and by the framework itself ([how](differential.md)):\n\n"
        + "\n".join(rows)
        + "\n"
    )


def speed() -> str:
    path = newest("search-speed")
    rows = table(path.read_text(encoding="utf-8"), "plan")
    columns = ("plan", "searched", "wall [s]", "peak [MiB]")
    return f"## Speed of the search\n\nSource: {dated(path)}.\n\n{shown(rows, columns)}"


def short_falls() -> str:
    """Groups whose figures are poor by the limits above, whatever the reason."""
    found = []
    text = newest("accuracy").read_text(encoding="utf-8")
    for part, first in (
        (section(text, "Other runs, shipped calibration, by source"), "source"),
        (section(section(text, "Megatron runs with published settings"), "By model"), "model"),
        (section(section(text, "Megatron runs with published settings"), "By precision"), "precision"),
        (section(text, "One GPU kind left out"), "GPU kind left out"),
        (section(text, "One model family left out"), "model family left out"),
    ):
        found += _poor("step time", table(part, first), first, "in the 80 % band")
    read = newest("memory_accuracy").read_text(encoding="utf-8")
    found += _poor(
        "memory", table(section(read, "All rows, by source"), "source"), "source", "inside the band"
    )
    return (
        "## Where it falls short\n\n"
        f"Every group of runs with a median error above {POOR_MEDIAN:g} %, one error in ten above "
        f"{POOR_TAIL:g} %, or a band that holds fewer than {POOR_BAND:g} % of the runs:\n\n"
        "| | group | runs | median error | p90 | in the band |\n|---|---|---|---|---|---|\n"
        + "".join(found)
        + "\nPyTorch-native programs (torchtitan, nanotron) and fine-tuning programs run other kernels than "
        "Megatron Core with Transformer Engine; for those take the order of layouts, not the numbers. GPUs "
        "without measured tables inherit those of a relative, with a wider band. Experts "
        "are taken as balanced.\n\n"
        "What is particular to a cluster, a container or a clock is not in these constants: "
        "[calibrate](how-to/calibrate.md) with a run of your own.\n"
    )


def _poor(what: str, rows: Sequence[Row], first: str, band: str) -> list[str]:
    aside = ", left out of the fit" if "left out" in first else ""
    return [
        f"| {what} | {row[first]}{aside} | {row['rows']} | "
        f"{row['median error']} | {row['p90']} | {row[band]} |\n"
        for row in rows
        if percent(row["median error"]) > POOR_MEDIAN
        or percent(row["p90"]) > POOR_TAIL
        or percent(row[band]) < POOR_BAND
    ]


def page() -> str:
    head = (
        "# How accurate it is\n\n"
        "Predictions against published and measured runs, as they come out, good and bad. This page is "
        "generated from the reports in `benchmarks/reports` by `python tools/generate_accuracy.py`; "
        "`make bench` renews those.\n\n"
        "*bias*: positive where Meshwright is too slow or too large. *p90*: one run in ten is further off. "
        "*band*: the share of runs inside the band that the answer states.\n"
    )
    parts = (head, step_times(), memory(), ranking(), short_falls(), other_runs(), rules(), speed())
    return "\n".join(parts)


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
