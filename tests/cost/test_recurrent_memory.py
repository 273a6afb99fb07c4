"""Recurrent mixers keep what their kernels' sources say they save, byte for byte."""

import re

import pytest

from meshwright.cost.accounts import accounts
from meshwright.cost.recurrent_memory import saved_by, saved_rows
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout

TE_LOSS = Execution(cross_entropy_impl="te")


@pytest.mark.parametrize(
    ("model", "layout", "seq", "engine"),
    [
        ("nemotron-h-8b", Layout(), 4096, 420627968),
        ("nemotron-h-8b", Layout(tp=2, cp=2, sp=True), 8192, 210339200),
        ("nemotron-h-8b", Layout(tp=2, cp=8), 16384, 126140000),  # 16 copies of 8 groups
        ("qwen3.5-27b", Layout(tp=2, sp=True), 4096, 547307616),
        ("qwen3.5-27b", Layout(tp=4, sp=True), 4096, 273653808),
    ],
)
def test_a_layer_keeps_to_the_byte_what_megatron_core_saves(ask, model, layout, seq, engine):
    """Megatron Core 0.16.1's own layers over kernels that save what theirs save: bytes of the first layer."""
    asked = ask(model, f"{layout.min_gpus}xH100", layout, seq=seq, execution=TE_LOSS)
    blocks = accounts(asked.question, asked.table, asked.view).blocks
    assert blocks.kept[0, 0] == engine


def test_mamba_by_hand(ask):
    """Nemotron-H 8B, a token: projection, scan's output, gated output, its normed copy, statistics."""
    inner, state, heads, groups, hidden = 8192, 8 * 128, 128, 8, 4096
    projected = 2 * inner + 2 * state + heads
    token = 2 * (projected + inner + inner + inner) + 4 * groups
    norm = 2 * (hidden + hidden) + 4
    small = 3 * 4 * heads  # A, its exponential, the bias of dt: fp32, whatever the tokens
    asked = ask("nemotron-h-8b", "1xH100", Layout(), seq=2048, execution=TE_LOSS)
    blocks = accounts(asked.question, asked.table, asked.view).blocks
    assert blocks.kept[0, 0] == (token + norm) * 2048 + small


def test_every_saved_tensor_names_the_release_it_was_read_in():
    for kind in ("mamba2", "gdn"):
        for row in saved_rows(kind):
            assert re.match(r"[a-z1-9-]+ \d+\.\d+[^,]*, \S+\.py, ", row["source"]), row["source"]


def test_the_kernels_recompute_what_their_table_leaves_out():
    assert saved_by("mamba_split_conv1d_scan_combined") == [
        "zxbcdt", "out_x", "conv1d_weight", "conv1d_bias", "A", "dt_bias",
    ]  # fmt: skip
    assert saved_by("chunk_gated_delta_rule") == ["q, k", "v", "g", "beta", "A"]
