"""What to change when a layout does not fit."""

import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find
from meshwright.planner.remedies import Setting, changes, remedies


def setting(model: str, gpus: str, layout: Layout, *, seq: int = 8192, batch: int = 128, **flags: object):
    job = Job(seq_length=seq, global_batch=batch)
    question = Question(model=find(model), cluster=parse_cluster(gpus), job=job)
    return question, Setting(job=job, layout=layout, execution=Execution(**flags))


def test_what_fits_comes_first_and_the_cheapest_of_it():
    found = remedies(*setting("llama-3-70b", "64xH100", Layout(tp=4, pp=4, vpp=5, sp=True)))
    fitting = [r for r in found if r.verdict == "fits" and not r.numerics]
    assert found[: len(fitting)] == tuple(fitting)
    assert [r.slower for r in fitting] == sorted(r.slower for r in fitting)
    assert all(r.saved > 0 for r in found)


def test_recompute_degrees_offload_and_sharding_are_all_offered():
    found = remedies(*setting("llama-3-70b", "64xH100", Layout(tp=4, pp=4, vpp=5, sp=True)), most=99)
    options = {option for remedy in found for option, _ in remedy.options}
    assert {"--recompute", "--tp", "--cp", "--vpp", "--offload", "--fsdp", "--grad-dtype"} <= options


def test_where_one_change_is_not_enough_several_are_named_together():
    """13B at DP 1 on 40 GB cards: 58 GB of state; offloading and recompute fit it."""
    question, start = setting("llama-2-13b", "4xA100-40GB", Layout(tp=4, sp=True), seq=4096)
    first = remedies(question, start)[0]
    assert first.verdict == "fits"
    assert len(first.options) > 1
    assert ("--offload", "1") in first.options
    assert first.setting.execution.optimizer_offload == 1.0


def test_changes_of_the_numerics_are_marked_and_never_chained():
    question, start = setting("llama-2-13b", "4xA100-40GB", Layout(tp=4, sp=True), seq=4096)
    found = remedies(question, start, most=99)
    assert {r.options[0][0] for r in found if r.numerics} == {"--grad-dtype", "--optimizer"}
    assert not found[0].numerics


def test_unfused_attention_is_to_be_fused():
    """Phi-3-mini at 4,096 tokens with the local attention core: 1 GiB a layer for each copy of the scores."""
    layout, flags = Layout(), {"attention_backend": "unfused"}
    found = remedies(*setting("phi-3-mini-3.8b", "8xA100", layout, seq=4096, batch=64, **flags))
    assert ("--attention-backend", "auto") in [r.options[0] for r in found]


def test_a_long_context_gets_context_parallelism_and_recompute():
    """Qwen3-30B-A3B at 32k on TP4 EP32: the answer is CP beside EP, and full recompute."""
    layout = Layout(tp=4, ep=32, sp=True)
    found = remedies(*setting("qwen3-30b-a3b", "32xA100", layout, seq=32768, batch=32), most=99)
    options = [r.options[0] for r in found]
    assert ("--cp", "2") in options
    assert ("--recompute", "full") in options


def test_nothing_is_heavier_than_full_recompute():
    flags = {"recompute": Recompute(granularity="full", num_layers=1)}
    found = remedies(*setting("llama-3-70b", "64xH100", Layout(tp=4, pp=4, sp=True), **flags), most=99)
    assert "--recompute" not in {option for remedy in found for option, _ in remedy.options}


def test_a_layout_that_cannot_start_has_no_remedies():
    assert remedies(*setting("llama-3-70b", "64xH100", Layout(tp=3))) == ()


@pytest.mark.parametrize("option", ["--tp", "--pp", "--cp"])
def test_a_remedy_is_a_setting_that_can_be_priced_again(option):
    question, start = setting("llama-3-70b", "64xH100", Layout(tp=4, pp=4, vpp=5, sp=True))
    remedy = next(r for r in remedies(question, start, most=99) if r.options[0][0] == option)
    name = option.removeprefix("--")
    assert getattr(remedy.setting.layout, name) == 2 * getattr(start.layout, name)


def test_every_remedy_can_be_typed():
    """The options of every change are options of the commands."""
    from meshwright.cli.options import BOUNDS, CLUSTER, EXECUTION, JOB, LAYOUT

    flags = {
        word for group in (LAYOUT, JOB, EXECUTION, CLUSTER, BOUNDS) for f in group for word in f.spellings
    }
    known = {word for text in flags for word in text.split("/")}
    plain = {"cross_entropy_fusion": False, "attention_backend": "unfused", "expandable_segments": False}
    for model, gpus, more in (
        ("llama-3-70b", "64xH100", plain),
        ("qwen3-30b-a3b", "32xH100", {"distributed_optimizer": False}),
    ):
        question, start = setting(model, gpus, Layout(mbs=2, pp=2, vpp=2), **more)
        used = {option for options, *_ in changes(question, start) for option in options}
        assert used <= known
