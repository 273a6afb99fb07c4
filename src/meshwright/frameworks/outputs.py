"""A report as text, as GitHub annotations, as SARIF 2.1.0. Nothing is computed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from meshwright.frameworks.check import CheckResult, Report
from meshwright.frameworks.spelling import short_names
from meshwright.lang import Say, label, plain, width_of
from meshwright.layout.rules import Finding

SAYS = {
    "ok": "ok: nothing is wrong that can be seen from here",
    "warn": "warn: it starts, but not as it was meant",
    "invalid": "invalid: it cannot run as it stands",
    "unknown": "unknown: more must be known before this can be judged",
}
SARIF_LEVEL = {"error": "error", "warn": "warning", "advice": "note"}
GITHUB_LEVEL = {"error": "error", "warn": "warning", "advice": "notice"}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _name(result: CheckResult) -> str:
    source = result.reading.sources[0] if result.reading.sources else "input"
    return f"{source} ({result.reading.label})" if result.reading.label else source


def text(report: Report, *, values: bool = False, say: Say = plain) -> str:
    """Lines for a terminal; with `values`, every resolved option and where it came from.

    say  says the words in the language of the reader
    """
    lines: list[str] = []
    for result in report.results:
        lines += _result_lines(result, values, say)
    for name, reason in report.unread.items():
        lines += [f"{name}: unknown", f"  {say(reason)}", ""]
    if len(report.results) + len(report.unread) > 1:
        lines.append(say(_summary(report)))
    elif not report.results and not report.unread:
        lines.append(say("no file says anything of a training that is known here"))
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(report: Report) -> str:
    counts = {verdict: sum(r.verdict == verdict for r in report.results) for verdict in SAYS}
    counts["unknown"] += len(report.unread)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{sum(counts.values())} runs: {shown}"


def _result_lines(result: CheckResult, values: bool, say: Say) -> Iterator[str]:
    yield f"{_name(result)}: {say(SAYS[result.verdict])}"
    yield f"  {say(_layout_line(result))}"
    for finding in result.findings:
        place = label(say, f"line {finding.line}:") if finding.line else ""
        kind = say(finding.severity)
        room = " " * max(6 - width_of(kind), 0)
        yield f"  {kind}{room} {place}{say(finding.message)} [{finding.rule}]"
        if finding.fix:
            yield f"         {label(say, 'fix:')}{say(finding.fix)}"
    if result.verdict == "unknown":
        for need in result.needs:
            yield f"  {say('needs')}  {say(need)}"
    if values:
        for name, value in result.resolved.items():
            if name not in short_names():
                yield f"  {name} = {value.value}  ({value.source})"
    yield ""


def _layout_line(result: CheckResult) -> str:
    layout, reading = result.layout(), result.reading
    experts = layout["edp"] is not None or (layout["ep"] or 1) > 1
    degrees = ("tp", "pp", "vpp", "cp", "ep", "etp") if experts else ("tp", "pp", "vpp", "cp")
    shown = [f"{n.upper()} {layout[n]}" for n in degrees if (layout[n] or 1) != 1]
    rest = {
        "DP": layout["dp"],
        "MBS": layout["mbs"],
        "GBS": layout["gbs"],
        "micro-batches": layout["num_microbatches"],
    }
    shown += [f"{name} {value:g}" for name, value in rest.items() if value is not None]
    world = f"{layout['world']} GPUs" if layout["world"] is not None else "unknown number of GPUs"
    gpu = f" ({reading.gpu.value})" if reading.gpu else ""
    return f"{reading.framework}, {world}{gpu}: {' '.join(shown) or 'DP only'}"


def github(report: Report, say: Say = plain) -> str:
    """Workflow commands that GitHub shows beside the lines (`::error file=..,line=..::message`)."""
    lines: list[str] = []
    for result in report.results:
        for finding in result.findings:
            source = result.reading.sources[0] if result.reading.sources else ""
            where = [f"file={_property(source)}"] if source else []
            where += [f"line={finding.line}"] if finding.line else []
            where.append(f"title={_property(finding.rule)}")
            run = f"{result.reading.label}: " if result.reading.label else ""
            fix = f"; {label(say, 'fix:')}{say(finding.fix)}" if finding.fix else ""
            message = f"{run}{say(finding.message)}{fix}"
            lines.append(f"::{GITHUB_LEVEL[finding.severity]} {','.join(where)}::{_data(message)}")
    for name, reason in report.unread.items():
        lines.append(f"::warning file={_property(name)},title=unread::{_data(reason)}")
    return "".join(f"{line}\n" for line in lines)


def _data(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(report: Report, say: Say = plain) -> str:
    """SARIF 2.1.0: one run, a rule for each id that occurs, a result for each finding."""
    from meshwright._version import __version__

    pairs = [(result, finding) for result in report.results for finding in result.findings]
    rules = {finding.rule: _sarif_rule(finding, say) for _, finding in pairs}
    driver: dict[str, Any] = {
        "name": "meshwright",
        "version": __version__,
        "informationUri": "https://pypi.org/project/meshwright/",
        "rules": list(rules.values()),
    }
    notices = [
        {"level": "warning", "message": {"text": f"{name}: {reason}"}}
        for name, reason in report.unread.items()
    ]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": [_sarif_result(result, finding, list(rules), say) for result, finding in pairs],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notices}],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_rule(finding: Finding, say: Say) -> dict[str, Any]:
    """A rule of the list with what it demands and why; a check of the launcher by its id alone."""
    from meshwright.errors import QuestionError
    from meshwright.layout.rules import rule

    entry: dict[str, Any] = {
        "id": finding.rule,
        "defaultConfiguration": {"level": SARIF_LEVEL[finding.severity]},
    }
    try:
        known = rule(finding.rule)
    except QuestionError:
        return {**entry, "shortDescription": {"text": finding.rule.replace("-", " ")}}
    short, whole = say(known.must), say(known.why)
    return {**entry, "shortDescription": {"text": short}, "fullDescription": {"text": whole}}


def _sarif_result(result: CheckResult, finding: Finding, rules: list[str], say: Say) -> dict[str, Any]:
    message = say(finding.message) + (f"\n{label(say, 'Fix:')}{say(finding.fix)}" if finding.fix else "")
    if result.reading.label:
        message = f"{result.reading.label}: {message}"
    entry: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": SARIF_LEVEL[finding.severity],
        "message": {"text": message},
    }
    if result.reading.sources and result.reading.sources[0] != "command":
        place: dict[str, Any] = {"artifactLocation": {"uri": result.reading.sources[0].replace(" ", "%20")}}
        if finding.line:
            place["region"] = {"startLine": finding.line}
        entry["locations"] = [{"physicalLocation": place}]
    return entry
