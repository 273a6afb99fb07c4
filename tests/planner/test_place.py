"""Where a layout stands and why: reading it, its place, neighbours, references, awkward counts."""

import math
from dataclasses import replace

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.planner.answer import estimates
from meshwright.planner.nearby import advice, batches, fewer_gpus, odd_part, rounder
from meshwright.planner.place import read_layout, why_not
from meshwright.planner.reasons import reasons
from meshwright.planner.references import references
from meshwright.planner.search import search
from meshwright.planner.space import Axes, free_flags

AXES = Axes(flags=free_flags(Execution()))
ASKED = Question(
    model=find("llama-3-70b"), cluster=parse_cluster("64xH100"), job=Job(seq_length=8192, global_batch=128)
)


@pytest.mark.parametrize(
    "text", ["tp=8,pp=4,mbs=1", "TP8 PP4 MBS1", "--tensor-model-parallel-size=8 pp=4; micro-batch-size=1"]
)
def test_a_layout_is_read_however_it_is_written(text: str):
    assert read_layout(text).layout == Layout(tp=8, pp=4, mbs=1, sp=True)


def test_flags_and_recompute_are_read_too():
    wanted = read_layout("tp=2 sp=off fsdp recompute=selective:layernorm+mlp dispatcher=deepep")
    assert (wanted.sp, dict(wanted.flags)) == (False, {"fsdp": True, "dispatcher": "deepep"})
    assert wanted.recompute == Recompute(granularity="selective", modules=("layernorm", "mlp"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "name a layout"),
        ("tp=zero", "tp is 'zero'"),
        ("tp=0", "tp is '0'"),
        ("dp=8", "'dp=8' is no part of a layout"),
        ("fspd=on", "did you mean fsdp"),
        ("sp=maybe", "write on or off"),
        ("recompute=partly", "unknown recompute granularity"),
        ("tp=" + "9" * 500, "tp is"),
        ("x" * 2000, "2,000 characters"),
    ],
)
def test_a_layout_that_cannot_be_read_is_refused(text: str, says: str):
    with pytest.raises(QuestionError, match=says):
        read_layout(text)


def test_the_place_counts_the_layouts_that_are_faster_and_its_terms_explain_the_difference():
    place = why_not(ASKED, AXES, "tp=8,pp=8,vpp=2,mbs=1")
    whole = search(ASKED, AXES, keep=math.inf)
    step = place.estimate.time.step_seconds
    same = (whole.table.tp == 8) & (whole.table.pp == 8) & (whole.table.vpp == 2) & (whole.table.mbs == 1)
    faster = (whole.step < whole.step[same].min() * (1 - 1e-9)).sum()
    assert faster < place.position <= faster + same.sum()
    assert place.of == whole.fitting
    assert sum(seconds for _, seconds in place.terms) == pytest.approx(step - place.best.time.step_seconds)
    assert place.slower == pytest.approx(step / place.best.time.step_seconds - 1)
    assert place.excluded == ()


def test_the_first_of_the_ranking_is_placed_among_the_ties():
    whole = search(ASKED, AXES, keep=math.inf)
    best, flags = whole.table.layout(0), whole.table.executions[whole.table.execution[0]]
    text = ",".join(f"{name}={getattr(best, name)}" for name in ("tp", "pp", "vpp", "cp", "mbs"))
    place = why_not(ASKED, AXES, f"{text},recompute={flags.recompute.granularity}", whole=whole)
    assert place.slower == pytest.approx(0.0, abs=1e-12)
    assert place.position <= whole.ties


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tp=3", "not a multiple of TP*PP*CP = 3*1*1 = 3"),
        ("tp=8,pp=16", "not a multiple of TP*PP*CP = 8*16*1 = 128"),
        ("tp=1,pp=1,fsdp=off", "GiB on stage 0 at the least"),
        ("ep=8", "dense"),
        ("pp=4,mbs=3", "not a multiple of"),
    ],
)
def test_what_excludes_a_layout_is_said(text: str, says: str):
    place = why_not(ASKED, AXES, text)
    assert place.position is None
    assert says in " ".join(place.excluded)


