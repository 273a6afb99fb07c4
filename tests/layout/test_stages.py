"""Block kinds, and how many blocks of each kind a chunk holds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from meshwright.errors import LayoutError
from meshwright.job.spec import Recompute
from meshwright.layout.pipeline import PipelineLayout, default_pipeline, split_table
from meshwright.layout.stages import block_kinds
from meshwright.model.load import load_model
from meshwright.model.spec import Attention, Layer, Mlp, Model, Moe, Vision

ATTENTION = Attention(heads=8, kv_heads=8, head_dim=64)
DENSE, MOE = (
    Layer(mixer=ATTENTION, ffn=Mlp(ffn=256)),
    Layer(mixer=ATTENTION, ffn=Moe(experts=8, top_k=2, ffn=64)),
)
FULL = Recompute(granularity="full")
BLOCK_1 = Recompute(granularity="full", method="block", num_layers=1)


def model(dense: int, moe: int, mtp: tuple[int, ...] = (), vision: Vision | None = None) -> Model:
    return Model(
        name="m", family="test", hidden=512, kinds=(DENSE, MOE), pattern=(0,) * dense + (1,) * moe,
        vocab_size=1000, mtp=mtp, vision=vision,
    )  # fmt: skip


def held(layout: str, pp: int, of: Model, recompute: Recompute | None = None) -> list[list[dict[str, int]]]:
    counts = PipelineLayout.parse(layout, pp).counts(of, recompute)
    names = block_kinds(of)
    return [
        [{n: int(c) for n, c in zip(names, chunk, strict=True) if c} for chunk in rank] for rank in counts
    ]


def test_names_come_in_the_documented_order() -> None:
    tower = Vision(
        layers=1,
        hidden=8,
        heads=1,
        ffn=8,
        gated=False,
        parameters=9,
        projector_parameters=1,
        tokens_per_image=4,
    )
    assert block_kinds(model(1, 1)) == (
        "layer0", "layer1", "layer0+recompute", "layer1+recompute", "embedding", "head",
    )  # fmt: skip
    assert block_kinds(model(1, 1, (1,), tower)) == (
        "layer0", "layer1", "mtp", "layer0+recompute", "layer1+recompute", "mtp+recompute",
        "embedding", "vision", "head",
    )  # fmt: skip


def test_layers_are_taken_in_order_and_chunks_dealt_round_the_ranks() -> None:
    chunks = held("Ett|tt|tt|tmL", 2, model(3, 4, (1,)))
    assert chunks == [
        [{"layer0": 2, "embedding": 1}, {"layer1": 2}],
        [{"layer0": 1, "layer1": 1}, {"layer1": 1, "mtp": 1, "head": 1}],
    ]


def test_uniform_recompute_moves_all_layers_to_their_twins() -> None:
    assert held("Ett|ttmL", 2, model(3, 1, (1,)), FULL) == [
        [{"layer0+recompute": 2, "embedding": 1}],
        [{"layer0+recompute": 1, "layer1+recompute": 1, "mtp+recompute": 1, "head": 1}],
    ]


def test_block_recompute_takes_the_first_layers_of_each_chunk_and_no_mtp() -> None:
    """Megatron Core warns that block recompute skips MTP, and counts `num_layers` in every chunk."""
    assert held("Ett|ttmL", 2, model(3, 1, (1,)), BLOCK_1) == [
        [{"layer0": 1, "layer0+recompute": 1, "embedding": 1}],
        [{"layer0+recompute": 1, "layer1": 1, "mtp": 1, "head": 1}],
    ]


def test_selective_recompute_leaves_the_kinds_alone() -> None:
    selective = Recompute(granularity="selective", modules=("core_attn",))
    assert held("Ett|ttL", 2, model(3, 1), selective) == held("Ett|ttL", 2, model(3, 1))


@pytest.mark.parametrize(("layout", "says"), [
    ("Ett|tL", "places 3 decoder layers and the model has 4; add 1"),
    ("Ett|ttmL", "places 1 MTP modules and the model has 0; remove 1"),
])  # fmt: skip
def test_a_layout_for_another_depth_is_refused(layout: str, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        held(layout, 2, model(3, 1))


def test_table_is_deduplicated_and_padded() -> None:
    dense = load_model("llama3-8b")
    even = PipelineLayout.even(32, 4)
    selective = Recompute(granularity="selective", modules=("mlp",))
    splits, codes = split_table(dense, [
        (4, 1, None, Recompute()), (4, 1, even, selective), (2, 2, None, Recompute()), (4, 1, None, FULL),
    ])  # fmt: skip
    assert codes.tolist() == [0, 0, 1, 2]
    assert splits.layouts == ("Et*8|t*8|t*8|t*8L",) * 3
    assert splits.counts.shape == (3, 4, 2, len(splits.kinds))
    assert splits.stage_mask.sum(axis=1).tolist() == [4, 2, 4]
    assert splits.counts[1, :2, :, 0].tolist() == [[8, 8], [8, 8]]
    assert splits.counts[1, 2:].sum() == 0


def test_every_split_of_a_table_holds_the_whole_model() -> None:
    deepseek = load_model("deepseek-v3")
    wanted = [
        (pp, vpp, None, recompute)
        for pp in (1, 2, 4, 8, 16) for vpp in (1, 2, 3) if pp > 1 or vpp == 1
        for recompute in (Recompute(), FULL, BLOCK_1)
    ]  # fmt: skip
    splits, codes = split_table(deepseek, wanted)
    assert len(codes) == len(wanted)
    total = splits.counts.sum(axis=(1, 2))
    names = list(splits.kinds)
    both = total[:, names.index("layer1")] + total[:, names.index("layer1+recompute")]
    assert both.tolist() == [58] * len(total)
    assert (total[:, names.index("embedding")] == 1).all()
    assert (total[:, names.index("head")] == 1).all()


def test_hundreds_of_splits_take_under_fifty_milliseconds() -> None:
    deepseek = load_model("deepseek-v3")
    wanted = [
        (pp, vpp, None, recompute)
        for pp in range(2, 32) for vpp in (1, 2, 3, 4) if default_pipeline(deepseek, pp, vpp) is not None
        for recompute in (Recompute(), FULL, BLOCK_1)
    ]  # fmt: skip
    assert len(wanted) > 200
    spent = []
    for _ in range(3):
        begun = time.process_time()
        split_table(deepseek, wanted)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.05


def test_default_is_even_where_layers_divide_and_automatic_where_not() -> None:
    deepseek, llama = load_model("deepseek-v3"), load_model("llama3-70b")
    assert default_pipeline(llama, 4, 5) == PipelineLayout.even(80, 4, 5)
    odd = default_pipeline(deepseek, 8, 4)
    assert odd is not None
    odd.validate(61, 1)
    assert max(odd.layers_per_rank[:-1]) - min(odd.layers_per_rank[:-1]) <= 1
    assert default_pipeline(llama, 82, 1) is not None  # embedding and loss may have stages of their own
    assert default_pipeline(llama, 83, 1) is None
    assert default_pipeline(llama, 1, 2) is None


def test_a_layout_for_other_degrees_is_refused() -> None:
    llama = load_model("llama3-8b")
    with pytest.raises(LayoutError, match="for pp 4 x vpp 1, not for pp 2 x vpp 1"):
        split_table(llama, [(2, 1, PipelineLayout.even(32, 4), Recompute())])


def test_counts_are_small_integers() -> None:
    assert PipelineLayout.even(4, 2).counts(model(2, 2)).dtype == np.int16
