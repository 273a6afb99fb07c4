"""The most that fits on given GPUs, and the fewest GPUs, over all layouts of the space."""

import pytest

import meshwright as mw

ONE = {"tp": 2, "cp": 4, "pp": 1, "global_batch": 32}


def verdict(model, gpus, **options):
    plans = mw.plan(model, gpus, mw.Options(**options), top=1)
    return plans.best.memory.verdict if plans.best else "none"


def test_the_longest_sequence_fits_and_a_longer_one_is_tight():
    limit = mw.most_that_fits("llama3-8b", "8xH100", "sequence", mw.Options(**ONE)).capacity
    beyond = limit["fits"] + 1024 * 8
    assert verdict("llama3-8b", "8xH100", **ONE, seq_length=limit["fits"], model_changes=FAR) == "fits"
    assert verdict("llama3-8b", "8xH100", **ONE, seq_length=beyond, model_changes=FAR) == "tight"
    over = limit["may_fit"] + 1024 * 8
    assert verdict("llama3-8b", "8xH100", **ONE, seq_length=over, model_changes=FAR) == "does-not-fit"


FAR = {"max_position": 10**7}


def test_more_gpus_take_longer_sequences():
    """Twice the GPUs, twice the context-parallel ranks: less state and fewer tokens a rank."""
    eight, sixteen = (
        mw.most_that_fits("llama3-8b", gpus, "sequence", mw.Options(tp=4, pp=1, global_batch=32)).capacity
        for gpus in ("8xH100", "16xH100")
    )
    assert sixteen["fits"] > 1.8 * eight["fits"]


def test_the_largest_micro_batch_divides_the_batch_and_the_next_divisor_does_not_fit():
    options = {"tp": 8, "pp": 2, "cp": 1, "seq_length": 8192, "global_batch": 96}
    limit = mw.most_that_fits("llama3-70b", "16xH200", "micro-batch", mw.Options(**options)).capacity
    assert 96 % limit["fits"] == 0
    larger = min(n for n in range(limit["may_fit"] + 1, 97) if 96 % n == 0)
    assert verdict("llama3-70b", "16xH200", **options, mbs=limit["fits"]) == "fits"
    assert verdict("llama3-70b", "16xH200", **options, mbs=larger) == "does-not-fit"


def test_where_nothing_fits_the_nearest_is_shown():
    answer = mw.most_that_fits("llama3-70b", "2xH100", "micro-batch", mw.Options())
    assert answer.capacity["may_fit"] == 0
    assert not answer.fitting
    assert answer.best.memory.verdict == "does-not-fit"


def test_what_is_sought_cannot_be_given():
    with pytest.raises(mw.QuestionError, match="leave --seq-length out"):
        mw.most_that_fits("llama3-8b", "8xH100", "sequence", mw.Options(seq_length=4096))


def test_fit_and_plan_agree():
    """What `fit` calls fitting `plan` calls fits; where `fit` says tight, `plan` does, and not one less."""
    options = mw.Options(seq_length=8192, global_batch=96)
    found = mw.fit("llama3-70b", "H100", options)
    surely, maybe = found.min_gpus_fitting, found.min_gpus_tight
    assert found.best.memory.verdict == "fits"
    assert maybe < surely
    assert found.tight.memory.verdict == "tight"
    assert mw.plan("llama3-70b", f"{maybe}xH100", options, top=1).fitting > 0
    assert mw.plan("llama3-70b", f"{maybe // 2}xH100", options, top=1).fitting == 0


def test_a_size_with_a_sure_layout_that_is_slower_than_a_tight_one_counts():
    """The search must not drop what surely fits because something tight is faster."""
    found = mw.fit("llama3-8b", "H100", mw.Options(seq_length=8192, global_batch=128))
    assert all(plan.memory.high_bytes <= plan.memory.usable_bytes for plan in found.plans)