def test_neighbours_say_what_gets_worse_and_by_which_term():
    found = search(ASKED, AXES)
    words = reasons(found, 0, ASKED)
    here = found.table.layout(0)
    compared = 0
    for line in words:
        name, other, _, _, value = line.split(":")[0].split()[:5]
        if name not in ("tp", "pp", "vpp", "cp", "mbs"):
            continue
        assert int(value) == getattr(here, name)
        sure = found.peak <= max(ASKED.cluster.gpu.usable_memory, found.peak[0])
        rows = (getattr(found.table, name) == int(other)) & sure
        change = found.step[rows].min() / found.step[0] - 1
        assert f"{abs(change):.1%} {'slower' if change > 0 else 'faster'}" in line or abs(change) < 0.005
        compared += 1
    assert compared >= 4
    assert all(" +" in line for line in words if "slower" in line and "(" in line)


def test_the_guide_and_the_nearest_recipe_are_priced_beside_the_plan():
    found = search(ASKED, AXES)
    guide, recipe = references(ASKED, AXES, found, ("llama-3-70b",))
    assert guide.who == "guide"
    assert guide.layout.tp in (4, 8)  # its table: 70B, TP 4 to 8 with PP 2 to 4
    assert recipe.who == "recipe"
    assert "llama3_70b_pretrain_64gpu_h100" in recipe.source
    best = estimates(ASKED, found.table.rows(slice(0, 1)))[0].time.step_seconds
    for one in (guide, recipe):
        assert one.excluded or one.slower == pytest.approx(one.estimate.time.step_seconds / best - 1)
        assert str(one.layout) in str(one)


def test_a_reference_that_cannot_start_says_why():
    asked = replace(ASKED, model=find("deepseek-v3"), cluster=parse_cluster("256xH100"))
    guide = references(asked, AXES, search(asked, AXES), ("deepseek-v3",))[0]
    assert guide.estimate is None
    assert "1,024" in guide.excluded[0].replace("1024", "1,024")  # TP2 PP16 EP64 needs 1,024 GPUs


def test_odd_parts_and_rounder_counts():
    assert (odd_part(1), odd_part(96), odd_part(1000), odd_part(100_000)) == (1, 3, 125, 3125)
    assert rounder(64) == ()
    assert all(odd_part(n) < 125 and 500 <= n < 1000 for n in rounder(1000))
    assert 98_304 in rounder(100_000)


def test_a_batch_that_the_world_cannot_divide_gets_neighbours_that_it_can():
    asked = replace(ASKED, cluster=parse_cluster("1000xH100"), job=Job(seq_length=8192, global_batch=1024))
    assert batches(asked) == (1000, 1125)
    assert batches(ASKED) == ()
    words = list(advice(asked, AXES, search(asked, AXES)))
    assert "a batch of 1,000 or 1,125 can" in words[0]
    assert any("992 GPUs" in line or "896 GPUs" in line or "512 GPUs" in line for line in words[1:])


def test_fewer_gpus_are_named_only_where_they_are_as_fast():
    asked = replace(
        ASKED,
        model=find("llama-3-8b"),
        cluster=parse_cluster("120xH100"),
        job=Job(seq_length=8192, global_batch=128),
    )
    found = search(asked, AXES)
    for one in fewer_gpus(asked, AXES, found):
        job = replace(asked.job, global_batch=one.batch or asked.job.global_batch)
        smaller = search(replace(asked, cluster=parse_cluster(f"{one.gpus}xH100"), job=job), AXES)
        assert smaller.step[0] == one.step
        assert job.tokens_per_step / one.step >= asked.job.tokens_per_step / found.step[0] * 0.989
    assert fewer_gpus(ASKED, AXES, search(ASKED, AXES)) == ()


def test_where_nothing_fits_the_optimizer_in_host_memory_is_tried():
    asked = replace(
        ASKED,
        model=find("llama-3-8b"),
        cluster=parse_cluster("1xH100"),
        job=Job(seq_length=4096, global_batch=8),
    )
    found = search(asked, AXES)
    words = list(advice(asked, AXES, found))
    assert not found.fitting
    assert any("--offload 1) it fits" in line for line in words)


def test_the_estimate_of_a_place_is_the_one_the_plan_shows():
    whole = search(ASKED, AXES, keep=math.inf)
    place = why_not(ASKED, AXES, "tp=4,pp=4,cp=2", whole=whole)
    shown = estimates(ASKED, whole.table.rows(slice(0, 1)))[0]
    assert place.best.time == shown.time
