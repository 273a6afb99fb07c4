"""Pipeline layouts: Megatron's notation, its ways to divide layers, and what it refuses."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import LayoutError, MeshwrightError, QuestionError
from meshwright.layout.notation import parse_text, write_text
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.model.load import load_model


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Ett|(tt|)*3m|L", "Ett|tt|tt|tt|m|L"),
        ("Et*3|(tt|)*29,m|L", "Ettt|" + "tt|" * 29 + "m|L"),
        ("xy(ab|cd|ef)*2,pq", None),
        ("(E)*1(t)*3|(|t)*2L", "Ettt||t|tL"),
        ("t*2*3", None),
        ("Et*0|L", "E|L"),
        ("((t|)*2)*2", None),
        ("Et|t L", None),
        ("et|tL", None),
        ("", ""),
    ],
)
def test_text_unrolls_as_in_megatron(text: str, plain: str | None) -> None:
    if plain is None:
        with pytest.raises(LayoutError):
            parse_text(text)
    else:
        assert parse_text(text) == tuple(tuple(chunk) for chunk in plain.split("|"))


def test_the_documented_layout_reads_as_documented() -> None:
    """The table in the docstring of Megatron Core's PipelineParallelLayerLayout.pretty_repr."""
    layout = PipelineLayout.parse(
        [["embedding"] + ["decoder"] * 2] + [["decoder"] * 2] * 29 + [["mtp"], ["loss"]], 16
    )
    assert layout.draw(together=True) == [
        "rank    chunk 0       chunk 1",
        "0       E, 2 layers   2 layers",
        "1-13    2 layers      2 layers",
        "14      2 layers      MTP",
        "15      2 layers      L",
    ]
    layout.validate(60, 1)
    assert layout.mtp_apart


chunk_lists = st.lists(st.text("t", max_size=9), min_size=2, max_size=40)


@given(chunk_lists)
def test_what_is_written_reads_as_the_same(bodies: list[str]) -> None:
    chunks = tuple(tuple(body) for body in ("E" + bodies[0], *bodies[1:-1], bodies[-1] + "L"))
    text = write_text(chunks)
    assert parse_text(text) == chunks
    assert len(text) <= len("|".join("".join(chunk) for chunk in chunks))


def test_writing_is_compact() -> None:
    layout = PipelineLayout.parse("Etttt|" + "tttt|" * 14 + "tmL", 16)
    assert layout.string() == "Et*4|(t*4|)*14tmL"
    assert PipelineLayout.parse(layout.as_list(), 16) == layout


