"""YAML, TOML and JSON files as flat dotted options, each with its line; nothing is constructed.

Hostile documents (bombs of aliases, deep nesting, megabytes) end in a QuestionError within a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import QuestionError
from meshwright.frameworks.reading import Plain, Source, Value
from meshwright.frameworks.spelling import plain_value

MAX_DOCUMENT = 300_000
"""Longest config file that is read [characters]."""
MAX_NODES = 50_000
MAX_DEPTH = 60

Flat = dict[str, Value]


def yaml_documents(text: str, file: str) -> list[Flat]:
    """Every document of a YAML file, flat: `{"model.num_layers": Value(40, file:7), ...}`.

    List items are named by their index (`args.0`). Text scalars of several lines stay one value.
    """
    import yaml

    guard(text, file)
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        raise QuestionError(f"{file} is not YAML: {_first_line(problem)}") from None
    budget = [MAX_NODES]
    found: list[Flat] = []
    for node in nodes:
        flat: Flat = {}
        if node is not None:
            _walk(node, "", file, flat, budget, 0)
        found.append(flat)
    return found


def _first_line(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200]


def guard(text: str, file: str) -> None:
    """QuestionError for a document that no config looks like."""
    if len(text) > MAX_DOCUMENT:
        raise QuestionError(
            f"{file} has {len(text):,} characters; a config of more than {MAX_DOCUMENT:,} is not read"
        )
    depth = deepest = 0
    for char in text:
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth = max(0, depth - 1)
    if (
        deepest > MAX_DEPTH
        or re.search(r"(?:[-?:] ){40}", text)
        or re.search(r"^[ ]{600}", text, re.MULTILINE)
    ):
        raise QuestionError(f"{file} is nested too deeply for a config")


def _walk(node: Any, path: str, file: str, flat: Flat, budget: list[int], depth: int) -> None:
    """Flatten one node; aliases are followed, and counted against the budget."""
    import yaml

    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise QuestionError(f"{file} holds more than {MAX_NODES:,} values; that is no config")
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        named = [(str(getattr(key, "value", "")) if isinstance(key, yaml.ScalarNode) else "", value)
                 for key, value in node.value]  # fmt: skip
        for merged in [value for name, value in named if name == "<<"]:
            # The mapping's own keys win over what is merged, wherever `<<` stands; the first of a list wins.
            parts = merged.value[::-1] if isinstance(merged, yaml.SequenceNode) else [merged]
            for part in parts:
                _walk(part, path, file, flat, budget, depth + 1)
        for name, value in named:
            if name == "<<":
                continue
            _walk(value, f"{path}.{name}" if path else name, file, flat, budget, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        scalars = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
        if len(scalars) == len(node.value):
            budget[0] -= len(scalars)
            items = tuple(_scalar(item) for item in scalars)
            flat[path] = Value(items, Source(file=file, line=line))
        elif (rows := _rows(node)) is not None:
            budget[0] -= sum(len(row) for row in rows)
            flat[path] = Value(rows, Source(file=file, line=line))
        for number, item in enumerate(node.value):
            _walk(item, f"{path}.{number}", file, flat, budget, depth + 1)
    else:
        flat[path] = Value(_scalar(node), Source(file=file, line=line))


def _rows(node: Any) -> tuple[tuple[Plain, ...], ...] | None:
    """A list of lists of scalars (a pipeline layout), None for anything else."""
    import yaml

    if not all(isinstance(row, yaml.SequenceNode) for row in node.value):
        return None
    if not all(isinstance(item, yaml.ScalarNode) for row in node.value for item in row.value):
        return None
    return tuple(tuple(_scalar(item) for item in row.value) for row in node.value)


def _scalar(node: Any) -> Plain:
    """A scalar by the rules of YAML 1.2; quoted scalars stay text."""
    if node.style in ("'", '"', "|", ">"):
        return str(node.value)
    return plain_value(node.value)


def toml_document(text: str, file: str) -> Flat:
    """A TOML file, flat, each key with the line it stands on."""
    import tomllib

    guard(text, file)
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as problem:
        raise QuestionError(f"{file} is not TOML: {_first_line(problem)}") from None
    lines = dict(_toml_lines(text))
    return {name: Value(value, Source(file=file, line=lines.get(name))) for name, value in flattened(tree)}


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.match(r"\s*\[([\w.\"-]+)\]", line):
            section = found.group(1).replace('"', "")
        elif found := re.match(r"\s*([\w.-]+)\s*=", line):
            yield (f"{section}.{found.group(1)}" if section else found.group(1)), number


def flattened(tree: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Plain]]:
    """(dotted name, value) of a tree of dicts and lists."""
    if depth > MAX_DEPTH:
        return
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from flattened(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(tree, (list, tuple)):
        if all(isinstance(item, (str, int, float, bool, type(None))) for item in tree):
            yield path, tuple(tree)
        else:
            for number, item in enumerate(tree):
                yield from flattened(item, f"{path}.{number}", depth + 1)
    elif isinstance(tree, (str, int, float, bool, type(None))):
        yield path, tree
    else:
        yield path, str(tree)


def json_document(text: str, file: str) -> Flat:
    """A JSON file, flat (without lines)."""
    import json

    guard(text, file)
    try:
        tree = json.loads(text)
    except (json.JSONDecodeError, RecursionError, ValueError) as problem:
        raise QuestionError(f"{file} is not JSON: {_first_line(problem)}") from None
    return {name: Value(value, Source(file=file)) for name, value in flattened(tree)}
