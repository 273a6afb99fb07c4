"""Forty launch scripts and configs with what they say and what is wrong with them, judged by hand.

The table (`data/truth.csv`) was written file by file; bash files were run with recording stand-ins, and
divisibility and layouts were put through Megatron Core.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.frameworks.check import check_readings
from meshwright.frameworks.read import read_files
from meshwright.frameworks.spelling import short_names
from meshwright.frameworks.view import RULES_OF

DATA = Path(__file__).parent / "data"
ROWS = list(csv.DictReader((DATA / "truth.csv").open(newline="")))
FRAMEWORKS = {
    "mlm": "megatron-lm",
    "bridge": "megatron-bridge",
    "nemorl": "nemo-rl",
    "swift": "ms-swift",
    "titan": "torchtitan",
    "deepspeed": "megatron-deepspeed",
}
by_file = pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])


def runs_of(row: dict[str, str]) -> list[dict[str, Any]]:
    said = json.loads(row["resolved"])
    return said if isinstance(said, list) else [said]


@by_file
def test_every_stated_value_is_resolved(row: dict[str, str]) -> None:
    readings = read_files([DATA / row["file"]])
    found = []
    for reading, said in zip(readings, runs_of(row), strict=True):
        options = dict(reading.options)
        chunks = options.get("num_virtual_stages_per_pipeline_rank")
        if chunks:
            options.setdefault("virtual_pipeline_model_parallel_size", chunks)
        values = {name: options.get(short_names()[name]) for name in said}
        found.append({name: value.value if value else None for name, value in values.items()})
    assert found == runs_of(row)


@by_file
def test_the_framework_and_the_world_size_are_resolved(row: dict[str, str]) -> None:
    for reading in read_files([DATA / row["file"]]):
        world = reading.launcher.world
        assert str(world.value if world else "") == row["gpus_resolved"]
        assert reading.framework == FRAMEWORKS.get(row["framework"], row["framework"])
        assert (reading.gpu.value if reading.gpu else "") == row["gpu"]


@by_file
def test_the_verdict_is_the_one_of_the_table(row: dict[str, str]) -> None:
    report = check_readings(read_files([DATA / row["file"]]))
    assert report.verdict == row["verdict"]


@by_file
def test_the_derived_numbers_are_those_of_the_table(row: dict[str, str]) -> None:
    derived = json.loads(row["derived"])
    derived = derived if isinstance(derived, list) else [derived]
    report = check_readings(read_files([DATA / row["file"]]))
    for result, wanted in zip(report.results, derived, strict=True):
        layout = result.layout()
        names = [n for n in ("dp", "edp", "etp", "min_gpus", "num_microbatches", "vpp") if n in wanted]
        if result.reading.framework == "torchtitan":
            continue
        assert {n: layout[n] for n in names} == {n: wanted[n] for n in names}


RULES = {
    "R001": "world-divides-dense-grid",
    "R002": "world-divides-dense-grid",
    "R003": "world-divides-expert-grid",
    "R020": "gbs-divides",
    "R030": "tp-divides-heads",
    "R031": "tp-fits-kv-heads",
    "R035": "tp-divides-vocab",
    "R043": "sp-off-at-tp1",
    "R045": "moe-tp-needs-sp",
    "R051": "cp-divides-sequence",
    "R054": "a2a-p2p-needs-hierarchy",
    "R073": "pp-divides-layers",
    "R080": "layers-per-chunk",
    "R085": "middle-stages-divide",
    "R095": "layout-counts-layers",
    "R096": "layout-counts-mtp",
    "R105": "interleaving-needs-microbatches",
    "R118": "ep-needs-experts",
    "R119": "ep-divides-experts",
    "R121": "etp-unset",
    "R174": "max-connections-1",
    "R178": "fsdp-max-connections",
    "R185": "gather-overlap-needs",
    "R215": "torch-fsdp2-conditions",
    "R225": "full-recompute-method",
    "R265": "tp-inside-nvlink",
    "MEM": "memory-static",
    "TE-MXFP8-32": "mxfp8-local-width",
    "TITAN-WORLD": "titan-world",
    "TOPK": "topk-within-experts",
}


@by_file
def test_exactly_the_seeded_faults_are_found(row: dict[str, str]) -> None:
    report = check_readings(read_files([DATA / row["file"]]))
    found = {f.rule for result in report.results for f in result.findings if f.severity == "error"}
    wanted = {RULES[name] for name in row["rule_ids"].split(";") if name}
    assert found <= wanted
    named = {f.rule for result in report.results for f in result.findings}
    assert wanted <= named


def test_every_framework_of_the_corpus_has_rules() -> None:
    assert {FRAMEWORKS.get(row["framework"], row["framework"]) for row in ROWS} <= {*RULES_OF, "torchtitan"}
