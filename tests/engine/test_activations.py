"""Saved activations: the recorded figures are what the engine saves, and the figures add up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.verify.activations import SavedActivations, saved_bytes
from meshwright.verify.process import EngineProcess
from meshwright.verify.subject import Subject, placed

pytestmark = pytest.mark.engine

RECORDED = json.loads((Path(__file__).parent / "data" / "activations.json").read_text())
QUICK = [
    entry
    for entry in RECORDED["configurations"]
    if entry["model"] in ("llama-3-8b", "mixtral-8x7b", "gemma-2-9b") and entry["layout"].get("pp", 1) == 1
]
RECURRENT = [
    entry
    for entry in RECORDED["configurations"]
    if (entry["model"], entry["layout"])
    in [("nemotron-h-8b", {"tp": 2, "cp": 8}), ("qwen3-next-80b-a3b", {"ep": 8})]
]


def test_the_record_says_which_engine_it_is_of() -> None:
    assert RECORDED["engine"]["megatron-core"] == "0.16.1"
    assert len(RECORDED["configurations"]) >= 40


@pytest.mark.parametrize(
    "entry", [*QUICK[::4], *RECURRENT], ids=lambda e: f"{e['model']}-{e['layout']}-{e['recompute']}"
)
def test_the_engine_still_saves_what_is_recorded(engine: EngineProcess, entry: dict[str, Any]) -> None:
    degrees = entry["layout"]
    layout = Layout(**{k: v for k, v in degrees.items() if k != "sp"}, sp="sp" in degrees)
    text = entry["recompute"]
    kind = text if text in ("none", "full") else "selective"
    recompute = Recompute(granularity=kind, modules=() if kind != "selective" else tuple(text.split(",")))
    (found,) = measure(
        engine, entry["model"], layout, entry["seq_length"], Execution(recompute=recompute, **entry["flags"])
    )
    assert found.peak_bytes == entry["stages"][0]["peak_bytes"]


def test_a_llama_layer_adds_up_by_hand(engine: EngineProcess) -> None:
    """70B, 8,192 tokens, TP 8 with sequence parallelism: 268.26 MiB a layer."""
    tokens, hidden, ffn, tp, kv = 8192, 8192, 28672, 8, 1024
    norms = 2 * 2 * (2 * tokens // tp * hidden)  # input and output of both norms, bf16
    statistics = 2 * 4 * tokens // tp  # 1/sigma of both norms, fp32
    attention = 2 * tokens * (2 * hidden + 2 * kv) // tp + 4 * tokens * 64 // tp  # q, out, k, v; row sums
    mlp = 2 * tokens * 3 * ffn // tp  # gate and up, their product
    (found,) = measure(
        engine, "llama-3-70b", Layout(tp=8, pp=4, sp=True), 8192, stages=[1], until_steady=True
    )
    assert found.parts["layer25"] == norms + statistics + attention + mlp
    assert found.parts["layer25"] / 2**20 == pytest.approx(268.26, abs=0.01)
    assert (
        found.peak_bytes == 3 * found.microbatch_bytes - 2 * 4 * tokens * 128
    )  # one table of angles for all


def test_the_peak_of_1f1b_is_pp_minus_stage_micro_batches(engine: EngineProcess) -> None:
    found = measure(
        engine, "llama-3-8b", Layout(tp=2, pp=4, sp=True), 4096, stages=[0, 1, 2, 3], until_steady=True
    )
    angles = 4 * 4096 * 128  # saved once, whatever is in flight
    inputs = [stage.microbatch_bytes - angles for stage in found]
    assert [stage.peak_bytes for stage in found[:3]] == [(4 - i) * inputs[i] + angles for i in range(3)]


def test_stopping_early_finds_the_same_peak(engine: EngineProcess) -> None:
    layout = Layout(pp=2, ep=4)
    whole = measure(engine, "moonlight-16b-a3b", layout, 4096, stages=[0])
    early = measure(engine, "moonlight-16b-a3b", layout, 4096, stages=[0], until_steady=True)
    assert [stage.peak_bytes for stage in whole] == [stage.peak_bytes for stage in early]


def measure(
    engine: EngineProcess,
    name: str,
    layout: Layout,
    seq_length: int,
    execution: Execution | None = None,
    pipeline: PipelineLayout | None = None,
    stages: list[int] | None = None,
    until_steady: bool = False,
) -> tuple[SavedActivations, ...]:
    model = catalog.find(name)
    subject = Subject(
        model=model,
        layout=layout,
        world=layout.min_gpus,
        seq_length=seq_length,
        execution=execution or Execution(),
        placement=placed(model, layout, pipeline),
    )
    return saved_bytes(engine, subject, stages=stages, until_steady=until_steady)
