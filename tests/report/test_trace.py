"""The trace: what Perfetto needs, and the same times as the timeline."""

from __future__ import annotations

import json

import pytest

import meshwright as mw
from meshwright.api.picturing import timeline, trace


def test_every_pass_is_an_event_of_its_rank() -> None:
    answer = mw.estimate("llama-3-70b", "64xH100", mw.Options(tp=4, pp=4, vpp=5))
    laid, found = timeline(answer), trace(answer)
    json.dumps(found, allow_nan=False)
    events = found["traceEvents"]
    passes = [event for event in events if event["ph"] == "X" and event["cat"] in ("forward", "backward")]
    assert len(passes) == len(laid.passes) == 2 * 4 * 5 * laid.drawn
    assert {event["tid"] for event in passes} == {0, 1, 2, 3}
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") == pytest.approx(
        laid.whole * 1e6
    )


def test_memory_is_a_counter() -> None:
    answer = mw.estimate("llama-3-8b", "8xH100", mw.Options(tp=2, pp=2))
    counters = [event for event in trace(answer)["traceEvents"] if event["ph"] == "C"]
    assert answer.memory is not None
    highest = max(event["args"]["GiB"] for event in counters if event["name"] == "memory of stage 0")
    assert highest == pytest.approx(answer.memory.per_stage[0].total_bytes / 2**30, rel=0.02)
