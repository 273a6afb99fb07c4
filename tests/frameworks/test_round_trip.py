"""Write then read gives the same plan, for random plans and every framework."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.architecture import execution_from, job_from, layout_from
from meshwright.frameworks.check import check_reading
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.read import read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import view_of
from meshwright.frameworks.write import convert, write, writers
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find

MODELS = {
    "llama3-70b": {"tp": (1, 2, 4, 8), "ep": (1,), "pipeline": ((1, 1), (2, 1), (4, 5), (8, 2))},
    "qwen3-30b-a3b": {"tp": (1, 2, 4), "ep": (1, 4, 8, 16), "pipeline": ((1, 1), (2, 2), (4, 3), (4, 1))},
}
MOE = {"qwen3-30b-a3b"}
FILES = {"megatron-bridge": ("train.sh", "overrides.yaml", "recipe.py"), "megatron-deepspeed": ("train.sh",)}
NO_WORLD = {"primus", "overrides.yaml", "recipe.py"}
NO_PRECISION = {"nemo", "nemo-rl", "verl", "torchtitan", "megatron-deepspeed"}
NO_EXECUTION = {"nemo-rl", "torchtitan", "megatron-deepspeed"}
NO_BATCH = {"verl"}
Question = tuple[str, Job, Layout, Execution]


@st.composite
def plans(draw: st.DrawFn) -> Question:
    """A layout that its GPUs divide, with a job and flags."""
    name = draw(st.sampled_from(sorted(MODELS)))
    space: Any = MODELS[name]
    pp, vpp = draw(st.sampled_from(space["pipeline"]))
    tp = draw(st.sampled_from(space["tp"]))
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=draw(st.sampled_from((1, 2, 4))),
        ep=draw(st.sampled_from(space["ep"])),
        etp=1,
        mbs=draw(st.sampled_from((1, 2))),
        sp=tp > 1,
    )
    job = Job(
        seq_length=draw(st.sampled_from((4096, 8192))),
        global_batch=draw(st.sampled_from((256, 1024))),
        precision=draw(st.sampled_from(("bf16", "fp8-current", "mxfp8", "fp8-block", "nvfp4"))),
    )
    recompute = draw(
        st.sampled_from(
            (
                Recompute(),
                Recompute(granularity="full", num_layers=1),
                Recompute(granularity="selective", modules=("core_attn",)),
                Recompute(granularity="selective", modules=("mlp", "layernorm")),
            )
        )
    )
    moe = name in MOE
    execution = Execution(
        recompute=recompute,
        dispatcher=draw(st.sampled_from(("alltoall", "deepep", "hybridep"))) if moe else "alltoall",
        overlaps=frozenset(draw(st.sets(st.sampled_from(("dp", "tp"))))) if tp > 1 else frozenset({"dp"}),
        cuda_graphs=draw(st.sampled_from(("none", "attn"))),
    )
    return name, job, layout, execution


def plan(question: Question) -> Plan:
    name, job, layout, execution = question
    return plan_of(find(name), parse_cluster("256xH100"), job, layout, execution)


def read_back(framework: str, written: dict[str, str]) -> list[tuple[str, Reading]]:
    names = FILES.get(framework, tuple(written))
    return [(name, reading) for name in names for reading in read_text(written[name], name)]


@pytest.mark.parametrize("framework", writers())
@settings(max_examples=25, deadline=None)
@given(question=plans())
def test_what_is_written_reads_as_the_same_plan(framework: str, question: Question) -> None:
    name, job, layout, execution = question
    readings = read_back(framework, write(framework, plan(question)))
    assert readings
    for file, reading in readings:
        options = view_of(reading).options
        found = layout_from(options)
        assert found is not None
        wanted = layout
        if framework in ("torchtitan", "nemo-rl"):
            wanted = Layout(**{n: getattr(layout, n) for n in ("tp", "pp", "cp", "ep", "etp", "mbs")})
        degrees = ("tp", "pp", "vpp", "cp", "mbs") + (("ep", "etp") if name in MOE else ())
        assert {n: getattr(found, n) for n in degrees} == {n: getattr(wanted, n) for n in degrees}
        if framework != "torchtitan":
            assert found.sp == layout.sp
        if framework not in NO_WORLD and file not in NO_WORLD:
            assert reading.launcher.world is not None
            assert reading.launcher.world.value == 256
        if framework not in NO_BATCH:
            said = job_from(options)
            assert said is not None
            assert (said.seq_length, said.global_batch) == (job.seq_length, job.global_batch)
            if framework not in NO_PRECISION:
                assert said == job
        if framework not in NO_EXECUTION:
            assert flags(execution_from(options), framework, name) == flags(execution, framework, name)


def flags(execution: Execution, framework: str, model: str) -> Execution:
    """The flags without those that a framework has no word for, or that mean nothing to a dense model."""
    if framework in ("verl", "ms-swift"):
        execution = replace(execution, cuda_graphs="none")
    if framework == "ms-swift" and execution.dispatcher == "hybridep":
        execution = replace(execution, dispatcher="deepep")  # what flex means where no backend is named
    return execution if model in MOE else replace(execution, dispatcher="alltoall")


@settings(max_examples=25, deadline=None)
@given(question=plans(), target=st.sampled_from(("megatron-bridge", "ms-swift", "slurm", "primus")))
def test_converting_keeps_the_plan(question: Question, target: str) -> None:
    written = write("megatron-lm", plan(question))["train.sh"]
    (reading,) = read_text(written, "train.sh")
    (_, again), *_ = read_back(target, convert(reading, target))
    there, here = (layout_from(view_of(r).options) for r in (again, reading))
    assert there is not None
    assert here is not None
    if question[0] not in MOE:  # a dense model has no expert grid: what it would be does not matter
        there, here = replace(there, etp=1), replace(here, etp=1)
    assert there == here


def test_a_written_plan_checks_ok() -> None:
    layout = Layout(tp=2, pp=4, vpp=3, ep=8, sp=True)
    question = ("qwen3-30b-a3b", Job(seq_length=4096, global_batch=1024), layout, Execution())
    for framework in ("megatron-lm", "slurm", "kubernetes", "megatron-bridge"):
        for _, reading in read_back(framework, write(framework, plan(question))):
            result = check_reading(reading)
            assert [f for f in result.findings if f.severity == "error"] == []