@pytest.mark.parametrize(
    "text", ["t*999999999", "(t*99999|)*99999L", "(" * 9_999, "t" * 10**6, "(t*9)*9" * 1200]
)
def test_hostile_text_is_refused_quickly(text: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(MeshwrightError):
        PipelineLayout.parse(text, 4)
    assert time.perf_counter() - begun < 1


@pytest.mark.parametrize(
    ("make", "per_rank"),
    [
        (lambda: PipelineLayout.even(80, 4, 5), (20, 20, 20, 20)),
        (lambda: PipelineLayout.first_last(94, 4, last=22), (24, 24, 24, 22)),
        (lambda: PipelineLayout.first_last(61, 16, last=1), (4,) * 15 + (1,)),
        (lambda: PipelineLayout.first_last(8, 2, first=3, last=5), (3, 5)),
        (lambda: PipelineLayout.account(126, 8, 8, embedding=True, loss=True), (15, *[16] * 6, 15)),
        (lambda: PipelineLayout.account(6, 2, 4, embedding=True, loss=True), (3, 3)),
        (lambda: PipelineLayout.parse("Et*6|(t*8|)*8t*4|t*4mL", 11), (6, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4)),
        (lambda: PipelineLayout.hybrid("M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", 4), (13,) * 4),
        (lambda: PipelineLayout.hybrid("M-M*-|M-M-|M*|M-/M*", 2), (7, 6)),
    ],
)  # fmt: skip
def test_ways_to_divide_layers(make: object, per_rank: tuple[int, ...]) -> None:
    layout = make()  # type: ignore[operator]
    assert layout.layers_per_rank == per_rank
    layout.validate(sum(per_rank), layout.mtp)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PipelineLayout.even(30, 4), r"30 % 4.*nearest pp that divide: 3 or 5; .*first/last.*layout"),
        (lambda: PipelineLayout.even(33, 2), "nearest pp that divide: 1 or 3"),
        (lambda: PipelineLayout.even(40, 2, 12), r"20 layers per stage.*20 % 12.*VPP that divide: 10 or 20"),
        (lambda: PipelineLayout.even(4, 1, 2), "pp is 1"),
        (lambda: PipelineLayout.first_last(61, 16, first=4, last=4), r"leave 53 for the 14 ranks.*53 % 14"),
        (lambda: PipelineLayout.first_last(8, 4, first=8), "leave 0 layers for 3 ranks"),
        (lambda: PipelineLayout.first_last(8, 4, last=0), "last stage is given 0"),
        (lambda: PipelineLayout.first_last(12, 4, 2, first=3, last=3), "3 layers per stage on rank 0"),
        (lambda: PipelineLayout.account(126, 8, embedding=True), "126 layers [+] the embedding = 127 blocks"),
        (lambda: PipelineLayout.parse("Et|" + "t|" * 13 + "L", 4), "15 chunks.*multiple of pp 4.*12 or 16"),
        (lambda: PipelineLayout.parse("Et|xL", 2), "'x' in chunk 1.*is not a layer"),
        (lambda: PipelineLayout.parse([["embedding"], "decoder"], 2), "chunk 1 .* is a str"),
        (lambda: PipelineLayout.parse([["embeding"], ["loss"]], 2), "did you mean embedding"),
        (lambda: PipelineLayout.hybrid("M-M|M-|M", 2), "3 chunks, which is not a multiple of pp 2"),
        (lambda: PipelineLayout.hybrid("M*X", 1), "'X' in the hybrid pattern is not a layer"),
        (lambda: PipelineLayout.hybrid("M*M*/MM/M*", 1), "MTP modules of a hybrid pattern must be the same"),
    ],
)  # fmt: skip
def test_refusals_name_the_numbers_and_the_nearest_that_work(make: object, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "pp", "layers", "mtp", "says"),
    [
        ("t|tE|t|L", 4, 2, 0, "embedding"),
        ("Et|tLt", 2, 3, 0, "loss"),
        ("Et|Et|L", 3, 2, 0, "2 times"),
        ("Et|ttL", 2, 4, 0, "has 3 decoder layers .* has 4; add 1"),
        ("Ett|tmL", 2, 3, 0, "has 1 MTP modules .* has 0; remove 1"),
        ("Etm|tL", 2, 2, 1, "after an MTP module"),
        ("Et|tm|m|L", 4, 2, 2, "sit on 2 chunks"),
        ("Et|tm|L|", 2, 2, 1, "chunk 0 of rank 1; it belongs on the last chunk"),
    ],
)
def test_layouts_that_megatron_refuses(text: str, pp: int, layers: int, mtp: int, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        PipelineLayout.parse(text, pp).validate(layers, mtp)


def test_61_layers_and_mtp_on_32_chunks() -> None:
    layout = default_pipeline(load_model("deepseek-v3"), 8, 4)
    assert layout is not None
    assert (len(layout.chunks), layout.num_layers, layout.mtp) == (32, 61, 1)
    assert set(layout.layers_per_chunk[:-1]) <= {1, 2, 3}
    assert layout.chunks[-1] == ("m", "L")
    PipelineLayout.parse(layout.string(), 8).validate(61, 1)


def test_where_chunks_sit() -> None:
    layout = PipelineLayout.parse("Ett|t|tt|tL", 2)
    assert layout.chunk(1, 0) == ("t",)
    assert layout.layer_ranges == ((0, 2), (2, 3), (3, 5), (5, 6))
    assert layout.draw() == [
        "rank    chunk 0         chunk 1",
        "0       E, layers 0-1   layers 3-4",
        "1       layer 2         layer 5, L",
    ]


@pytest.mark.parametrize(("layers", "pp", "vpp"), [(10**12, 7, 1), (-4, 2, 1), (8, 0, 1), (8, 10**9, 10**9)])
def test_numbers_out_of_reason_are_wrong_questions(layers: int, pp: int, vpp: int) -> None:
    with pytest.raises(QuestionError):
        PipelineLayout.even(layers, pp, vpp)
