"""Values that no framework takes: numbers that are none, degrees of 0. Each becomes a note, not a crash."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from meshwright.frameworks.reading import Launcher, Note, Plain, Reading, Unknown, Value
from meshwright.frameworks.spelling import arguments, canonical, short_names

LARGEST = 10_000_000
"""Beyond this, a degree, width or batch is a typing error."""


@cache
def whole_options() -> frozenset[str]:
    """Options whose value is a whole number."""
    rows = arguments().values()
    return frozenset(canonical(row[0], None)[0] for row in rows if row[1:] == ["value", "int"])


@cache
def switches() -> frozenset[str]:
    """Options that are on or off."""
    names = {canonical(row[0], None)[0] for row in arguments().values() if row[1] in ("on", "off")}
    return frozenset(names) - {
        canonical(row[0], None)[0] for row in arguments().values() if row[1] not in ("on", "off")
    }


@cache
def positive_options() -> frozenset[str]:
    """Options that are counts of something: at least 1."""
    sizes = {
        name for name in whole_options() if name.endswith(("_size", "_heads", "_groups", "_rank", "_dim"))
    }
    counts = {"num_layers", "seq_length", "num_moe_experts", "moe_router_topk"}
    return (frozenset(short_names().values()) | sizes | counts) - {"sequence_parallel"}


def sane(reading: Reading) -> Reading:
    """The reading without impossible values, each with a note on what is wrong."""
    options: dict[str, Value] = {}
    notes: list[Note] = []
    unknowns: list[Unknown] = []
    for name, value in reading.options.items():
        plain = whole(value.value) if name in whole_options() else value.value
        plain = bool(plain) if name in switches() and plain in (0, 1) else plain
        wrong = trouble(name, plain)
        if wrong is None:
            options[name] = (
                value
                if plain is value.value or (plain == value.value and type(plain) is type(value.value))
                else Value(plain, value.source)
            )
            continue
        notes.append(
            Note(
                id="impossible-value",
                severity="error",
                message=wrong,
                fix=f"another value for {name}",
                line=value.line,
            )
        )
        unknowns.append(
            Unknown(option=name, needs=(), how=f"give {name} a value that is possible", line=value.line)
        )
    if not notes and all(options[name] is reading.options[name] for name in options):
        return reading
    return replace(
        reading, options=options, notes=(*reading.notes, *notes), unknowns=(*reading.unknowns, *unknowns)
    )


def without(reading: Reading, name: str, why: str) -> Reading:
    """The reading without an option whose value cannot be, with a note that says so."""
    line = reading.options[name].line
    note = Note(
        id="impossible-value", severity="error", message=why, fix=f"another value for {name}", line=line
    )
    kept = {key: value for key, value in reading.options.items() if key != name}
    return replace(reading, options=kept, notes=(*reading.notes, note))


def whole(value: Plain) -> Plain:
    """`4.0` as 4; everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def trouble(name: str, value: Plain) -> str | None:
    """What is wrong with a value, None where nothing is."""
    shown = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
    number = isinstance(value, int) and not isinstance(value, bool)
    if value is None:
        return None
    if name in switches() and not isinstance(value, bool):
        return f"{name} is {shown}; it is true or false"
    if name in whole_options() and not number:
        return f"{name} is {shown}; it must be a whole number"
    if name not in positive_options() or not isinstance(value, int) or not number:
        return None
    if not 1 <= value <= LARGEST:
        return f"{name} is {shown}; it lies between 1 and {LARGEST:,}"
    return None


def sane_launcher(reading: Reading) -> Reading:
    """The reading without numbers of nodes and GPUs that cannot be."""
    launcher, notes = reading.launcher, []
    for field, what in (("nodes", "nodes"), ("gpus_per_node", "GPUs a node"), ("world", "GPUs")):
        value: Value | None = getattr(launcher, field)
        number = value.value if value is not None else 1
        if not isinstance(number, int) or not 1 <= number <= LARGEST:
            notes.append(
                Note(
                    id="impossible-value",
                    severity="error",
                    message=f"{str(number)[:40]} {what}; there must be between 1 and {LARGEST:,}",
                    line=value.line if value else None,
                )
            )
            launcher = _without(launcher, field)
    return replace(reading, launcher=launcher, notes=(*reading.notes, *notes)) if notes else reading


def _without(launcher: Launcher, field: str) -> Launcher:
    """The launcher with one number gone, and the world that came from it."""
    return replace(
        launcher,
        nodes=None if field == "nodes" else launcher.nodes,
        gpus_per_node=None if field == "gpus_per_node" else launcher.gpus_per_node,
        world=None,
    )
