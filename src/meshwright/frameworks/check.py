"""Checking what was read: rules, launchers, memory; one verdict a run and one for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from meshwright.errors import QuestionError
from meshwright.frameworks import extra_rules
from meshwright.frameworks.memory_check import memory_findings
from meshwright.frameworks.reading import Reading, Source, Value
from meshwright.frameworks.sane import sane, sane_launcher, without
from meshwright.frameworks.spelling import short_names, table
from meshwright.frameworks.view import Beside, view_of, with_given
from meshwright.layout.rules import ALL_RULES, Finding, Undecided, View, examine, rule

if TYPE_CHECKING:
    from meshwright.planner.answer import Memory

Verdict = Literal["ok", "warn", "invalid", "unknown"]
WORST: tuple[Verdict, ...] = ("invalid", "warn", "unknown", "ok")

SEVERITY: Mapping[str, Literal["warn", "advice"]] = {
    # Starts, but every layer's all-reduce leaves NVLink: people want to hear it before the cluster does.
    "tp-inside-nvlink": "warn",
    "hybridep-ranks-per-domain": "warn",
    # Megatron only prints these for its own defaults; the run is as it was meant.
    "core-attn-recompute-fused": "advice",
    "etp-unset": "advice",
}
"""How heavily `check` weighs findings that rules hold for milder, or heavier, than a launch script needs."""
ESSENTIAL = frozenset({"nodes", "gpus per node", "gpus", *short_names().values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One run with its verdict."""

    reading: Reading
    view: View
    verdict: Verdict
    findings: tuple[Finding, ...]
    resolved: Mapping[str, Value]
    memory: Memory | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """How to supply what is open, one sentence an input."""
        options: dict[str, list[str]] = {}
        for unknown in self.reading.unknowns:
            known = options.setdefault(unknown.how, [])
            if unknown.option not in known:
                known.append(unknown.option)
        said = [f"{how}, for {', '.join(names)}" for how, names in options.items()]
        asks = {unknown.option for unknown in self.reading.unknowns} & {"gpus", "nodes", "gpus per node"}
        if self.reading.launcher.world is None and not asks:
            machines = self.reading.launcher.nodes is not None
            how = "--gpus-per-node 8" if machines else "--gpus 64xH100 (or --nodes 8, or --env NNODES=VALUE)"
            said.append(f"give {how}, for the number of GPUs")
        return tuple(said)

    def layout(self) -> dict[str, Any]:
        """Degrees by their short names, as in an estimate; None where open."""
        names = (
            "tp",
            "pp",
            "vpp",
            "cp",
            "ep",
            "etp",
            "dp",
            "edp",
            "mbs",
            "gbs",
            "num_microbatches",
            "sp",
            "world",
            "min_gpus",
        )
        return {name: _known(self.view, name) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """The JSON of one run."""
        reading = self.reading
        return {
            "verdict": self.verdict,
            "sources": list(reading.sources),
            "run": reading.label,
            "framework": reading.framework,
            "model": reading.model.value if reading.model else None,
            "gpu": reading.gpu.value if reading.gpu else None,
            "gpus": reading.launcher.world.value if reading.launcher.world else None,
            "resolved": {name: _value_dict(value) for name, value in self.resolved.items()},
            "layout": self.layout(),
            "findings": [finding.as_dict() for finding in self.findings],
            "unknown": list(self.needs) if self.verdict == "unknown" or reading.unknowns else [],
            "environment": {name: _value_dict(value) for name, value in reading.environment.items()},
            "memory": _memory_dict(self.memory),
        }


def _value_dict(value: Value) -> dict[str, Any]:
    plain = list(value.value) if isinstance(value.value, tuple) else value.value
    return {"value": plain, "from": str(value.source), "line": value.source.line}


def _memory_dict(memory: Memory | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "verdict": memory.verdict,
        "usable_bytes": memory.usable_bytes,
        "peak_bytes": memory.peak_bytes,
        "low_bytes": memory.low_bytes,
        "high_bytes": memory.high_bytes,
    }


def _known(view: View, name: str) -> Any:
    """A value of the view as JSON takes it."""
    import math

    try:
        if name == "min_gpus" and not _has_expert_grid(view):
            return int(view.dense_grid)
        if name == "dp" and view.world % view.dense_grid:
            return view.world / view.dense_grid
        if name == "edp" and (not view.is_moe or view.world % view.expert_grid):
            return view.world / view.expert_grid if view.is_moe else None
        found = view.value(name)
    except (Undecided, TypeError, ZeroDivisionError, KeyError):
        return None
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found if isinstance(found, (bool, str, float)) else int(found)


def _has_expert_grid(view: View) -> bool:
    """Whether the expert grid counts: the model has experts, or EP says so where the model is not known."""
    try:
        return view.is_moe
    except Undecided:
        return bool(view.ep > 1)


def check_reading(reading: Reading, beside: Beside | None = None) -> CheckResult:
    """Every rule, the launcher's traps and memory, against one run."""
    with np.errstate(all="ignore"):  # a degree of 0 is a finding, not a warning on the screen
        return _checked(reading, beside or Beside())


def _checked(reading: Reading, beside: Beside) -> CheckResult:
    reading = sane_launcher(sane(with_given(reading, beside)))
    reading, view = _viewed(reading, beside)
    titan = reading.framework == "torchtitan"
    found = [] if titan else [_weighed(finding, reading) for finding in _broken_rules(view)]
    found = _without_echoes(found, view)
    found += extra_rules.findings(reading, view)
    found += [
        Finding(
            rule=n.id, severity=n.severity, message=n.message, fix=n.fix, enforced_by="advice", line=n.line
        )
        for n in reading.notes
    ]
    memory: Memory | None = None
    if not titan and not any(finding.severity == "error" for finding in found):
        more, memory = memory_findings(reading, view)
        found += more
    order = {"error": 0, "warn": 1, "advice": 2}
    found.sort(key=lambda finding: order[finding.severity])
    return CheckResult(
        reading=reading,
        view=view,
        verdict=_verdict(found, reading),
        findings=tuple(found),
        resolved=resolved_of(reading, view),
        memory=memory,
    )


def _viewed(reading: Reading, beside: Beside) -> tuple[Reading, View]:
    """The view, without options whose values the rules refuse to read; each is a note of the reading."""
    for _ in range(len(reading.options)):
        try:
            return reading, view_of(reading, beside)
        except QuestionError as problem:
            refused = next((name for name in reading.options if str(problem).startswith(f"{name} ")), None)
            if refused is None:
                raise
            reading = without(reading, refused, str(problem))
    return reading, view_of(reading, beside)


def _broken_rules(view: View) -> list[Finding]:
    """What the rules find; a rule that values of the wrong kind keep from being decided is passed over."""
    found: list[Finding] = []
    for one in ALL_RULES:
        try:
            found += examine(view, (one,)).findings
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            continue
    return found


def _weighed(finding: Finding, reading: Reading) -> Finding:
    """The finding with the severity it has for a launch script."""
    severity = SEVERITY.get(finding.rule, finding.severity)
    if finding.severity == "warn" and severity == "warn" and _from_recipe(finding, reading):
        severity = "advice"
    return replace(finding, severity=severity)


def _from_recipe(finding: Finding, reading: Reading) -> bool:
    """Whether nothing that somebody wrote brings this finding up, only the recipe: its authors meant it."""
    if reading.recipe is None:
        return False
    names = {short_names().get(name, name) for name in rule(finding.rule).breaks}
    written = {"stated", "environment", "argument", "given"}
    return not any(reading.options[name].source.kind in written for name in names if name in reading.options)


def _without_echoes(found: list[Finding], view: View) -> list[Finding]:
    """Without the expert grid of a dense model: it repeats what the dense grid says."""
    rules = {finding.rule for finding in found}
    try:
        moe = view.is_moe
    except Undecided:
        moe = True
    dropped = {"world-divides-expert-grid"} if not moe and "world-divides-dense-grid" in rules else set()
    if "gbs-divides" in rules:
        dropped.add("one-microbatch")
    if "layers-per-chunk" in rules:
        dropped.add("vpp-divides-layers")
    return [finding for finding in found if finding.rule not in dropped]


def _verdict(found: Sequence[Finding], reading: Reading) -> Verdict:
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return "invalid"
    if "warn" in severities:
        return "warn"
    open_ = any(unknown.option in ESSENTIAL for unknown in reading.unknowns)
    if open_ or (reading.launcher.world is None and reading.complete and not _has_no_world(reading)):
        return "unknown"
    return "ok"


def _has_no_world(reading: Reading) -> bool:
    """A torchtitan file whose shard degree is left to the launcher fits any multiple."""
    return reading.framework == "torchtitan" and not reading.launcher.programs


def resolved_of(reading: Reading, view: View) -> dict[str, Value]:
    """Every option with where it came from: stated, filled in by the framework, its default.

    Keys are Megatron's names; the degrees and the shape of the model stand under their short names too.
    """
    entry = table()["frameworks"].get(reading.framework, {})
    name = str(entry.get("name") or table()["titles"].get(reading.framework, reading.framework))
    resolved = dict(reading.options)
    for fill in view.fills:
        source = Source(kind="default", name=fill.source)
        value = tuple(fill.value) if isinstance(fill.value, list) else fill.value
        if isinstance(value, (int, float, str, bool, tuple)):
            resolved.setdefault(fill.option, Value(value, source))
    if view.model is not None:
        for key, value in view.said.items():
            if key in short_names().values() and key not in resolved and isinstance(value, (int, bool)):
                resolved[key] = Value(value, Source(kind="model", name=view.model.name))
        resolved.update(_heads(view, resolved))
    for key in short_names().values():
        value = view.options.get(key)
        if key not in resolved and isinstance(value, (int, bool)) and view.said.get(key) is None:
            resolved[key] = Value(value, Source(kind="default", name=name))
    if reading.launcher.world is not None:
        resolved["world_size"] = reading.launcher.world
    short = {short: resolved[long] for short, long in short_names().items() if long in resolved}
    return {**resolved, **short}


def _heads(view: View, resolved: Mapping[str, Value]) -> dict[str, Value]:
    from meshwright.layout.rules.sources import head_counts

    if view.model is None or "num_attention_heads" in resolved:
        return {}
    counts = head_counts(view.model)
    if not counts:
        return {}
    source = Source(kind="model", name=view.model.name)
    return {
        "num_attention_heads": Value(counts[0][0], source),
        "num_query_groups": Value(counts[0][1], source),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything one `check` found, over all files and runs."""

    results: tuple[CheckResult, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    """Files that say nothing, with the reason."""

    @property
    def verdict(self) -> Verdict:
        """The worst of all; files that could not be read count as unknown. Of nothing at all: ok."""
        verdicts: set[Verdict] = {result.verdict for result in self.results}
        if self.unread:
            verdicts.add("unknown")
        return next((v for v in WORST if v in verdicts), "ok")

    def as_dict(self) -> dict[str, Any]:
        """The JSON of the contract: the first run's values on top, every run below `runs`."""
        runs = [result.as_dict() for result in self.results]
        first = runs[0] if runs else {}
        findings = [
            {**finding.as_dict(), "file": result.reading.sources[0] if result.reading.sources else None,
             "run": result.reading.label}
            for result in self.results for finding in result.findings
        ]  # fmt: skip
        return {
            "verdict": self.verdict,
            "sources": sorted(
                {source for result in self.results for source in result.reading.sources} | set(self.unread)
            ),
            "resolved": first.get("resolved", {}),
            "layout": first.get("layout", {}),
            "findings": findings,
            "unknown": sorted({need for run in runs for need in run["unknown"]} | set(self.unread.values())),
            "runs": runs,
        }


def check_readings(
    readings: Iterable[Reading], beside: Beside | None = None, unread: Mapping[str, str] | None = None
) -> Report:
    """Every run checked; QuestionError when there is none and nothing explains why."""
    results = tuple(check_reading(reading, beside) for reading in readings)
    if not results and not unread:
        raise QuestionError("there is nothing to check")
    return Report(results=results, unread=unread or {})
