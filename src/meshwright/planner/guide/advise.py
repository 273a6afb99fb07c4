"""The guide's whole answer to one question."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.errors import QuestionError, did_you_mean
from meshwright.layout.layout import Layout
from meshwright.planner.guide import grids, memory, tables, words
from meshwright.planner.guide.spec import Advice, GuideQuestion, Section, Starts
from meshwright.planner.guide.start import start, working_layout

TOPICS = (
    "start",
    "checklist",
    "size",
    "experts",
    "topology",
    "sequence",
    "combinations",
    "minimum",
    "data-parallel",
    "nodes",
    "memory",
    "code",
    "cautions",
    "verification",
    "corrections",
)


def advise(question: GuideQuestion, topics: Sequence[str] | None = None) -> Advice:
    """What the guide says to this question, section by section, and what holds.

    topics  ids of the sections wanted; None gives all that concern the question: the dense table for a
            dense model, the MoE table and checklist for experts, both where the model is open, the
            verdict where degrees were named, or where the guide's start can be held against the GPUs
    """
    for topic in topics or ():
        if topic not in TOPICS:
            hint = did_you_mean(topic[:40], TOPICS) or "."
            raise QuestionError(f"unknown topic {topic[:40]!r}{hint} Known: {', '.join(TOPICS)}")
    layout, source = working_layout(question)
    verdict: Section | None = None
    starts: Starts = "not-asked"
    near: tuple[Layout, ...] = ()
    counts: tuple[int, ...] = ()
    if question.degrees or (question.world is not None and question.total_params is not None):
        verdict, starts, near, counts = start(question, layout, source)
    sections = [
        verdict,
        grids.checklist(layout, question) if question.is_moe is not False else None,
        tables.size(question) if question.is_moe is not True else None,
        tables.experts(question) if question.is_moe is not False else None,
        tables.topology(question, layout),
        tables.sequence(question, layout),
        tables.combinations(),
        grids.minimum(layout, source),
        grids.data_parallel(layout, question.world),
        grids.nodes(layout, question),
        memory.memory(question, layout),
        words.code(layout),
        words.cautions(),
        words.verification(),
        words.corrections(),
    ]
    return Advice(
        subject=question.subject,
        asked=bool(question.degrees),
        starts=starts,
        layout=layout,
        layout_source=source,
        world=question.world,
        nearest_layouts=near,
        nearest_gpus=counts,
        sections=tuple(part for part in sections if part and (topics is None or part.id in topics)),
    )
