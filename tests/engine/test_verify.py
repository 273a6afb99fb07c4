"""`verify` on the real engine: good plans pass, bad ones fail with a reason, injected faults are caught."""

from __future__ import annotations

import random

import pytest

from meshwright.errors import QuestionError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.verify.engine_config import Placement
from meshwright.verify.process import EngineProcess
from meshwright.verify.shrink import shrink
from meshwright.verify.starts import our_reasons, starts
from meshwright.verify.subject import Subject, placed
from meshwright.verify.trains import FAULTS, trains
from meshwright.verify.verification import Level, timed
from meshwright.verify.verify import verify

pytestmark = pytest.mark.engine

SELECTIVE = Execution(
    recompute=Recompute(granularity="selective", modules=("mla_up_proj", "moe_act", "layernorm"))
)
FULL = Execution(recompute=Recompute(granularity="full"), cp_comm="allgather")


def subject(
    name: str, layout: Layout, world: int, pipeline: str | None = None, execution: Execution | None = None,
    global_batch: int = 0, seq_length: int = 4096,
) -> Subject:  # fmt: skip
    model = catalog.find(name)
    chosen = PipelineLayout.parse(pipeline, layout.pp) if pipeline else None
    return Subject(
        model=model,
        layout=layout,
        world=world,
        seq_length=seq_length,
        global_batch=global_batch,
        execution=execution or Execution(),
        placement=placed(model, layout, chosen),
    )


