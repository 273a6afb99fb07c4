"""Which kind of GPU a text names: in its comments, directives or launcher options."""

from __future__ import annotations

import re

from meshwright.frameworks.reading import Source, Value

NAMED = re.compile(
    r"(?<![A-Za-z0-9])(GB300|GB200|B300|B200|H800|H200|H100|H20|A800|A100|L40S|V100|MI300X|MI325X)"
    r"(?:[-_ ]?(SXM|PCIE|NVL))?(?:[-_ ]?(\d{2,3}) ?G(?:i?B)?)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
COMMENT = re.compile(r"(?:^|\s)#(.*)$|\"\"\"(.*)|'''(.*)")
MAX_LINES = 5000


def gpu_in(text: str, file: str, line: int | None = None) -> Value | None:
    """The one kind of GPU that comments and directives name; None when there are none or several."""
    kinds: dict[str, Value] = {}
    for number, content in enumerate(text.split("\n")[:MAX_LINES], 1):
        if line is None and "#" not in content and '"""' not in content:
            continue
        comment = content if line is not None else content[max(content.find("#"), 0) :]
        for found in NAMED.finditer(comment[:400]):
            name = kind_of(found)
            kinds.setdefault(name, Value(name, Source(file=file, line=line or number)))
    return next(iter(kinds.values())) if len(kinds) == 1 else None


def kind_of(found: re.Match[str]) -> str:
    """`A100-80G`, `a100 80GB` -> A100-80GB; other kinds by their name."""
    name, memory = found.group(1).upper(), found.group(3)
    return f"{name}-{memory}GB" if name in ("A100", "A800") and memory else name
