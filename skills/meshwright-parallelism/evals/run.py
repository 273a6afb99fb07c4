"""Ask the command line every question of evals.json and hold its answers to the ground truths.

python skills/meshwright-parallelism/evals/run.py             every question
python skills/meshwright-parallelism/evals/run.py --id nvl72  those whose id contains this

An answer passes where the exit status is right, every element stands in what was printed, and every value
stands in the JSON of the same command. Exit status 1 where one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EVALS = Path(__file__).with_name("evals.json")
Eval = Mapping[str, Any]
Run = Callable[[list[str]], tuple[int, str]]


def load() -> list[Eval]:
    """Every question."""
    rows: list[Eval] = json.loads(EVALS.read_text(encoding="utf-8"))["evals"]
    return rows


def run_in_process(words: list[str]) -> tuple[int, str]:
    """(exit status, standard output) of a command line, without starting a process."""
    from meshwright.cli.main import main

    out, before = io.StringIO(), sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stdout(out):
            main()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    finally:
        sys.argv = before
    return 0, out.getvalue()


def missing(one: Eval, run: Run = run_in_process) -> list[str]:
    """What the answer of the command line lacks; empty where it is complete."""
    words = shlex.split(one["command"])
    status, text = run(words)
    wanted = one.get("exit_status", 0)
    lacks = [f"exit status {wanted} (it is {status})"] if status != wanted else []
    lacks += lacking(text, one.get("elements", ()))
    if one.get("values"):
        lacks += wrong_values(_json(run(with_json(words))[1]), one["values"])
    return lacks


def _json(text: str) -> Any:
    """The JSON of an answer; None where there was only an error."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def with_json(words: list[str]) -> list[str]:
    """The same command with --json, before a command that is checked."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--json", *words[end:]]


def lacking(text: str, elements: Any) -> list[str]:
    """Elements that do not stand in a text; white space is folded."""
    folded = " ".join(text.split())
    return [element for element in elements if " ".join(element.split()) not in folded]


def wrong_values(data: Any, values: Mapping[str, Any]) -> list[str]:
    """Paths whose value in the JSON is another one."""
    found = {path: at(data, path) for path in values}
    return [
        f"{path} = {values[path]!r} (it is {found[path]!r})" for path in values if found[path] != values[path]
    ]


def at(data: Any, path: str) -> Any:
    """The value at a path: a.b, a[0], or a[id] for the row of that id or name; None where there is none."""
    for step in re.findall(r"[^.\[\]]+|\[[^\]]+\]", path):
        name = step.strip("[]")
        if not step.startswith("["):
            data = data.get(name) if isinstance(data, dict) else None
        elif name.isdigit():
            data = data[int(name)] if isinstance(data, list) and int(name) < len(data) else None
        else:
            rows = data if isinstance(data, list) else []
            data = next((row for row in rows if name in (row.get("id"), row.get("name"))), None)
    return data


def main() -> int:
    """Print one line a question."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--id", default="", help="only questions whose id contains this")
    asked = [one for one in load() if parser.parse_args().id in one["id"]]
    failed = 0
    for one in asked:
        lacks = missing(one)
        failed += bool(lacks)
        print(f"{'FAIL' if lacks else 'ok  '}  {one['kind']:<14} {one['id']}")
        for lack in lacks:
            print(f"        lacks: {lack}")
    print(f"{len(asked) - failed} of {len(asked)} answers are complete")
    return 1 if failed or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
