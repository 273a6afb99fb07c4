"""Small copies of plans: every degree above 1 stays above 1, and the pattern stays."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright.errors import LayoutError, MeshwrightError
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.model.spec import Moe
from meshwright.verify.engine_config import Placement
from meshwright.verify.engine_fields import CannotBuild
from meshwright.verify.shrink import MOST_RANKS, shrink
from meshwright.verify.subject import Subject, placed


def plan(name: str, layout: Layout, world: int, text: str | None = None) -> Subject:
    model = catalog.find(name)
    pipeline = PipelineLayout.parse(text, layout.pp) if text else None
    return Subject(model=model, layout=layout, world=world, placement=placed(model, layout, pipeline))


@pytest.mark.parametrize(
    ("name", "layout", "world", "text", "small", "ranks", "pipeline"),
    [
        ("llama-3-70b", Layout(tp=8, pp=4, sp=True), 64, None, "TP2 PP2 MBS1", 8, None),
        ("llama-3-70b", Layout(tp=8, pp=4, sp=True), 32, None, "TP2 PP2 MBS1", 4, None),
        (
            "deepseek-v3",
            Layout(tp=2, pp=16, ep=64),
            1024,
            "Et*4|(t*4|)*14tmL",
            "TP2 PP2 EP4 MBS1",
            8,
            "Et|tmL",
        ),
        (
            "deepseek-v3",
            Layout(pp=8, vpp=4, ep=64),
            512,
            "Et|(tt|)*30mL",
            "PP2 VPP2 EP2 MBS1",
            4,
            "Et|t|t|mL",
        ),
        ("gemma-3-12b-text", Layout(pp=2), 2, None, "PP2 MBS1", 2, None),
        # experts cut otherwise than the dense layers stay cut otherwise
        ("mixtral-8x7b", Layout(tp=8, etp=2, sp=True), 8, None, "TP4 ETP2 MBS1", 8, None),
    ],
)
def test_degrees_become_2_and_the_ends_stay(
    name: str, layout: Layout, world: int, text: str | None, small: str, ranks: int, pipeline: str | None
) -> None:
    copy = shrink(plan(name, layout, world, text)).subject
    assert (str(copy.layout), copy.world) == (small, ranks)
    assert copy.placement.pipeline_layout == pipeline


def test_uneven_ends_stay_uneven() -> None:
    model = catalog.find("llama-3-8b")
    subject = Subject(
        model=model,
        layout=Layout(pp=4),
        world=4,
        placement=Placement(first_stage_layers=7, last_stage_layers=7),
    )
    copy = shrink(subject).subject
    assert copy.placement.first_stage_layers == copy.placement.last_stage_layers == 1
    assert copy.model.num_layers == 2  # pp 2 has no stages between the ends


def test_a_copy_that_needs_too_many_ranks_is_refused() -> None:
    subject = plan("mixtral-8x7b", Layout(tp=2, cp=2, pp=2, ep=8, sp=True), 16)
    with pytest.raises(LayoutError, match="more than 4 processes"):
        shrink(subject, most_ranks=4)


def test_random_copies_keep_what_the_plan_has() -> None:
    rng, seen = random.Random(3), 0
    for name in catalog.names():
        try:
            model = catalog.find(name)
        except MeshwrightError:  # figures without layers
            continue
        layout = Layout(
            tp=rng.choice([1, 2, 8]),
            pp=(pp := rng.choice([1, 2, 4])),
            vpp=rng.choice([1, 2]) if pp > 1 else 1,
            cp=rng.choice([1, 2, 4]),
            ep=rng.choice([1, 2, 8]) if model.is_moe else 1,
            etp=rng.choice([1, 2]) if model.is_moe else 1,
        )
        subject = Subject(
            model=model, layout=layout, world=2 * layout.min_gpus, placement=placed(model, layout)
        )
        try:
            subject.config()
            copy = shrink(subject).subject
        except CannotBuild:
            continue
        seen += 1
        for degree in ("tp", "pp", "vpp", "cp", "ep", "etp"):
            big, small = getattr(layout, degree), getattr(copy.layout, degree)
            assert (small > 1) == (big > 1), (name, degree)
        assert copy.world <= MOST_RANKS
        assert set(copy.model.pattern) == set(model.pattern)
        assert copy.model.pattern[-1] == model.pattern[-1]
        assert any(isinstance(kind.ffn, Moe) for kind in copy.model.kinds) == model.is_moe
        assert copy.pipeline() is not None
    assert seen > 60


def test_what_stands_in_for_a_gpus_work_is_said_with_what_that_leaves_unproven() -> None:
    base = plan("mixtral-8x7b", Layout(ep=8), 16)
    fsdp = shrink(replace(base, execution=Execution(fsdp=True, dispatcher="deepep", optimizer_offload=0.5)))
    said = " / ".join([*fsdp.notes, *fsdp.subject.config().notes])
    assert "the distributed optimizer stands in for FSDP" in said
    assert "the deepep kernels themselves are not proven" in said
    assert "offload is not proven" in said
    assert shrink(base).notes == ()