PLANS = {
    "llama-3-70b on 64": subject("llama-3-70b", Layout(tp=8, pp=4, sp=True), 64, global_batch=128),
    "deepseek-v3 on 1,024": subject(
        "deepseek-v3", Layout(tp=2, pp=16, ep=64, sp=True), 1024, "Et*4|(t*4|)*14tmL", global_batch=8192
    ),
    "mixtral with ETP 2 and a2a": subject(
        "mixtral-8x7b", Layout(tp=2, cp=2, ep=4, etp=2, sp=True), 32, execution=Execution(cp_comm="a2a")
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_good_plan_passes_all_levels_that_can_run_here(engine: EngineProcess, name: str) -> None:
    verification = verify(PLANS[name], engine=engine)
    assert [(level.name, level.verdict) for level in verification.levels] == [
        ("starts", "pass"),
        ("saved-activations", "pass"),
        ("trains-small", "pass"),
        ("on-gpus", "skipped"),
    ]
    assert verification.verdict == "pass"
    assert verification.seconds < 90


def test_recurrent_layers_are_counted_too(engine: EngineProcess) -> None:
    plan = subject("nemotron-h-8b", Layout(tp=4, pp=2, sp=True), 8, global_batch=8)
    (level,) = verify(plan, levels=[1], engine=engine).levels
    assert level.verdict == "pass", level.why


TRAINED = {
    "MTP away from the loss, VPP": subject(
        "deepseek-v3", Layout(tp=2, pp=4, vpp=2, ep=8, sp=True), 64, "Et*10|(t*10|)*4t*11|m|L"
    ),
    "MTP under context parallelism, recompute": subject(
        "deepseek-v3", Layout(tp=2, cp=2, ep=8, sp=True), 16, execution=SELECTIVE
    ),
    "full recompute, context parallelism by gathering": subject(
        "llama-3-8b", Layout(pp=2, cp=2), 8, execution=FULL
    ),
    "allgather dispatcher, more experts than a tensor group": subject(
        "mixtral-8x7b", Layout(tp=2, ep=8, sp=True), 16, execution=Execution(dispatcher="allgather")
    ),
    "sinks, biases, windows": subject("gpt-oss-20b", Layout(tp=2, pp=2, ep=4, sp=True), 16),
    "norms after the parts, tied embedding over stages": subject(
        "gemma-2-9b", Layout(tp=2, pp=2, sp=True), 8
    ),
    "learned positions, LayerNorm, more stages than data": subject(
        "gpt3-175b", Layout(tp=8, pp=8, vpp=2, sp=True), 64
    ),
    "fewer key heads than tensor ranks": subject("qwen2.5-0.5b", Layout(tp=2, pp=2), 8),
    "uneven stages": subject("llama-3-8b", Layout(pp=3), 6),
    "state space and attention": subject("nemotron-h-8b", Layout(tp=2, pp=2, sp=True), 8),
    "delta rule and gated attention": subject("qwen3-next-80b-a3b", Layout(tp=2, ep=4, sp=True), 8),
    "two optimizer instances": subject(
        "llama-3.2-1b", Layout(tp=2, sp=True), 8, execution=Execution(optimizer_instances=2)
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_small_copy_learns_what_one_process_learns(engine: EngineProcess, name: str) -> None:
    level = timed(2, "trains-small", lambda: trains(engine, TRAINED[name]))
    assert level.verdict == "pass", level.why
    assert level.evidence["injected"], "every run injects a fault"


@pytest.mark.parametrize("fault", FAULTS)
def test_an_injected_fault_is_caught_and_named(engine: EngineProcess, fault: str) -> None:
    verification = verify(PLANS["llama-3-70b on 64"], levels=[2], fault=fault, engine=engine)
    assert verification.verdict == "fail"
    assert f"caught the injected fault {fault}" in verification.levels[0].why


def test_a_fault_that_a_plan_cannot_have_is_a_wrong_question(engine: EngineProcess) -> None:
    alone = subject("llama-3-8b", Layout(), 1)
    with pytest.raises(QuestionError, match="cannot have the fault sp-grad-sync"):
        verify(alone, levels=[2], fault="sp-grad-sync", engine=engine)
    with pytest.raises(QuestionError, match="unknown fault 'wrong-shart'; did you mean wrong-shard"):
        verify(alone, levels=[2], fault="wrong-shart", engine=engine)


def test_experts_whole_on_tensor_ranks_without_ep_train_wrongly(engine: EngineProcess) -> None:
    """TP 2, EP 1, ETP 1 starts, and its experts' gradients are not summed over the tensor ranks."""
    plan = subject("mixtral-8x7b", Layout(tp=2, sp=True), 4)
    assert level_zero(engine, plan).verdict == "pass"
    level = timed(2, "trains-small", lambda: trains(engine, plan))
    assert level.verdict == "fail"
    assert "off that of one process" in level.why


@pytest.mark.parametrize(
    ("plan", "engine_says"),
    [
        (
            subject("llama-3-8b", Layout(tp=3, sp=True), 48),
            "must be a multiple of tensor_model_parallel_size",
        ),
        (subject("mixtral-8x7b", Layout(tp=2, ep=8), 64), "without also enabling sequence parallelism"),
        (subject("llama-3-70b", Layout(tp=8, pp=4, sp=True), 60), "is not divisible by"),
        (subject("llama-3-8b", Layout(ep=2), 2), "num_moe_experts must be non None"),
        (subject("llama-3-8b", Layout(cp=2), 2, seq_length=4098), "cannot be cut into 2 x cp 2 chunks"),
        (subject("llama-3-8b", Layout(), 16, global_batch=100), "is not divisible by"),
        (subject("llama-3-70b", Layout(pp=8, vpp=2), 8, global_batch=4), "should range in [PP=8 , M=4]"),
        (subject("qwen3.5-35b-a3b", Layout(tp=8, ep=8, sp=True), 8), "is invalid for input of size"),
    ],
)
def test_a_bad_plan_fails_at_level_0_with_the_engines_own_reason(
    engine: EngineProcess, plan: Subject, engine_says: str
) -> None:
    verification = verify(plan, engine=engine)
    first, *rest = verification.levels
    assert (verification.verdict, first.verdict) == ("fail", "fail")
    assert engine_says in first.evidence["engine_says"]
    assert first.evidence["our_rules"], "our rules refuse it as well"
    assert {level.verdict for level in rest} == {"skipped"}


def test_a_model_that_the_engine_has_no_module_for_is_skipped_not_passed(engine: EngineProcess) -> None:
    verification = verify(subject("olmo-2-7b", Layout(tp=2, sp=True), 8), engine=engine)
    assert verification.verdict == "skipped"
    assert "cannot build olmo-2-7b: a norm over the whole query" in verification.levels[0].why


def test_random_plans_start_exactly_where_our_rules_let_them(engine: EngineProcess) -> None:
    """30 that our rules accept start; 30 that they refuse are refused by the engine, with its own reason."""
    rng = random.Random(8)
    accepted: list[Level] = []
    refused: list[Level] = []
    while min(len(accepted), len(refused)) < 30:
        plan = random_plan(rng)
        valid = not our_reasons(plan)
        if len(accepted if valid else refused) < 30:
            level = level_zero(engine, plan)
            assert level.verdict == ("pass" if valid else "fail"), (
                plan.model.name,
                str(plan.layout),
                level.why,
            )
            (accepted if valid else refused).append(level)
    assert all(level.evidence["engine_says"] for level in refused)


def level_zero(engine: EngineProcess, plan: Subject) -> Level:
    return timed(0, "starts", lambda: starts(engine, plan))


RANDOM_MODELS = (
    "llama-3-8b", "llama-3-70b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v2-lite", "moonlight-16b-a3b",
    "gpt-oss-20b", "gemma-2-9b",
)  # fmt: skip


def random_plan(rng: random.Random) -> Subject:
    """Any degrees at all, often wrong ones."""
    model = catalog.find(rng.choice(RANDOM_MODELS))
    tp, pp = rng.choice([1, 2, 2, 3, 4, 8]), rng.choice([1, 2, 3, 4, 8])
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=rng.choice([1, 1, 1, 2, 4]) if pp > 1 else 1,
        cp=rng.choice([1, 1, 2, 3]),
        ep=rng.choice([1, 2, 3, 4, 8, 16]) if model.is_moe else 1,
        etp=rng.choice([1, 1, 2]) if model.is_moe else 1,
        mbs=rng.choice([1, 2]),
        sp=tp > 1 and rng.random() < 0.9,
    )
    world = layout.min_gpus * rng.randint(1, 3) + (8 if rng.random() < 0.1 else 0)
    batch = layout.mbs * max(world // (tp * pp * layout.cp), 1) * pp * 2
    return Subject(
        model=model,
        layout=layout,
        world=world,
        global_batch=batch if rng.random() < 0.8 else 100,
        seq_length=4096 if rng.random() < 0.9 else 4098,
        placement=placed(model, layout) if rng.random() < 0.8 else Placement(),
    )


def test_small_copies_keep_degrees_and_pattern() -> None:
    small = shrink(PLANS["deepseek-v3 on 1,024"]).subject
    assert (small.layout.tp, small.layout.pp, small.layout.ep, small.world) == (2, 2, 4, 8)
    assert small.placement.pipeline_layout == "Et|tmL"
    assert [small.model.kinds[kind].is_moe for kind in small.model.pattern] == [False, True]
    apart = shrink(TRAINED["MTP away from the loss, VPP"]).subject
    assert (apart.layout.pp, apart.placement.pipeline_layout) == (3, "Et|t|t|t|m|L")
