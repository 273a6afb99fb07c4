"""Defaults of frameworks that differ from those of the engine they start."""

from __future__ import annotations

from dataclasses import replace

from meshwright.frameworks.reading import Reading, Source, Value
from meshwright.frameworks.spelling import table


def with_defaults(reading: Reading) -> Reading:
    """The reading with its framework's own defaults filled in, each with where it is written."""
    entry = table()["defaults"].get(reading.framework)
    if entry is None:
        return reading
    source = Source(kind="default", name=entry["source"])
    said = {*reading.options, *(unknown.option for unknown in reading.unknowns)}
    more = {name: Value(value, source) for name, value in entry["options"].items() if name not in said}
    options = {**reading.options, **more}
    recompute = options.get("recompute_granularity")
    if recompute is not None and recompute.value == "none":
        options["recompute_granularity"] = Value(None, recompute.source)
    return replace(reading, options=options)
