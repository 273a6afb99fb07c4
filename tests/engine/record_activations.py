"""Write data/activations.json: what Megatron Core saves for the backward pass, by configuration.

    python tests/engine/record_activations.py [only these names ...]

Run again when the engine changes; takes about ten minutes on one core.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.verify.activations import MODELLED, saved_bytes
from meshwright.verify.process import EngineProcess
from meshwright.verify.subject import Subject, placed

TARGET = Path(__file__).parent / "data" / "activations.json"
NONE, FULL = "none", "full"
DSV3 = "Et*4|(t*4|)*14tmL"
DSV3_VPP = "Et|(tt|)*30mL"

# name of the model, degrees, sequence, recompute ("none", "full" or modules), stages, pipeline layout, flags
Row = tuple[str, dict[str, int], int, str, tuple[int, ...], str | None, dict[str, Any]]


def rows() -> Iterator[Row]:
    sp = {"sp": 1}
    for tp, extra in ((1, {}), (2, sp), (2, {}), (8, sp), (8, {})):
        yield "llama-3-8b", {"tp": tp, **extra}, 8192, NONE, (0,), None, {}
    for recompute in ("core_attn", "mlp", "layernorm", "core_attn,mlp", FULL):
        yield "llama-3-8b", {"tp": 2, **sp}, 8192, recompute, (0,), None, {}
    yield "llama-3-8b", {"cp": 2}, 8192, NONE, (0,), None, {}
    yield "llama-3-8b", {"tp": 2, "cp": 4, **sp}, 32768, NONE, (0,), None, {}
    yield "llama-3-8b", {"pp": 4, "mbs": 2}, 4096, NONE, (0, 1, 3), None, {}
    yield "llama-3-8b", {"tp": 2, **sp}, 8192, NONE, (0,), None, {"cross_entropy_fusion": False}
    yield "llama-3-70b", {"tp": 8, "pp": 4, **sp}, 8192, NONE, (0, 1, 3), None, {}
    yield "llama-3-70b", {"tp": 8, "pp": 4, "vpp": 5, **sp}, 8192, NONE, (0, 1, 3), None, {}
    yield "llama-3-70b", {"tp": 8, "pp": 4, **sp}, 8192, FULL, (0, 3), None, {}
    yield "llama-3-70b", {"tp": 4, "pp": 8, "cp": 2, **sp}, 16384, NONE, (0, 7), None, {}
    for degrees in ({"ep": 8}, {"tp": 2, "ep": 8, **sp}, {"tp": 2, "ep": 4, "etp": 2, **sp}):
        yield "mixtral-8x7b", degrees, 4096, NONE, (0,), None, {}
    yield "mixtral-8x7b", {"tp": 2, "ep": 8, **sp}, 4096, NONE, (0,), None, {"dispatcher": "allgather"}
    for recompute in ("moe", "moe_act", "layernorm", FULL):
        yield "mixtral-8x7b", {"tp": 2, "ep": 8, **sp}, 4096, recompute, (0,), None, {}
    yield "mixtral-8x7b", {"tp": 2, "pp": 4, "ep": 4, **sp}, 4096, NONE, (0, 1, 3), None, {}
    big = {"tp": 2, "pp": 16, "ep": 64, **sp}
    for recompute in (
        NONE,
        "mla_up_proj",
        "moe_act",
        "layernorm",
        "shared_experts",
        "moe",
        "mlp",
        "core_attn",
    ):
        stages = (0, 1, 15) if recompute == NONE else (0,)
        yield "deepseek-v3", big, 4096, recompute, stages, DSV3, {}
    yield "deepseek-v3", big, 4096, "mla_up_proj,layernorm,moe_act", (0, 15), DSV3, {}
    yield "deepseek-v3", big, 4096, FULL, (0, 15), DSV3, {}
    yield "deepseek-v3", {"pp": 8, "vpp": 4, "ep": 32}, 4096, NONE, (0, 1, 7), DSV3_VPP, {}
    yield "qwen3-30b-a3b", {"ep": 8}, 4096, NONE, (0,), None, {}
    yield "qwen3-30b-a3b", {"tp": 4, "pp": 2, "ep": 4, **sp}, 4096, NONE, (0, 1), None, {}
    yield "qwen3-30b-a3b", {"ep": 16, "cp": 2}, 8192, NONE, (0,), None, {}
    yield "qwen3-30b-a3b", {"tp": 2, "ep": 8, **sp}, 4096, "moe_act,layernorm", (0,), None, {}
    yield "qwen3-8b", {"tp": 2, **sp}, 8192, NONE, (0,), None, {}
    yield "gpt-oss-20b", {"ep": 8}, 4096, NONE, (0,), None, {}
    yield "gemma-2-9b", {"tp": 2, **sp}, 4096, NONE, (0,), None, {}
    yield "qwen2.5-7b", {"tp": 2, **sp}, 4096, NONE, (0,), None, {}
    yield "deepseek-v2-lite", {"ep": 8}, 4096, NONE, (0,), None, {}
    for degrees in ({"tp": 1}, {"mbs": 2}, {"tp": 2, "cp": 2, **sp}, {"tp": 2, "cp": 8}):
        yield "nemotron-h-8b", degrees, 8192, NONE, (0,), None, {}
    yield "nemotron-h-8b", {"tp": 2, "pp": 4, **sp}, 8192, NONE, (0, 1, 3), None, {}
    yield "nemotron-3-nano-30b-a3b", {"tp": 2, "ep": 8, **sp}, 8192, NONE, (0,), None, {}
    yield "qwen3-next-80b-a3b", {"ep": 8}, 4096, NONE, (0,), None, {}
    yield "qwen3-next-80b-a3b", {"tp": 2, "pp": 4, "ep": 8, "mbs": 2, **sp}, 4096, NONE, (0, 1, 3), None, {}
    for recompute in ("core_attn", FULL):
        yield "qwen3-next-80b-a3b", {"tp": 2, "ep": 8, **sp}, 4096, recompute, (0,), None, {}
    yield "qwen3-next-80b-a3b", {"ep": 8}, 4096, "core_attn,shared_experts", (0,), None, {}


def subject_of(row: Row) -> Subject:
    name, degrees, seq_length, recompute, _, pipeline, flags = row
    model = catalog.find(name)
    layout = Layout(**{key: value for key, value in degrees.items() if key != "sp"}, sp="sp" in degrees)
    chosen = PipelineLayout.parse(pipeline, layout.pp) if pipeline else None
    return Subject(
        model=model,
        layout=layout,
        world=layout.min_gpus,
        seq_length=seq_length,
        execution=Execution(recompute=recompute_of(recompute), **flags),
        placement=placed(model, layout, chosen),
    )


def recompute_of(text: str) -> Recompute:
    if text in (NONE, FULL):
        return Recompute(granularity=text)
    return Recompute(granularity="selective", modules=tuple(text.split(",")))


def record(engine: EngineProcess, row: Row) -> dict[str, Any]:
    name, degrees, seq_length, recompute, stages, pipeline, flags = row
    subject = subject_of(row)
    found = saved_bytes(engine, subject, stages=stages)
    return {
        "model": name,
        "layout": degrees,
        "world": subject.world,
        "seq_length": seq_length,
        "recompute": recompute,
        "pipeline_layout": pipeline,
        "flags": flags,
        "num_microbatches": subject.layout.pp * (1 if subject.layout.vpp == 1 else 2),
        "stages": [
            {
                "stage": stage.stage,
                "peak_bytes": stage.peak_bytes,
                "microbatch_bytes": stage.microbatch_bytes,
                "parts": fold(dict(stage.parts)),
            }
            for stage in found
        ],
    }


def fold(parts: dict[str, int]) -> dict[str, int]:
    """Runs of equal layers as one entry: {"layer1-19": bytes of each}."""
    folded: dict[str, int] = {}
    run: list[str] = []
    for name, size in [*parts.items(), ("", 0)]:
        if run and not (name.partition("layer")[1] and size == parts[run[0]] and same_chunk(run[0], name)):
            last = run[-1].rpartition("layer")[2]
            folded[run[0] if len(run) == 1 else f"{run[0]}-{last}"] = parts[run[0]]
            run = []
        if name.rpartition(".")[2].startswith("layer"):
            run.append(name)
        elif name:
            folded[name] = size
    return folded


def same_chunk(one: str, other: str) -> bool:
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def main(only: list[str]) -> None:
    with EngineProcess() as engine:
        head = {"engine": engine.ask("versions"), "figures": MODELLED, "unit": "bytes"}
        done = []
        for row in rows():
            if only and row[0] not in only:
                continue
            start = time.perf_counter()
            done.append(record(engine, row))
            print(row[0], row[1], row[3], f"{time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    if not only:
        TARGET.parent.mkdir(exist_ok=True)
        body = ",\n".join("  " + json.dumps(entry) for entry in done)
        TARGET.write_text(
            json.dumps(head)[:-1] + ', "configurations": [\n' + body + "\n]}\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
