"""Histograms of sample lengths: as words, as files; and what packs of unequal attention cost."""

import json

import numpy as np
import pytest

import meshwright as mw
from meshwright.cost.packs import attention_spread, most_of
from meshwright.errors import QuestionError
from meshwright.job.lengths import MOST_BINS, read_sequence_lengths, token_shares
from meshwright.job.spec import Job

HISTOGRAM = ((512, 1.0), (1024, 2.0), (2048, 3.0), (8192, 1.0))


def test_shares_of_samples_become_shares_of_tokens():
    assert read_sequence_lengths("2048:0.5,8192:0.5") == ((2048, 0.2), (8192, 0.8))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lines.txt", "# lengths\n1024\n1024\n\n1024\n3072\n"),
        ("counts.csv", "1024,3\n3072,1\n"),
        ("list.json", "[1024, 1024, 3072, 1024]"),
        ("counts.json", json.dumps({"1024": 3, "3072": 1})),
    ],
)
def test_files_say_the_same_in_four_ways(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert read_sequence_lengths(str(path)) == ((1024, 0.5), (3072, 0.5))


def test_a_file_of_many_lengths_is_merged_and_its_mean_attention_stays():
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(7, 1, 20_000).astype(int) + 1
    found = token_shares((length, 1) for length in lengths)
    assert len(found) <= MOST_BINS
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert sum(length * share for length, share in found) == pytest.approx(
        (lengths.astype(float) ** 2).sum() / lengths.sum(), rel=1e-3
    )


@pytest.mark.parametrize(
    "text", ["", "none.txt", "2048", "2048:0", "0:1", "2048:-1", "1e3:1", "2048:nan", "2048:1,,", ":" * 2000]
)
def test_words_that_are_no_histogram_are_refused(text):
    with pytest.raises(QuestionError):
        read_sequence_lengths(text)


@pytest.mark.parametrize("text", ["1 2 3\n", "abc\n", "[1,", '{"a": 1}', "[[1,2,3]]", "\x00\x01"])
def test_files_that_hold_something_else_are_refused(tmp_path, text):
    path = tmp_path / "lengths"
    path.write_text(text)
    with pytest.raises(QuestionError):
        read_sequence_lengths(str(path))


def test_spread_of_attention_among_packs_is_that_of_packing_at_random():
    """Packs filled at random from the histogram, 4,000 of them."""
    rng = np.random.default_rng(0)
    size = 65536
    length, number = (np.array(side) for side in zip(*HISTOGRAM, strict=True))
    packs = []
    for _ in range(4000):
        drawn = rng.choice(length, p=number / number.sum(), size=2 * size // 1024)
        filled = np.cumsum(drawn)
        whole = drawn[: np.searchsorted(filled, size)]
        packs.append((whole.astype(float) ** 2).sum() + (size - whole.sum()) ** 2)
    job = Job(seq_length=size, global_batch=1, packing=token_shares(HISTOGRAM))
    found = attention_spread(job, np.array([float(size)]))[0]
    assert found == pytest.approx(np.std(packs) / np.mean(packs), rel=0.1)


def test_samples_of_one_length_make_equal_packs():
    job = Job(seq_length=8192, global_batch=1, packing=((1024, 1.0),))
    assert attention_spread(job, np.array([8192.0]))[0] == 0.0


def test_expected_largest_of_normal_values():
    """Source: Tippett 1925, expected range of normal samples: half of 1.128, 3.078, 5.015."""
    assert most_of(np.array([2.0, 10.0, 100.0])) == pytest.approx([0.564, 1.539, 2.508], abs=0.04)


def estimate(words: str | None = None, **degrees: int) -> mw.Estimate:
    options = mw.Options(
        global_batch=128, seq_length=32768, sequence_lengths=words or "", **{"tp": 2, **degrees}
    )
    return mw.estimate("llama3-8b", "64xH100", options)


def test_packed_short_samples_attend_less_and_their_flops_are_counted_so():
    whole, packed = estimate(), estimate("2048:1")
    assert packed.time.terms["attention"] < 0.2 * whole.time.terms["attention"]
    assert packed.time.terms["gemm"] == pytest.approx(whole.time.terms["gemm"])
    tokens = packed.time.tokens_per_second_per_gpu / whole.time.tokens_per_second_per_gpu
    assert packed.time.model_tflops_per_gpu < tokens * whole.time.model_tflops_per_gpu


def test_unequal_packs_make_replicas_and_pipelines_wait():
    equal, mixed = estimate("4096:1"), estimate("1024:15,32768:1")
    assert mixed.time.terms["imbalance"] > equal.time.terms["imbalance"]
    assert sum(mixed.time.terms.values()) == pytest.approx(mixed.time.step_seconds)
    short, deep = (
        estimate("1024:15,32768:1", pp=pp).time.terms["imbalance"]
        - estimate("4096:1", pp=pp).time.terms["imbalance"]
        for pp in (1, 4)
    )
    assert deep > 0
    assert short > 0


def test_samples_longer_than_the_sequence_are_refused():
    with pytest.raises(QuestionError, match="65536"):
        estimate("65536:1")
