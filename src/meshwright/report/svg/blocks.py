"""The pipeline layout as blocks: a row a pipeline rank, a column a chunk, a cell a layer."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.layout.pipeline import PipelineLayout
from meshwright.report.svg.draw import WIDTH, Picture, element, fit_width, legend, picture, rect, text

COLOURS = {
    "E": ("c1", "embedding"),
    "t": ("c0", "decoder layer"),
    "m": ("c2", "MTP module"),
    "L": ("c3", "head and loss"),
}
LEFT, TOP, ROW = 46.0, 26.0, 20.0
MOST_ROWS = 20
"""Ranks drawn before equal neighbours are folded into one row."""


def blocks_picture(pipeline: PipelineLayout, width: float = WIDTH) -> Picture:
    """Equal neighbouring ranks share a row where there are many."""
    width = fit_width(width)
    rows = list(_rows(pipeline, fold=pipeline.pp > MOST_ROWS))
    column = (width - LEFT - 8) / pipeline.vpp
    deepest = max(len(chunk) for chunk in pipeline.chunks)
    cell = min((column - 8) / max(deepest, 1), 18.0)
    parts = [text(4, 14, "rank", class_="soft small")]
    if column >= 52:
        parts += [text(LEFT + k * column, 14, f"chunk {k}", class_="soft small") for k in range(pipeline.vpp)]
    starts = [start for start, _ in pipeline.layer_ranges]
    for index, (first, last) in enumerate(rows):
        y = TOP + index * ROW
        label = f"{first}" if first == last else f"{first}-{last}"
        parts.append(text(4, y + 13, label, class_="ink small"))
        for number in range(pipeline.vpp):
            x = LEFT + number * column
            parts.append(_chunk(pipeline, first, number, starts[number * pipeline.pp + first], x, y, cell))
    held = {item for chunk in pipeline.chunks for item in chunk}
    items = [value for letter, value in COLOURS.items() if letter in held]
    bottom = TOP + ROW * len(rows) + 8
    keys, tall = legend(items, 4, bottom, width - 8)
    parts.append(keys)
    per_rank = pipeline.layers_per_rank
    spread = f"{per_rank[0]}" if len(set(per_rank)) == 1 else f"{min(per_rank)} to {max(per_rank)}"
    words = (
        f"{pipeline.num_layers} layers over {pipeline.pp} pipeline ranks of {pipeline.vpp} "
        f"chunk{'s' * (pipeline.vpp > 1)}: {spread} layers a rank; {pipeline.string()}"
    )
    return picture("pipeline", "Pipeline layout", words, width, bottom + tall, parts)


def _rows(pipeline: PipelineLayout, *, fold: bool) -> Iterator[tuple[int, int]]:
    """Runs of ranks (first, last) that are drawn as one row."""
    held = [tuple(pipeline.chunk(rank, k) for k in range(pipeline.vpp)) for rank in range(pipeline.pp)]
    first = 0
    for rank in range(1, pipeline.pp + 1):
        if rank == pipeline.pp or not fold or held[rank] != held[first]:
            yield first, rank - 1
            first = rank


def _chunk(
    pipeline: PipelineLayout, rank: int, number: int, start: int, x: float, y: float, cell: float
) -> str:
    chunk = pipeline.chunk(rank, number)
    if not chunk:
        return text(x, y + 13, "empty", class_="soft small")
    parts, layer, gap = [], start, 1.0 if cell > 4 else 0.0
    for index, item in enumerate(chunk):
        class_, words = COLOURS[item]
        if item == "t":
            words, layer = f"layer {layer}", layer + 1
        hint = f"rank {rank}, chunk {number}: {words}"
        parts.append(rect(x + index * cell, y + 2, cell - gap, ROW - 6, class_, hint, 1 if gap else 0))
    return element("g", *parts)
