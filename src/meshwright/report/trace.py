"""A step as a trace that Perfetto and chrome://tracing open.

Source of the format: "Trace Event Format" (Google), complete events (ph X), counters (C), metadata (M).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.cluster.spec import GIB
from meshwright.report.passes import MemoryCurve, Timeline

MICRO = 1e6
"""Times of a trace are microseconds."""


def chrome_trace(timeline: Timeline, curves: Sequence[MemoryCurve] = ()) -> dict[str, Any]:
    """One track a pipeline rank, one event a pass; one counter a stage whose memory is known [GiB]."""
    events = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "one training step (predicted)"}},
        *(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank,
             "args": {"name": f"pipeline rank {rank}"}}
            for rank in range(timeline.pp)
        ),
        *_passes(timeline),
        *_tails(timeline),
        *(
            {"name": f"memory of stage {curve.stage}", "ph": "C", "pid": 0, "ts": at * MICRO,
             "args": {"GiB": round(size / GIB, 3)}}
            for curve in curves
            for at, size in curve.points
        ),
    ]  # fmt: skip
    return {
        "displayTimeUnit": "ms",
        "otherData": {"num_microbatches": timeline.num_microbatches, "drawn": timeline.drawn},
        "traceEvents": events,
    }


def _passes(timeline: Timeline) -> Iterable[dict[str, Any]]:
    for one in timeline.passes:
        kind = "backward" if one.backward else "forward"
        yield {
            "name": f"{kind} {one.microbatch}", "cat": kind, "ph": "X", "pid": 0, "tid": one.rank,
            "ts": one.start * MICRO, "dur": (one.end - one.start) * MICRO,
            "args": {"microbatch": one.microbatch, "chunk": one.chunk, "exposed_communication": one.busy},
        }  # fmt: skip


def _tails(timeline: Timeline) -> Iterable[dict[str, Any]]:
    at = timeline.end
    for tail in timeline.tail:
        for rank in range(timeline.pp):
            yield {
                "name": tail.words, "cat": "communication" if tail.communication else "optimizer", "ph": "X",
                "pid": 0, "tid": rank, "ts": at * MICRO, "dur": tail.seconds * MICRO, "args": {},
            }  # fmt: skip
        at += tail.seconds
