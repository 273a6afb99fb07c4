"""Write the generated part of the documentation: one page a rule, and their index.

python tools/generate_docs.py          write docs/rules/
python tools/generate_docs.py --check  exit 1 where a page differs or is left over
"""

from __future__ import annotations

import sys
from pathlib import Path

from meshwright.layout.rules import ALL_RULES, markdown_pages

FOLDER = Path(__file__).parent.parent / "docs" / "rules"
HEAD = """\
# Rules

What must hold between a layout, a model, a job and the framework. `plan` leaves out what breaks a rule,
`estimate` and `check` report it. *error*: training does not start, or breaks; *warn*: it starts, but not as
it was meant; *advice*: it runs, and could run better. `meshwright explain RULE` prints a page.

This folder is generated from the rule objects by `python tools/generate_docs.py`.

| rule | severity | must hold | enforced by |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    """{file name: text} of everything that is generated."""
    rows = [
        f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {rule.must} | {', '.join(rule.enforced_by)} |"
        for rule in ALL_RULES
    ]
    index = HEAD + "\n".join(rows) + "\n"
    return {"index.md": index, **{f"{name}.md": text for name, text in markdown_pages().items()}}


def main() -> int:
    wanted = pages()
    if "--check" in sys.argv:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
        return int(there != wanted)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for left in {path.name for path in FOLDER.glob("*.md")} - wanted.keys():
        (FOLDER / left).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
