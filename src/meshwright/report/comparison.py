"""Two configs side by side, a config on other GPUs, a checkpoint under a new layout: terminal text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.cluster.spec import GIB
from meshwright.frameworks.compare import Comparison
from meshwright.frameworks.rescale import Rescaled
from meshwright.frameworks.resume import Resume
from meshwright.lang import Say, label, plain, width_of
from meshwright.layout.rules import Finding

UNITS = {
    "step_seconds": ("step [s]", 1.0),
    "tokens_per_second_per_gpu": ("tokens/s/GPU", 1.0),
    "peak_bytes": ("peak memory [GiB]", 1 / GIB),
}


def comparison_text(answer: Comparison) -> str:
    """What differs, and what it costs."""
    lines = [f"{answer.left.verdict:<10} {_name(answer.left.reading.sources)}"]
    lines.append(f"{answer.right.verdict:<10} {_name(answer.right.reading.sources)}\n")
    rows = [(name, _word(a), _word(b)) for name, (a, b) in answer.differs.items()]
    lines += _table(("option", "left", "right"), rows) if rows else ["no option differs"]
    costs = [
        (UNITS[name][0], f"{a * UNITS[name][1]:,.3g}", f"{b * UNITS[name][1]:,.3g}")
        for name, (a, b) in answer.costs().items()
    ]
    if costs:
        lines += ["", *_table(("cost", "left", "right"), costs)]
    return "\n".join(lines) + "\n"


def rescaled_text(answer: Rescaled) -> str:
    """What changed, and what is lost."""
    rows = [(name, str(old), str(new)) for name, (old, new) in answer.changes.items()]
    lines = _table(("changed", "from", "to"), rows) if rows else ["nothing changes but the number of GPUs"]
    if answer.efficiency is not None:
        lines.append(f"\ntokens a second and GPU: {answer.efficiency:.0%} of before")
    lines += _findings(answer.after.findings)
    return "\n".join(lines) + "\n"


def resume_text(answer: Resume, say: Say = plain) -> str:
    """Whether a checkpoint can go on, and what reshards.

    say  says the words in the language of the reader
    """
    lines = [say(f"{answer.verdict}")]
    lines += [f"  {name}: {old} -> {new}" for name, (old, new) in answer.changed.items()]
    lines += _findings(answer.findings, say)
    if answer.checkpoint_bytes:
        lines.append(say(f"checkpoint: {answer.checkpoint_bytes / 1e9:,.1f} GB with optimizer"))
    if answer.save_seconds:
        lines.append(say(f"saving takes about {answer.save_seconds:,.0f} s (2 GB/s a node is assumed)"))
    return "\n".join(lines) + "\n"


def _findings(findings: tuple[Finding, ...], say: Say = plain) -> Iterator[str]:
    for finding in findings:
        kind = say(finding.severity)
        yield f"  {kind}{' ' * max(6 - width_of(kind), 0)} {say(finding.message)}"
        if finding.fix and finding.fix not in finding.message:
            yield f"         {label(say, 'fix:')}{say(finding.fix)}"


def _name(sources: tuple[str, ...]) -> str:
    return sources[0] if sources else "input"


def _word(value: object) -> str:
    return "-" if value is None else str(getattr(value, "value", value))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    everything = [head, *rows]
    widths = [min(max(len(row[column]) for row in everything), 44) for column in range(len(head))]
    return [
        "  ".join(cell[:44].ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in everything
    ]
